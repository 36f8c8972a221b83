"""Clustering: rows that are near in some columns come into the same files, without a change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.expr import Where
from plait.files.data_file import bucket_spans
from plait.model.bucket import UNKEYED, BucketId, partition_parse, partition_path
from plait.model.instant import Operation
from plait.model.order import Order, check_order, recorded_order
from plait.model.plain import Plain
from plait.model.plan import COW
from plait.model.request import FileSet
from plait.model.schema import names_of
from plait.read.plan import all_files, filter_where, plan_scan
from plait.services.maintenance.ages import current_before
from plait.services.maintenance.rewrite import ALONE, Rewritten, Sharing, rewrite_sets, shares
from plait.state.state import TableState
from plait.txn.table_handle import TableHandle

_KIND = "hilbert"
_BY = [(name, "ascending") for name in ("partition", "bucket", "version", "path")]


@dataclass(frozen=True, slots=True)
class ClusteringTask(Plain):
    """Files of one bucket, or of one partition, whose rows are put in the order."""

    KEYS = "rows bytes sources"

    bucket: BucketId
    sources: tuple[str, ...]
    rows: int
    """Rows that are visible in them."""
    bytes: int

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        shown = Plain.to_dict(self)
        return {"place": place_of(self.bucket), "files": len(self.sources), **shown}


def place_of(bucket: BucketId) -> str:
    """Return the directory of a partition, with the number of a bucket in it.

    >>> place_of(((), 3))
    'data/3'
    """
    partition, number = bucket
    return partition_path(partition) + ("" if number == UNKEYED else f"/{number}")


@dataclass(frozen=True, slots=True)
class ClusteringPlan(Plain):
    """What a clustering would do at a version."""

    KEYS = "version columns=order.columns kind=order.kind tasks"

    version: int
    order: Order
    tasks: tuple[ClusteringTask, ...]


@dataclass(frozen=True, slots=True)
class ClusteringReport(Rewritten):
    """The result of a clustering."""

    KEYS = f"plan {Rewritten.KEYS}"

    plan: ClusteringPlan


def plan_clustering(
    handle: TableHandle,
    columns: str | Sequence[str] = (),
    *,
    kind: str | None = None,
    where: Where = None,
) -> ClusteringPlan:
    """Plan to put rows in an order; write nothing.

    Args:
        handle: the table.
        columns: the columns of the order; then every file is planned. None: those of the property
            ``cluster.by``; then only what is not in its order.
        kind: ``sort``, ``zorder`` or ``hilbert``, with columns; by default ``hilbert``.
        where: plan only files in which rows may match, in a table with a key their buckets.

    Raises:
        OptionError: there is no such order, or none is recorded.
    """
    state = handle.cache.refresh()
    named = names_of(columns, "columns")
    recorded = None if named or kind is not None else recorded_order(state.table.options)
    order = recorded or Order(named, kind or _KIND)
    check_order(order, state.table.spec, "order_by")
    file_filter = all_files if state.table.spec.keyed else filter_where(where)
    snapshot = state.snapshot(handle.store, file_filter=file_filter)
    planner = _Planner.of(state, order, snapshot.files, again=recorded is None)
    if where is None:
        return planner.plan(None)
    return planner.plan(set(plan_scan(snapshot, where=where).files["path"].to_pylist()))


def plan_due(handle: TableHandle) -> ClusteringPlan | None:
    """Plan what falls due by the table's policy; None if it has no order.

    What its writers have just written anew, in a copy-on-write table, is left alone: they would
    do it again, and the clustering would be for nothing.
    """
    state = handle.cache.refresh()
    order = recorded_order(state.table.options)
    if order is None:
        return None
    files = state.snapshot(handle.store, file_filter=all_files).files
    planner = _Planner.of(state, order, files, again=False)
    spec = state.table.spec
    if spec.keyed and spec.layout.table_type == COW and planner.any:
        age_ms = int(state.table.options.seconds("cluster.after") * 1000)
        quiet = current_before(handle, state, age_ms)
        planner = replace(planner, newest=-1 if quiet is None else quiet)
    return planner.plan(None, percent=state.table.options.count("cluster.percent"))


@dataclass(frozen=True, slots=True)
class _Planner:
    """Chooses files; in a table with a key a bucket is put in order whole."""

    version: int
    order: Order
    files: pa.Table
    """LIVE, by bucket, in each the oldest first."""
    unordered: npt.NDArray[np.bool_]
    keyed: bool
    size: int
    newest: int | None = None
    """Buckets with a file of a later version are left out."""

    @classmethod
    def of(cls, state: TableState, order: Order, files: pa.Table, *, again: bool) -> Self:
        ordered = files.sort_by(_BY).combine_chunks()
        unordered = pc.not_equal(ordered["order"], order.id).to_numpy() | again
        size = state.table.options.size("services.task.size")
        return cls(state.version, order, ordered, unordered, state.table.spec.keyed, size)

    @property
    def any(self) -> bool:
        """Whether a file is not in the order."""
        return bool(self.unordered.any())

    def plan(self, within: AbstractSet[str] | None, *, percent: int = -1) -> ClusteringPlan:
        """Plan the buckets of which a larger share than some percent is not in the order.

        Args:
            within: paths; only their files, or buckets.
            percent: of the bytes; negative: whatever is not.
        """
        tasks: list[ClusteringTask] = []
        for low, high in self._due(percent):
            span, left = self.files.slice(low, high - low), self.unordered[low:high]
            if self.newest is not None and span["version"].to_numpy().max() > self.newest:
                continue
            inside = left
            if within is not None:
                inside = np.array([path in within for path in span["path"].to_pylist()]) & left
            if not inside.any():
                continue
            tasks += self._tasks(span if self.keyed else span.filter(pa.array(inside)))
        return ClusteringPlan(self.version, self.order, tuple(tasks))

    def _due(self, percent: int) -> Iterator[tuple[int, int]]:
        """Return the stretches of buckets of whose bytes a larger share is not in the order."""
        spans = bucket_spans(self.files) if self.any else []
        if not spans:
            return
        starts = np.array([low for low, _ in spans])
        sizes = self.files["bytes"].to_numpy()
        out, every = (np.add.reduceat(each, starts) for each in (sizes * self.unordered, sizes))
        some = np.logical_or.reduceat(self.unordered, starts)
        for number in np.flatnonzero(some & (out * 100 > percent * every)).tolist():
            yield spans[number]

    def _tasks(self, span: pa.Table) -> Iterator[ClusteringTask]:
        sizes = span["bytes"].to_pylist()
        whole = [(0, len(sizes))] if self.keyed else shares(sizes, self.size)
        first = span.slice(0, 1).to_pylist()[0]
        for start, stop in whole:
            chosen = span.slice(start, stop - start)
            rows, masked, size = (
                int(chosen[name].to_numpy().sum()) for name in ("rows", "masked", "bytes")
            )
            bucket = partition_parse(first["partition"]), first["bucket"]
            paths = tuple(chosen["path"].to_pylist())
            yield ClusteringTask(bucket, paths, rows - masked, size)


def cluster(
    handle: TableHandle, plan: ClusteringPlan, session: object = None, *, sharing: Sharing = ALONE
) -> ClusteringReport:
    """Execute a plan, in commits of about ``services.task.size`` for each that works at once.

    It changes no row, and no writer fails or waits because of it. If it is killed, what it has
    committed stands.

    Args:
        handle: the table.
        plan: which files belong together; what is not there any more is left out.
        session: where the work is done; by default in this process.
        sharing: which partitions are left to others, and when to stop.

    Raises:
        RolledBackError: it was taken for dead.
        CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        OptionError: no engine knows such a session.
    """
    sets = [FileSet(each.bucket, each.sources, each.bytes, plan.order) for each in plan.tasks]
    done = rewrite_sets(handle, Operation.CLUSTER, sets, session, sharing)
    return ClusteringReport(done.commits, done.bytes_read, plan)
