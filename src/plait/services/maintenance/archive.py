"""Archive: old decisions move from their slots into a few files, and their slots are emptied.

1. Write the files, under a pending record, and read them back. 2. Publish a decision that names
them. 3. Empty the slots, the oldest first. Their names stay: a writer that slept would take a
missing slot for the head, and win a version that was decided long ago (INV-01).

Small files are merged into the new one; the decision condemns them, and a clean deletes them. If
it is killed before 2, recovery rolls it back; after 2, the next archive empties the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from plait.definition.features import ARCHIVE
from plait.errors import CorruptMetadataError, StorageError, TableError, TableNotFoundError
from plait.model.changes import PATHS, Changes
from plait.model.decision import ArchiveFile, Decision
from plait.model.document import unseal
from plait.model.instant import Action, Instant, Operation, Outcome
from plait.model.plain import Plain
from plait.state.checkpoint import list_checkpoints, load_checkpoint
from plait.state.state import TableState, require_usable
from plait.timeline import paths
from plait.timeline.archive import BYTES_MAX, load_archive, write_archive
from plait.txn.heartbeat import Heartbeat
from plait.txn.refusal import rolled_back
from plait.txn.rollback import find_outcome
from plait.txn.service import publish_service, write_record
from plait.txn.table_handle import TableHandle, client, require_slots

_log = logging.getLogger(__name__)

_CHECKPOINTS: Final = 2
"""Number of checkpoints that must cover a decision before it moves, so that one may get lost."""
_FULL: Final = BYTES_MAX // 2
"""A file with more bytes of decisions is never merged."""
_DEAD: Final = "it was taken for dead"
_DUE: Final = 10
"""An archive falls due when one such part of ``archive.keep`` would move."""
_DECISIONS_MAX: Final = 10_000
"""Number of decisions that one archive moves at most: what is read again if it is killed."""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The plan of an archive: what would move at a version."""

    version: int
    first: int
    """The oldest version whose decision moves."""
    last: int
    """The newest one; less than ``first`` if none moves."""
    kept: tuple[ArchiveFile, ...]
    """Files of the archive that stay as they are."""
    merged: tuple[ArchiveFile, ...]
    """Files that the new one takes in."""
    unfinished: bool
    """Whether slots of an earlier archive are still to be emptied."""
    due: bool
    """Whether it is worth a decision of its own, by ``archive.keep``."""

    @property
    def decisions(self) -> int:
        """How many decisions move."""
        return max(0, self.last - self.first + 1)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "version": self.version,
            "first": self.first,
            "last": self.last,
            "decisions": self.decisions,
            "merge": [file.path for file in self.merged],
            "unfinished": self.unfinished,
            "due": self.due,
        }


@dataclass(frozen=True, slots=True)
class ArchiveReport(Plain):
    """The result of an archive."""

    plan: ArchivePlan
    version: int | None
    """The version of its decision; None if nothing moved."""
    files: tuple[str, ...]
    """The files that it wrote."""
    emptied: int
    """How many slots it emptied, those of an earlier archive included."""


