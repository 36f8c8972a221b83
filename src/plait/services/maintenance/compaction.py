"""Compaction: fewer files a bucket, and no rows that are hidden, without a change of any row.

A plan says which files belong together and why. It is never trusted: what is executed is checked
again, so a plan may be old, and two processes may execute the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.data_file import bucket_spans, files_in
from plait.model.bucket import BucketId, partition_parse, partition_path
from plait.model.changes import LOG
from plait.model.contract import Options
from plait.model.instant import Operation
from plait.model.order import Order, recorded_order
from plait.model.plain import Plain
from plait.model.request import FileSet
from plait.read.plan import all_files, filter_partitions
from plait.services.maintenance.rewrite import ALONE, Rewritten, Sharing, rewrite_sets
from plait.state.state import TableState
from plait.txn.table_handle import TableHandle

_BY = [(name, "ascending") for name in ("partition", "bucket", "version", "path")]
_PERCENT = 100
_SMALL = 2
"""A file is small if it has less than the target size divided by this."""


@dataclass(frozen=True, slots=True)
class CompactionTask(Plain):
    """Files of one bucket that are to become one."""

    KEYS = "rows bytes reason sources"

    bucket: BucketId
    sources: tuple[str, ...]
    rows: int
    """Rows that are visible in them."""
    bytes: int
    reason: str
    order: Order | None = None
    """The order of the table, where all rows of the bucket are copied."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        place = f"{partition_path(self.bucket[0])}/{self.bucket[1]}"
        return {"place": place, "files": len(self.sources), **Plain.to_dict(self)}


@dataclass(frozen=True, slots=True)
class CompactionPlan(Plain):
    """What a compaction would do at a version."""

    version: int
    tasks: tuple[CompactionTask, ...]


@dataclass(frozen=True, slots=True)
class CompactionReport(Rewritten):
    """The result of a compaction."""

    KEYS = f"plan {Rewritten.KEYS}"

    plan: CompactionPlan


def plan_compaction(
    handle: TableHandle, *, full: bool = False, buckets: frozenset[BucketId] | None = None
) -> CompactionPlan:
    """Plan by the table's policy; write nothing.

    Args:
        handle: the table.
        full: plan every bucket that is not one file without hidden rows, whatever the policy says.
        buckets: plan only these.
    """
    state = handle.cache.refresh()
    file_filter = (
        all_files if buckets is None else filter_partitions({place for place, _ in buckets})
    )
    files = state.snapshot(handle.store, file_filter=file_filter).files
    if buckets is not None:
        files = files_in(files, buckets)
    return CompactionPlan(state.version, tuple(_Planner.of(state, files, full=full).tasks()))


