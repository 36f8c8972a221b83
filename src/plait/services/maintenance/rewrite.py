"""Rewrite: put the rows of some files into others while everyone writes (RFC 0018).

A rewrite copies the rows that are visible at its base, once. On each newer head it hides the copies
of rows that are gone there, no matter who removed them, and publishes. So it never starts again,
no client waits for it, and no writer fails because of it (INV-14, INV-15).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.engine import ArrowEngine
from plait.engine import Engine, engine_within
from plait.files.data_file import LiveFile
from plait.files.deletion import load_mask
from plait.files.roaring import Positions
from plait.files.row_map import load_row_map
from plait.model.bucket import Partition
from plait.model.changes import PATHS, Changes, WriteStatus
from plait.model.decision import CommitResult, Decision, Scope
from plait.model.instant import Operation
from plait.model.plain import Plain
from plait.model.request import FileSet, WriteRequest
from plait.read.plan import filter_partitions
from plait.state.state import TableState
from plait.txn.carry import MaskFiles, Row, count_rows, divided, find_live, restated, rows_of_group
from plait.txn.conflict import touched_buckets
from plait.txn.refusal import Obsolete
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction
from plait.write.request import plan_of

_log = logging.getLogger(__name__)

_NO_SOURCE = "its files are gone"
_OTHER_LAYOUT = "the table has another layout now"
_OTHER_SCHEMA = "a restore gave the table an older schema"
_ALL_GONE = "others changed every row that it copied"
_NOTHING: Positions = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Rewritten(Plain):
    """What was rewritten."""

    KEYS = "commits rows_moved bytes_read bytes_written files_removed files_added"

    commits: tuple[CommitResult, ...]
    """One for each share of the plan in which something was left to do."""
    bytes_read: int
    """Size on storage of the files that were copied."""

    @property
    def rows_moved(self) -> int:
        """Rows that were copied."""
        return sum(each.stats.rows_in for each in self.commits)

    @property
    def bytes_written(self) -> int:
        """Return the size of the files that replace them."""
        return sum(each.stats.bytes_written for each in self.commits)

    @property
    def files_removed(self) -> int:
        """Files that no reader needs from now on."""
        return sum(each.stats.files_removed for each in self.commits)

    @property
    def files_added(self) -> int:
        """Files written in their place."""
        return sum(each.stats.files_added for each in self.commits)


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Sharing:
    """Where and how long a service works, if others share the work or other tables wait."""

    busy: Callable[[], frozenset[Partition]] = frozenset
    """Asked before each commit: partitions that are left to others."""
    over: Callable[[], bool] = _never
    """Asked before each commit but the first: whether the rest is left to the next turn."""


ALONE = Sharing()
"""All of the work, whoever else is at it."""


def rewrite_sets(
    handle: TableHandle,
    operation: Operation,
    sets: Sequence[FileSet],
    session: object,
    sharing: Sharing = ALONE,
) -> Rewritten:
    """Rewrite sets of files, in commits of about ``services.task.size`` for each task at work.

    Args:
        handle: the table.
        operation: what it is for.
        sets: the files; what is not there any more is left out, and so is what is named twice.
        session: where the work is done; None: in this process.
        sharing: which sets are left to others, and when to stop.

    Raises:
        OptionError: no engine knows such a session, or it cannot rewrite files.
        TableError: see ``rewrite``.
    """
    here = ArrowEngine(store=handle.store)
    engine = here if session is None else engine_within(session, here)
    share_bytes = handle.cache.known().table.options.size("services.task.size") * engine.width
    left, commits = list(_named_once(sets)), list[CommitResult]()
    total, bytes_read = len(left), 0
    while left and not (commits and sharing.over()):
        if busy := sharing.busy():
            left = [each for each in left if each.bucket[0] not in busy]
        stop = next((stop for _, stop in shares([e.bytes for e in left], share_bytes)), 0)
        share, left = left[:stop], left[stop:]
        result = rewrite(handle, operation, share, engine) if share else None
        if result is not None:
            commits.append(result)
            bytes_read += sum(each.bytes for each in share)
            rest = sum(each.bytes for each in left)
            _log.info(
                "%s: %d of %d places done, %d bytes left",
                *(operation, total - len(left), total, rest),
            )
    return Rewritten(tuple(commits), bytes_read)


def _named_once(sets: Iterable[FileSet]) -> Iterator[FileSet]:
    """Leave out files that an earlier set has: their rows would be copied twice."""
    seen: set[str] = set()
    for each in sets:
        sources = tuple(path for path in dict.fromkeys(each.sources) if path not in seen)
        seen.update(sources)
        if sources:
            yield replace(each, sources=sources)


def shares(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Divide a list into stretches whose sizes add up to at most a limit, or of one entry.

    >>> list(shares([5, 5, 20, 1], 10))
    [(0, 2), (2, 3), (3, 4)]
    """
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > limit:
            yield start, at
            start, total = at, 0
        total += size
    if sizes:
        yield start, len(sizes)