def plan_archive(handle: TableHandle) -> ArchivePlan:
    """Plan an archive of what two checkpoints cover; write nothing."""
    state = handle.cache.refresh()
    keep = state.table.options.count("archive.keep")
    first, last = state.archive.last + 1, state.version - keep
    if last >= first:
        last = min(last, first + _DECISIONS_MAX - 1, _covered(handle))
    rows = max(0, last - first + 1)
    merged = _mergeable(state.archive.files, rows)
    kept = state.archive.files[: len(state.archive.files) - len(merged)]
    unfinished = bool(state.archive.files) and not _is_empty(handle, state.archive.last)
    due = rows >= max(1, keep // _DUE)
    return ArchivePlan(state.version, first, last, kept, merged, unfinished, due)


def archive(handle: TableHandle, plan: ArchivePlan | None = None) -> ArchiveReport:
    """Execute a plan, or a new one: move old decisions, then empty their slots.

    It is safe beside writers, beside another archive, and to be killed: the next one continues. If
    another archive was first, nothing moves.

    Raises:
        ContractError: this client was opened under another contract; nothing was written.
        FeatureError: the table may not use an archive.
        CorruptMetadataError: a slot is damaged; nothing moved.
        RolledBackError: it was taken for dead; nothing moved.
        CommitOutcomeUnknownError: the store does not say; no slot was emptied.
    """
    require_slots(handle)
    state = handle.cache.refresh()
    handle.require_contract(state.table.contract)
    require_usable(state, (ARCHIVE,))
    planned = plan or plan_archive(handle)
    emptied = empty_slots(handle) if planned.unfinished else 0
    decision, files = _move(handle, planned) if planned.decisions else (None, ())
    if decision is None:
        handle.require_same_table()
        return ArchiveReport(planned, None, (), emptied)
    emptied += empty_slots(handle)
    return ArchiveReport(planned, decision.version, tuple(f.path for f in files), emptied)


def empty_slots(handle: TableHandle) -> int:
    """Empty the slots of archived decisions, the oldest first; return how many had bytes.

    Each file is read first: what is in no whole file stays in its slot.

    Raises:
        CorruptMetadataError: a file of the archive is damaged; its slots stay.
    """
    archived = handle.cache.known().archive
    start = _first_full(handle, archived.last)
    handle.ports.observer.phase("empty", slots=archived.last + 1 - start)
    while True:
        try:
            for file in archived.files:
                _empty(handle, file, start)
        except CorruptMetadataError:
            newer = handle.cache.refresh().archive
            if newer == archived:
                raise
            archived = newer  # another archive merged the file, and a clean deleted it
        else:
            return archived.last + 1 - start


def _empty(handle: TableHandle, file: ArchiveFile, start: int) -> None:
    """Empty the slots of a file from a version on.

    Only a slot that has what the file has is emptied. Another one is damaged, and is emptied too;
    but not if the table was deleted and made again meanwhile, when it is of another table.
    """
    if file.last < start:
        return
    store = handle.store
    bodies = load_archive(store, file.path, sha256=file.sha256)
    for version in range(max(start, file.first), file.last + 1):
        slot, body = paths.slot(version), bodies[version - file.first]
        if store.capabilities.compare_and_swap:
            emptied = store.replace(slot, b"", expected=body)
        elif emptied := store.find(slot) == body:
            store.put(slot, b"")
        if not emptied and store.find(slot) != b"":
            handle.require_same_table()
            store.put(slot, b"")


def _first_full(handle: TableHandle, archived: int) -> int:
    """Return the oldest version whose slot has bytes, at most the one after the archive's last.

    Slots are emptied in the order of versions, so few of them are looked at.
    """
    low, high = 0, archived + 1
    while low < high:
        middle = (low + high) // 2
        if _is_empty(handle, middle):
            low = middle + 1
        else:
            high = middle
    return low


def _is_empty(handle: TableHandle, version: int) -> bool:
    return handle.cache.timeline.find_slot(version) == b""


def _covered(handle: TableHandle) -> int:
    """Return the newest version that both kept checkpoints cover; -1 if there are not two."""
    kept = list_checkpoints(handle.store)[-_CHECKPOINTS:]
    try:
        whole = [load_checkpoint(handle.store, version) for version in kept]
    except CorruptMetadataError:
        return -1
    return kept[0] if len(kept) == _CHECKPOINTS and None not in whole else -1


def _mergeable(files: Sequence[ArchiveFile], rows: int) -> tuple[ArchiveFile, ...]:
    """Return the newest files of which each has no more decisions than come after it."""
    merged: list[ArchiveFile] = []
    for file in reversed(files):
        if not rows or file.rows > rows or file.bytes > _FULL:
            break
        merged.insert(0, file)
        rows += file.rows
    return tuple(merged)


def _move(handle: TableHandle, plan: ArchivePlan) -> tuple[Decision | None, Sequence[ArchiveFile]]:
    """Move decisions in one instant; return its decision, and the files that it wrote.

    There is none if another archive was first.
    """
    state = handle.cache.known()
    instant = handle.new_instant(state)
    record = write_record(handle, state, instant, Operation.ARCHIVE)
    interval_s = state.table.options.seconds("heartbeat.interval")
    heartbeat = Heartbeat(handle, instant, interval_s=interval_s, since=state.version)
    mover = _Mover(handle, plan, instant, heartbeat, state.version)
    try:
        decision = mover.run()
    except TableError as error:
        unsure = mover.tried or isinstance(error, StorageError)
        if not unsure or isinstance(error, TableNotFoundError):  # else recovery finds the record
            _remove(handle, [*mover.names, record], heartbeat, instant)
        raise
    finally:
        heartbeat.stop()
    doomed = mover.names if decision is None else []
    _remove(handle, [*doomed, record], heartbeat, instant)
    return decision, mover.files


def _remove(
    handle: TableHandle, doomed: Sequence[str], heartbeat: Heartbeat, instant: Instant
) -> None:
    """Delete files that no decision will name, and records after them."""
    beats = [paths.heartbeat(instant)] if heartbeat.beaten else []
    with contextlib.suppress(StorageError):  # recovery finds the record
        handle.store.delete([*beats, *doomed])


class _BeatenError(Exception):
    """Another archive was first."""


@dataclass(slots=True)
class _Mover:
    """Moves the decisions of a plan, as one instant."""

    handle: TableHandle
    plan: ArchivePlan
    instant: Instant
    heartbeat: Heartbeat
    v0: int
    names: list[str] = field(default_factory=list)
    """The files that it may have written."""
    files: list[ArchiveFile] = field(default_factory=list)
    """Files that were written and read back."""
    tried: bool = False
    """Whether its decision may have been published."""

    def run(self) -> Decision | None:
        """Write the files and publish their decision; None if another archive was first."""
        try:
            kept = self._write()
        except _BeatenError:
            return None
        return self._publish(kept)

    def _write(self) -> tuple[ArchiveFile, ...]:
        """Write the new files; return the older ones that stay."""
        kept, older = self._take_in()
        first = kept[-1].last + 1 if kept else 0
        bodies = _checked(itertools.chain(older, self._slots()), first)
        for start, share in _shares(bodies, first):
            self.names.append(paths.archive(start, start + len(share) - 1, self.instant))
            self.files.append(write_archive(self.handle.store, self.instant, start, share))
        return kept

    def _publish(self, kept: tuple[ArchiveFile, ...]) -> Decision | None:
        instant = self.instant
        before = (*self.plan.kept, *self.plan.merged)
        garbage = [file.path for file in before if file not in kept]

        def draft(state: TableState) -> Decision | None:
            if find_outcome(self.handle, state, instant, self.v0) is Outcome.ROLLED_BACK:
                self.tried = False
                raise rolled_back(instant, None, _DEAD)
            if state.archive.files != before:
                return None
            self.tried = True
            time_ms = self.handle.new_instant(state).time_ms
            return Decision(
                instant=Instant.at(time_ms, instant.nonce),
                action=Action.ARCHIVE,
                operation=Operation.ARCHIVE,
                base=state.version,
                changes=Changes(garbage=pa.table({"path": garbage}, schema=PATHS)),
                archived=(*kept, *self.files),
                client=client(),
            )

        return publish_service(self.handle, draft)

    def _take_in(self) -> tuple[tuple[ArchiveFile, ...], list[bytes]]:
        """Return the older files that stay, and the decisions of those that are merged.

        A damaged file stays: merging only saves work, and `verify` reports the damage.
        """
        bodies: list[bytes] = []
        merged = self.plan.merged
        for number in reversed(range(len(merged))):
            file = merged[number]
            try:
                loaded = load_archive(self.handle.store, file.path, sha256=file.sha256)
            except CorruptMetadataError as error:
                _log.warning("%s is not merged: %s", file.path, error)
                return (*self.plan.kept, *merged[: number + 1]), bodies
            bodies = [*loaded, *bodies]
        return self.plan.kept, bodies

    def _slots(self) -> Iterator[bytes]:
        """Read the slots that move, as long as nobody has taken this archive for dead."""
        for version in range(self.plan.first, self.plan.last + 1):
            self.handle.ports.background.tend()
            ended_by = self.heartbeat.watch.ended_by
            if ended_by is not None:
                raise rolled_back(self.instant, ended_by.version, _DEAD)
            body = self.handle.cache.timeline.find_slot(version)
            if not body:
                raise _BeatenError
            yield body


def _checked(bodies: Iterable[bytes], first: int) -> Iterator[bytes]:
    """Return the decisions of consecutive versions, as far as each is whole and continues the last.

    Raises:
        CorruptMetadataError: one is damaged.
    """
    before: str | None = None
    for version, body in enumerate(bodies, first):
        path = paths.slot(version)
        checksum, document = unseal(body, path=path)
        if document.get("version") != version:
            raise CorruptMetadataError(f"{path} contains another decision", path=path)
        if before is not None and document.get("previous") != before:
            message = f"{path} does not continue {paths.slot(version - 1)}: one was replaced"
            raise CorruptMetadataError(message, path=path)
        before = checksum
        yield body


def _shares(bodies: Iterable[bytes], first: int) -> Iterator[tuple[int, list[bytes]]]:
    """Divide decisions into those of one file each, with the first version of each."""
    share: list[bytes] = []
    total = 0
    for body in bodies:
        if share and total + len(body) > BYTES_MAX:
            yield first, share
            first, share, total = first + len(share), [], 0
        share.append(body)
        total += len(body)
    if share:
        yield first, share
