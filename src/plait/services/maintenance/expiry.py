"""Expiry: rows whose time is over disappear, while everyone writes (RFC 0018, section 4.7).

The store's clock tells the time, and a plan fixes it. Positions of expired rows are found once, in
the files of the base. On each newer head the decision is drafted anew from that head alone, so an
expiry waits for no writer. No writer fails because of it (INV-15): see ``txn/carry.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from plait.definition.create import fitting_ttl
from plait.definition.replicated_table import require_no_replicas
from plait.definition.ttl import PARTITION, Ttl
from plait.files.data_file import LiveFile, live_files
from plait.files.deletion import load_mask, union
from plait.files.roaring import Positions
from plait.model.bucket import BucketId, Partition, partition_path
from plait.model.changes import (
    KEYS_ALL,
    KEYS_NONE,
    PATHS,
    Changes,
    WriteStats,
    WriteStatus,
    touched_whole,
)
from plait.model.decision import CommitResult, Decision, Scope
from plait.model.instant import Operation
from plait.model.plain import Plain
from plait.model.plan import COW
from plait.model.request import WriteRequest
from plait.read.plan import filter_partitions
from plait.services.maintenance.expired import Expired, find_candidates, find_expired, limit_of
from plait.services.maintenance.rewrite import shares
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline.pending import load_pending
from plait.txn.carry import MaskFiles
from plait.txn.liveness import is_alive
from plait.txn.matrix import DATA, SWAPS
from plait.txn.read_pin import pinned
from plait.txn.refusal import Obsolete
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction

_NOTHING = "nothing has expired"
_OTHER_TTL = "the time to live was changed"
_OTHER_LAYOUT = "a repush replaced every file"


@dataclass(frozen=True, slots=True)
class ExpiryTask(Plain):
    """Files of a partition that have expired, or in which rows may have."""

    KEYS = "rows bytes sources"

    partition: Partition
    sources: tuple[str, ...]
    rows: int
    """Rows that are visible in them."""
    bytes: int

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        place = {"partition": list(self.partition), "place": partition_path(self.partition)}
        return {**place, "files": len(self.sources), **Plain.to_dict(self)}


@dataclass(frozen=True, slots=True)
class ExpiryPlan(Plain):
    """What an expiry would take away at a version."""

    version: int
    ttl: Ttl | None
    """The time to live; None if the table's rows never expire."""
    now_ms: int
    """The time by the store's clock."""
    limit: int | None
    """Values of the column below it have expired, dates as days and timestamps as microseconds
    since 1970; or the newest version whose files have. None: nothing has expired."""
    tasks: tuple[ExpiryTask, ...]
    left: tuple[Partition, ...]
    """Partitions that are left to the next run, because a writer is at work there."""
    named: bool = False
    """Whether the caller named the time to live; otherwise it is that of the table."""


@dataclass(frozen=True, slots=True)
class ExpiryReport(Plain):
    """The result of an expiry."""

    KEYS = "plan commits rows_deleted files_removed"

    plan: ExpiryPlan
    commits: tuple[CommitResult, ...]

    @property
    def rows_deleted(self) -> int:
        """Rows that are not visible any more."""
        return sum(each.stats.rows_deleted for each in self.commits)

    @property
    def files_removed(self) -> int:
        """Files that no reader needs from now on."""
        return sum(each.stats.files_removed for each in self.commits)


def plan_expiry(handle: TableHandle, named: Ttl | None = None) -> ExpiryPlan:
    """Plan by a time to live and the store's clock; write nothing.

    Args:
        handle: the table.
        named: the time to live; by default that of the table.

    Raises:
        ClockUnavailableError: the store reports no time.
        SchemaMismatchError: the table has no such column, or not any more.
        OptionError: the column tells no time, or the table has sinks that would keep the rows.
    """
    with pinned(handle, lambda state: _plan(handle, state, named)) as plan:
        return plan


