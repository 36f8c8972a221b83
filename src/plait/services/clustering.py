"""Clustering: rows that are near in some columns come into the same files, without a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plait.errors import OptionError
from plait.expr import Where
from plait.files.data_file import bucket_spans
from plait.model.bucket import BucketId, partition_parse, partition_path
from plait.model.decision import CommitResult
from plait.model.instant import Operation
from plait.model.plan import TableSpec
from plait.model.request import FileSet, Order
from plait.model.schema import names_of
from plait.model.value import is_plain
from plait.read.plan import plan_scan
from plait.read.wanted import wanted_where
from plait.services.rewrite import rewrite_sets, shares
from plait.txn.table_handle import TableHandle

KINDS = ("sort", "zorder", "hilbert")
_BY = [(name, "ascending") for name in ("partition", "bucket", "version", "path")]


@dataclass(frozen=True, slots=True)
class ClusteringTask:
    """Files of one partition whose rows are put in the order."""

    bucket: BucketId
    sources: tuple[str, ...]
    rows: int
    """Rows that are visible in them."""
    bytes: int

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "place": partition_path(self.bucket[0]),
            "files": len(self.sources),
            "rows": self.rows,
            "bytes": self.bytes,
            "sources": list(self.sources),
        }


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """What a clustering would do at a version."""

    version: int
    order: Order
    tasks: tuple[ClusteringTask, ...]

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "version": self.version,
            "columns": list(self.order.columns),
            "kind": self.order.kind,
            "tasks": [task.to_dict() for task in self.tasks],
        }


@dataclass(frozen=True, slots=True)
class ClusteringReport:
    """The result of a clustering."""

    plan: ClusteringPlan
    commits: tuple[CommitResult, ...]
    """One for each task of the plan of which something was left."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {"plan": self.plan.to_dict(), "commits": [each.to_dict() for each in self.commits]}


def plan_clustering(
    handle: TableHandle, columns: str | Sequence[str], *, kind: str = "hilbert", where: Where = None
) -> ClusteringPlan:
    """Plan to put rows in an order; write nothing.

    Args:
        handle: the table, which has no record key.
        columns: the columns of the order.
        kind: ``sort``, ``zorder`` or ``hilbert``.
        where: plan only files in which rows may match.

    Raises:
        OptionError: the table has a record key, or there is no such order.
    """
    state = handle.cache.refresh()
    order = _checked(Order(names_of(columns, "columns"), kind), state.table.spec)
    snapshot = state.snapshot(handle.store, wants=wanted_where(where))
    files = plan_scan(snapshot, where=where).files.sort_by(_BY).combine_chunks()
    size = state.table.options.size("services.task.size")
    tasks: list[ClusteringTask] = []
    for low, high in bucket_spans(files):
        span = files.slice(low, high - low)
        for start, stop in shares(span["bytes"].to_pylist(), size):
            chosen = span.slice(start, stop - start)
            first = chosen.slice(0, 1).to_pylist()[0]
            rows, masked, sizes = (
                chosen[name].to_numpy().sum() for name in ("rows", "masked", "bytes")
            )
            tasks.append(
                ClusteringTask(
                    (partition_parse(first["partition"]), first["bucket"]),
                    tuple(chosen["path"].to_pylist()),
                    int(rows - masked),
                    int(sizes),
                )
            )
    return ClusteringPlan(state.version, order, tuple(tasks))


def _checked(order: Order, spec: TableSpec) -> Order:
    if spec.keyed:
        message = "clustering works on tables without a record key"
        hint = "the files of a table with a record key are sorted by it; see compact"
        raise OptionError(message, hint=hint, key="order_by", value=", ".join(order.columns))
    if order.kind not in KINDS:
        message = f"kind={order.kind!r} is unknown"
        raise OptionError(message, hint=f"one of {', '.join(KINDS)}", key="kind", value=order.kind)
    for name in order.columns:
        if name not in spec.schema.names or not is_plain(spec.schema.arrow.field(name).type):
            message = f"rows cannot be put in an order by {name!r}"
            hint = f"columns of plain values: {', '.join(_plain(spec))}"
            raise OptionError(message, hint=hint, key="order_by", value=name)
    if not order.columns:
        message = "an order needs a column"
        raise OptionError(message, hint="order_by=['day', 'city']", key="order_by", value="")
    return order


def _plain(spec: TableSpec) -> list[str]:
    arrow = spec.schema.arrow
    return [name for name in arrow.names if is_plain(arrow.field(name).type)]


def cluster(handle: TableHandle, plan: ClusteringPlan, session: object = None) -> ClusteringReport:
    """Execute a plan, one commit a task.

    It changes no row, and no writer fails or waits because of it. If it is killed, what it has
    committed stands.

    Raises:
        RolledBackError: it was taken for dead.
        CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        OptionError: no engine knows such a session.
    """
    sets = [FileSet(each.bucket, each.sources, each.bytes, plan.order) for each in plan.tasks]
    return ClusteringReport(plan, rewrite_sets(handle, Operation.CLUSTER, sets, session))