def rewrite(
    handle: TableHandle, operation: Operation, sets: Sequence[FileSet], engine: Engine
) -> CommitResult | None:
    """Rewrite sets of files in one commit; None if nothing was left to do.

    Files that are gone by now are left out. It is safe beside writers, beside the same rewrite in
    another process, and to be killed.

    Raises:
        RolledBackError: it was taken for dead.
        CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        CommitOutcomeUnknownError: the store does not say; nothing was deleted.
    """
    partitions = tuple(dict.fromkeys(each.bucket[0] for each in sets))
    txn = OptimisticTransaction.begin(handle, WriteRequest(operation, partitions=partitions))
    txn.distributed = engine.width > 1

    def commit() -> CommitResult:
        table, store = txn.base.table, handle.store
        plan = plan_of(txn.request, table, store.address, txn.instant)
        snapshot = txn.base.snapshot(store, file_filter=filter_partitions(partitions))
        status = engine.rewrite(plan, snapshot, sets, txn.announce)
        if not status.changes.moved.num_rows:
            txn.abort(_NO_SOURCE, wrote=txn.distributed)
            raise Obsolete(_NO_SOURCE)
        carrier = FollowMasks(txn.mask_files(), txn.base)
        return txn.commit(status, Scope(), None, carrier=carrier)

    try:
        return txn.commit_or_abort(commit, lambda: True)
    except Obsolete:
        return None


@dataclass(frozen=True, slots=True)
class FollowMasks:
    """Carries a rewrite: rows that are gone where it copied from are hidden in its files."""

    masks: MaskFiles
    base: TableState
    """The version whose visible rows were copied."""

    def carry(
        self, staged: WriteStatus, head: TableState, services: Sequence[Decision]
    ) -> WriteStatus:
        """Compute from the head alone what is gone; see ``Carrier``.

        Who took it does not matter: a delete, a merge that replaced the file, another rewrite.
        """
        store, changes = self.masks.handle.store, staged.changes
        if any(each.restored is not None and each.table is not None for each in services):
            raise Obsolete(_OTHER_SCHEMA)  # it may have columns again that were not copied
        if head.table.spec.layout != self.base.table.spec.layout:
            raise Obsolete(_OTHER_LAYOUT)
        buckets, sources = touched_buckets(changes), changes.moved["path"].to_pylist()
        then = find_live(self.base, store, buckets, sources)
        now = find_live(head, store, buckets, sources)
        left: list[int] = []
        hidden: dict[str, Positions] = {}
        for number in changes.moved["group"].unique().to_pylist():
            targets = rows_of_group(changes.placed, number)
            gone = self._gone(rows_of_group(changes.moved, number), targets, then, now)
            if len(gone) < count_rows(targets):
                left.append(number)
                hidden.update(divided(gone, targets))
        if not left:
            raise Obsolete(_ALL_GONE)
        return restated(staged, self._changes(changes, left, hidden, now))

    def _gone(
        self,
        sources: Iterable[Row],
        targets: Sequence[Row],
        then: Mapping[str, LiveFile],
        now: Mapping[str, LiveFile],
    ) -> Positions:
        """Return the new positions of the copied rows of a group that are not visible any more."""
        store, rows, gone = self.masks.handle.store, count_rows(targets), [_NOTHING]
        for source in sources:
            path = str(source["path"])
            if path in now and mask_of(now[path]) == mask_of(then[path]):
                continue
            moved = load_row_map(store, source, target_rows=rows)
            if path not in now:
                gone.append(moved.whole())
                continue
            was, hidden = (load_mask(store, each[path]) for each in (then, now))
            if was is not None and len(np.setdiff1d(was, _NOTHING if hidden is None else hidden)):
                raise Obsolete(f"rows of {path} are visible again")
            gone.append(moved.image(_NOTHING if hidden is None else hidden))
        return np.unique(np.concatenate(gone))

    def _changes(
        self,
        changes: Changes,
        groups: Sequence[int],
        hidden: Mapping[str, Positions],
        now: Mapping[str, LiveFile],
    ) -> Changes:
        """Return the changes of these groups; the files of the others are garbage."""
        numbers = pa.array(groups, pa.int32())
        moved, placed = (
            table.filter(pc.is_in(table["group"], value_set=numbers))
            for table in (changes.moved, changes.placed)
        )
        rows = dict(zip(placed["path"].to_pylist(), placed["rows"].to_pylist(), strict=True))
        empty = {path for path, positions in hidden.items() if len(positions) == rows[path]}
        there = pa.array([path for path in rows if path not in empty], pa.string())
        partial = {path: at for path, at in hidden.items() if path not in empty}
        partition = min(touched_buckets(changes), key=str)[0]
        removed = [path for path in moved["path"].to_pylist() if path in now]
        carried = replace(
            changes,
            added=changes.added.filter(pc.is_in(changes.added["path"], value_set=there)),
            removed=pa.table({"path": removed}, schema=PATHS),
            masked=self.masks.write(partition, partial),
            moved=moved,
            placed=placed,
        )
        return replace(carried, garbage=self.masks.garbage(changes, carried))


def mask_of(file: LiveFile) -> tuple[object, ...]:
    """Return what tells the deletion vector of a live file from any other."""
    return file.masked, file.inline, file.dv_path, file.dv_offset