def _plan(handle: TableHandle, state: TableState, named: Ttl | None) -> ExpiryPlan:
    ttl, now_ms = state.table.ttl, handle.store.now_ms()
    if named is not None:
        require_no_replicas(state.table, "an expiry")
        ttl = fitting_ttl(named, state.table.spec)
    if ttl is None:
        return ExpiryPlan(state.version, None, now_ms, None, (), ())
    limit = limit_of(handle, state, ttl, now_ms)
    found = () if limit is None else tuple(_tasks(find_candidates(handle, state, ttl, limit)))
    busy = _busy(handle, state, now_ms) if found else frozenset[Partition]()
    tasks = tuple(task for task in found if task.partition not in busy)
    left = tuple(task.partition for task in found if task.partition in busy)
    return ExpiryPlan(state.version, ttl, now_ms, limit, tasks, left, named is not None)


def expire(handle: TableHandle, plan: ExpiryPlan) -> ExpiryReport:
    """Execute a plan: remove partitions in one commit, or hide rows of about a task's size in each.

    Nothing is taken away that has not expired by the plan's time. If it is killed, what it has
    committed stands, and the next one goes on.

    Raises:
        RolledBackError: it was taken for dead.
        CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        CommitOutcomeUnknownError: the store does not say; nothing was deleted.
    """
    if not plan.tasks:
        return ExpiryReport(plan, ())
    tasks = plan.tasks
    sizes = [task.bytes for task in tasks]
    size = handle.cache.known().table.options.size("services.task.size")
    whole = plan.ttl is not None and plan.ttl.unit == PARTITION
    spans = [(0, len(tasks))] if whole else list(shares(sizes, size))
    results = (_expire(handle, plan, tasks[low:high]) for low, high in spans)
    return ExpiryReport(plan, tuple(result for result in results if result is not None))


def _tasks(files: pa.Table) -> Iterator[ExpiryTask]:
    """Divide files by their partitions."""
    by_partition: dict[Partition, list[LiveFile]] = {}
    for file in live_files(files):
        by_partition.setdefault(file.partition, []).append(file)
    for partition, each in sorted(by_partition.items(), key=str):
        paths = tuple(file.path for file in each)
        rows = sum(file.live_rows for file in each)
        yield ExpiryTask(partition, paths, rows, sum(file.size_bytes for file in each))


def _busy(handle: TableHandle, state: TableState, now_ms: int) -> frozenset[Partition]:
    """Return the partitions in which a living writer would have to do work again.

    One that hides rows by their places follows, and loses nothing by an expiry of rows.
    """
    table, cow = state.table, state.table.spec.layout.table_type == COW
    if table.ttl is not None and table.ttl.unit != PARTITION and not cow:
        return frozenset()
    default_s = table.options.seconds("heartbeat.timeout")
    writers = (each for each in load_pending(handle.store) if each.operation in DATA)
    living = (each for each in writers if is_alive(handle, each, now_ms, default_s))
    return frozenset(partition for each in living for partition in each.partitions)


def _expire(
    handle: TableHandle, plan: ExpiryPlan, tasks: Sequence[ExpiryTask]
) -> CommitResult | None:
    """Publish one decision; None if nothing is left to do."""
    txn = OptimisticTransaction.begin(handle, WriteRequest(Operation.EXPIRE))

    def commit() -> CommitResult:
        ttl, limit = plan.ttl, _limit(plan, txn.base)
        if ttl is None or limit is None or not _stands(plan, txn.base):
            txn.abort(_OTHER_TTL, wrote=False)
            raise Obsolete(_OTHER_TTL)
        expired = find_expired(
            handle, txn.base, ttl, limit, planned=_planned(tasks), check_alive=txn.check_alive
        )
        carrier = HideExpired(txn.mask_files(), plan, ttl, expired)
        status = carrier.draft(txn.base)
        if not status.changes.touched.num_rows:
            txn.abort(_NOTHING, wrote=False)
            raise Obsolete(_NOTHING)
        return txn.commit(status, Scope(), None, carrier=carrier)

    try:
        return txn.commit_or_abort(commit, lambda: True)
    except Obsolete:
        return None