def compact(
    handle: TableHandle, plan: CompactionPlan, session: object = None, *, sharing: Sharing = ALONE
) -> CompactionReport:
    """Execute a plan, in commits of about ``services.task.size`` for each that works at once.

    It changes no row, and no writer fails or waits because of it. If it is killed, what it has
    committed stands, and the next one plans the rest.

    Args:
        handle: the table.
        plan: which files belong together; what is not there any more is left out.
        session: where the work is done; by default in this process.
        sharing: which partitions are left to others, and when to stop.

    Raises:
        RolledBackError: it was taken for dead.
        CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        CommitOutcomeUnknownError: the store does not say; nothing was deleted.
        OptionError: no engine knows such a session.
    """
    sets = [FileSet(task.bucket, task.sources, task.bytes, task.order) for task in plan.tasks]
    done = rewrite_sets(handle, Operation.COMPACT, sets, session, sharing)
    return CompactionReport(done.commits, done.bytes_read, plan)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Chooses files; the numbers of all files are arrays, and only what is chosen is an object."""

    files: pa.Table
    """LIVE, by bucket, in each the oldest first."""
    options: Options
    keyed: bool
    full: bool
    order: Order | None

    @classmethod
    def of(cls, state: TableState, files: pa.Table, *, full: bool) -> Self:
        ordered = files.sort_by(_BY).combine_chunks()
        options = state.table.options
        return cls(ordered, options, state.table.spec.keyed, full, recorded_order(options))

    def tasks(self) -> Iterator[CompactionTask]:
        spans = bucket_spans(self.files)
        if not spans:
            return
        if self.keyed:
            yield from self._of_buckets(spans)
            return
        for low, high in spans:
            yield from self._of_partition(low, high)

    def _of_buckets(self, spans: list[tuple[int, int]]) -> Iterator[CompactionTask]:
        starts = np.array([low for low, _ in spans])
        log = pc.equal(self.files["kind"], LOG).to_numpy().astype(np.int64)
        size = self._column("bytes")
        logs, log_bytes, all_bytes, rows, hidden = (
            np.add.reduceat(column, starts)
            for column in (log, log * size, size, self._column("rows"), self._column("masked"))
        )
        count = np.diff([*starts, self.files.num_rows])
        base_bytes = all_bytes - log_bytes
        share = self.options.count("compact.log.percent")
        heavy = (logs > 0) & (log_bytes * _PERCENT > base_bytes * share)
        sparse = hidden * _PERCENT > rows * self.options.count("compact.hidden.percent")
        several = logs > self.options.count("compact.logs")
        split = count - logs > 1
        whole = heavy | sparse | split | (self.full & ((count > 1) | (hidden > 0)))
        for number in np.flatnonzero(whole | several).tolist():
            low, high = spans[number]
            if whole[number]:
                reason = "hidden rows" if sparse[number] else "log files"
                yield self._task(np.arange(low, high), reason, self.order)
            else:
                yield self._task(low + np.flatnonzero(log[low:high]), "several log files")

    def _of_partition(self, low: int, high: int) -> Iterator[CompactionTask]:
        """Put small files together, in their order, up to the target size."""
        size, rows, hidden = (self._column(name)[low:high] for name in ("bytes", "rows", "masked"))
        target = self.options.size("file.size.target")
        sparse = hidden * _PERCENT > rows * self.options.count("compact.hidden.percent")
        small = (size * _SMALL < target) | sparse
        least = 1 if self.full else self.options.count("compact.small.files")
        chosen = np.flatnonzero(small | (self.full & (hidden > 0)))
        if len(chosen) < least and not sparse.any():
            return
        if not self.full:
            chosen = chosen[_worth_it(size[chosen], least) | sparse[chosen]]
        start, total = 0, 0
        for at, place in enumerate(chosen.tolist()):
            total += int(size[place])
            if total >= target or at == len(chosen) - 1:
                share = chosen[start : at + 1]
                if len(share) > 1 or hidden[share].any():
                    yield self._task(low + share, "small files", self.order)
                start, total = at + 1, 0

    def _column(self, name: str) -> npt.NDArray[np.int64]:
        values: npt.NDArray[np.int64] = self.files[name].to_numpy()
        return values

    def _task(
        self, places: npt.NDArray[np.int64], reason: str, order: Order | None = None
    ) -> CompactionTask:
        files = self.files.take(pa.array(places))
        first = files.slice(0, 1).to_pylist()[0]
        return CompactionTask(
            (partition_parse(first["partition"]), first["bucket"]),
            tuple(files["path"].to_pylist()),
            int(self._column("rows")[places].sum() - self._column("masked")[places].sum()),
            int(self._column("bytes")[places].sum()),
            reason,
            order,
        )


def _worth_it(sizes: npt.NDArray[np.int64], least: int) -> npt.NDArray[np.bool_]:
    """Choose the smaller half of some files, and each that is no larger than the smaller ones.

    If all were merged each time, a row would be written again with every few appends.

    >>> _worth_it(np.array([1, 900, 1, 1, 1, 40, 5, 9]), 8).tolist()
    [True, False, True, True, True, False, False, False]
    """
    order = np.argsort(sizes, kind="stable")
    ordered = sizes[order]
    before = np.cumsum(ordered) - ordered
    fits = (ordered <= before) | (np.arange(len(sizes)) < max(2, least // 2))
    chosen = np.zeros(len(sizes), dtype=np.bool_)
    chosen[order[: int(np.argmin(fits)) if not fits.all() else len(fits)]] = True
    return chosen