def _stands(plan: ExpiryPlan, state: TableState) -> bool:
    """Tell whether a plan still goes by what the table says; raise OptionError for new sinks."""
    if plan.named:
        require_no_replicas(state.table, "an expiry")
        return True
    return state.table.ttl == plan.ttl


def _limit(plan: ExpiryPlan, base: TableState) -> int | None:
    """Return the limit of a plan, in the type that the column has now: a restore may change it.

    Raises:
        OptionError, SchemaMismatchError: the column is gone, or tells no time any more.
    """
    if plan.ttl is None or plan.limit is None or not plan.ttl.by_column:
        return plan.limit
    spec = base.table.spec
    ttl = fitting_ttl(plan.ttl, spec)
    return ttl.cutoff(plan.now_ms, spec.schema.arrow.field(ttl.by).type)


def _planned(tasks: Sequence[ExpiryTask]) -> Callable[[LiveFile], bool]:
    """Return what tells whether a file is to be looked at."""
    paths = frozenset(path for task in tasks for path in task.sources)
    return lambda file: file.path in paths


@dataclass(frozen=True, slots=True)
class HideExpired:
    """Carries an expiry: what it takes away is drafted from each head alone."""

    masks: MaskFiles
    plan: ExpiryPlan
    ttl: Ttl
    expired: Expired

    def carry(
        self,
        staged: WriteStatus,  # noqa: ARG002 - the head tells all
        head: TableState,
        services: Sequence[Decision],
    ) -> WriteStatus:
        """Draft what has expired on a newer head; see ``Carrier``."""
        if not _stands(self.plan, head):
            raise Obsolete(_OTHER_TTL)
        if any(each.operation in SWAPS for each in services):
            raise Obsolete(_OTHER_LAYOUT)
        status = self.draft(head)
        if not status.changes.touched.num_rows:
            raise Obsolete(_NOTHING)
        return status

    def draft(self, head: TableState) -> WriteStatus:
        """Return what to publish on a head: files that go, and masks of others."""
        removed: list[str] = []
        masks: dict[str, Positions] = {}
        touched: dict[BucketId, None] = {}
        rows = 0
        for file, gone in self._found(head):
            mask = None if gone is None else union(load_mask(self._store, file), gone)
            if mask is None or len(mask) == file.rows:
                removed.append(file.path)
                rows += file.live_rows
            elif len(mask) > file.masked:
                masks[file.path] = mask
                rows += len(mask) - file.masked
            else:
                continue  # another expiry was here
            touched[file.partition, file.bucket] = None
        partition = next(iter(touched), ((), 0))[0]
        changes = Changes(
            removed=pa.table({"path": removed}, schema=PATHS),
            masked=self.masks.write(partition, masks),
            touched=touched_whole(touched, KEYS_ALL if head.table.spec.keyed else KEYS_NONE),
        )
        changes = replace(changes, garbage=self.masks.garbage(Changes(), changes))
        return WriteStatus(changes, WriteStats(rows_deleted=rows, files_removed=len(removed)))

    def _found(self, head: TableState) -> Iterator[tuple[LiveFile, Positions | None]]:
        """Return the live files with their expired rows; None: all rows."""
        places = self.expired.partitions
        loaded = head.snapshot(self._store, file_filter=filter_partitions(places)).files
        files = [each for each in live_files(loaded) if each.partition in places]
        kept: set[Partition] = set()
        if self.ttl.unit == PARTITION and not self.expired.by_value:  # all of it, or nothing
            kept = {each.partition for each in files if each.path not in self.expired.rows}
        for file in files:
            if file.partition in kept:
                continue
            if self.expired.by_value:
                yield file, None
            elif file.path in self.expired.rows:
                yield file, self.expired.rows[file.path]

    @property
    def _store(self) -> Store:
        return self.masks.handle.store
