"""Undecided turns: their instants, and the reports of the writers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from plait.errors import FormatError, OffsetGapError, StorageError, TableNotFoundError
from plait.model.changes import Digest, WriteStats, WriteStatus
from plait.model.decision import Span, Token
from plait.model.plan import TableSpec
from plait.model.stream import Position
from plait.state.state import TableState
from plait.storage.port import Store
from plait.stream.messages import (
    Offsets,
    Progress,
    Report,
    Turn,
    offsets_text,
    position_offsets,
)
from plait.stream.participant import status_of
from plait.stream.status_file import load_report
from plait.timeline import paths
from plait.timeline.pending import PendingInstant
from plait.txn.heartbeat import Heartbeat
from plait.txn.recovery import abandon
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import request_instant
from plait.write.group_commit import Gathered

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnLoad:
    """What writers hold in a turn."""

    rows: int
    bytes: int
    moved: bool
    """Whether an offset moved, with rows or without."""
    urgent: bool
    """Whether one of them asks for the end of the turn."""


@dataclass(slots=True)
class OpenTurn:
    """A turn, its instant, and the reports that have come."""

    turn: Turn
    spec: TableSpec
    heartbeat: Heartbeat
    reports: dict[str, Report] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    abandoned: bool = False
    """Whether a writer that may have written files under the instant was left out."""

    @classmethod
    def begin(
        cls, handle: TableHandle, turn: Turn, record: PendingInstant, state: TableState
    ) -> OpenTurn:
        """Request the instant of a turn that no writer knows yet.

        Raises:
            SingleWriterError: the table is for one writer, and another is live.
        """
        # The record comes before the first message that names the instant. So every file that a
        # writer stages can be found by recovery, even if this process dies right after the message.
        request_instant(handle.store, record, state.table.contract, lambda: handle)
        interval_s = state.table.options.seconds("heartbeat.interval")
        beat = Heartbeat(handle, turn.instant, interval_s=interval_s, since=record.v0)
        return cls(turn, state.table.spec, beat)

    @property
    def held(self) -> TurnLoad:
        """What its writers hold."""
        every = self.progress.values()
        rows, size = sum(each.rows for each in every), sum(each.bytes for each in every)
        moved, urgent = (any(getattr(each, n) for each in every) for n in ("moved", "urgent"))
        return TurnLoad(rows, size, moved, urgent)

    @property
    def missing(self) -> tuple[str, ...]:
        """The writers that take part and have not reported."""
        return tuple(name for name in self.turn.lives if name not in self.reports)

    @property
    def complete(self) -> bool:
        """Whether every writer that takes part has reported."""
        return not self.missing

    @property
    def failure(self) -> str | None:
        """Why it can never be committed; None if nothing is known that speaks against it."""
        for report in self.ordered():
            if report.error:
                return f"writer {report.writer!r} failed: {report.error}"
        if self.heartbeat.watch.ended_by is None:
            return None
        return f"instant {self.turn.instant} was rolled back because it seemed dead"

    def ordered(self) -> list[Report]:
        """Return the reports in a fixed order."""
        return [self.reports[name] for name in sorted(self.reports)]

    def leave_out(self, writer: str) -> None:
        """Go on without a writer, and without what it reported."""
        self.abandoned = self.abandoned or writer in self.turn.lives
        self.reports.pop(writer, None)
        self.progress.pop(writer, None)
        lives = {name: life for name, life in self.turn.lives.items() if name != writer}
        self.turn = replace(self.turn, lives=lives)

    def roll_back(self, handle: TableHandle, reason: str) -> None:
        """End the instant by a decision, then delete its files; what fails is left to recovery.

        Nothing is decided where the table is not there any more, or another one is in its place.
        """
        self.heartbeat.stop()
        try:
            handle.require_same_table()
        except (FormatError, StorageError, TableNotFoundError):
            _log.warning("turn %s is left undecided", self.turn.instant, exc_info=True)
            return
        abandon(handle, self.turn.instant, reason)


def end_idle(handle: TableHandle, turns: Iterable[OpenTurn]) -> None:
    """End instants without rows: where nobody can have written a file, without a decision."""
    doomed: list[str] = []
    for each in turns:
        # A writer that was left out may have staged files that no report names. Only a rollback
        # lets recovery and cleans find them (INV-06).
        if each.abandoned:
            each.roll_back(handle, "its writers reported no rows")
            continue
        each.heartbeat.stop()
        doomed += [paths.requested(each.turn.instant), paths.heartbeat(each.turn.instant)]
    handle.store.delete(doomed)


def follow(offsets: Offsets, reports: Iterable[Report]) -> dict[str, str]:
    """Follow the offsets of every source through reports, oldest first.

    Raises:
        OffsetGapError: a writer continued from another offset.
    """
    reached = dict(offsets)
    for report in reports:
        for source, start in report.starts.items():
            expected = reached.get(source, "")
            # Each source continues where its last report ended. A gap would lose rows and an
            # overlap would write rows twice, so either one fails the whole epoch (INV-09).
            if start != expected:
                message = (
                    f"writer {report.writer!r} read source {source!r} from {start!r}, "
                    f"but {expected!r} is next"
                )
                hint = "use each source in one writer, and continue from Participant.offset"
                raise OffsetGapError(message, hint=hint, expected=expected, given=start)
        reached.update(report.ends)
    return reached


def token_of(application: str, position: Position | None, reports: Sequence[Report]) -> Token:
    """Return the token of the epoch that some reports, oldest first, are.

    Raises:
        OffsetGapError: a writer continued from another offset.
    """
    before = position_offsets(application, position)
    ends = follow(before, reports)
    epoch, start = (0, "") if position is None else (position.epoch + 1, position.end)
    spans = spans_of(before, reports, ends)
    return Token(application, epoch, start, offsets_text(ends), spans, digest_of(reports))


def spans_of(offsets: Offsets, reports: Sequence[Report], ends: Offsets) -> tuple[Span, ...]:
    """Return what the sources of some reports gave, from the offsets in the table on."""
    sources = sorted({source for report in reports for source in report.starts})
    return tuple(Span(source, offsets.get(source, ""), ends[source]) for source in sources)


def digest_of(reports: Iterable[Report]) -> Digest:
    """Return the digest of the rows of some reports together."""
    return sum((Digest(report.rows, report.hash) for report in reports), Digest())


def gathered_of(store: Store, carried: Sequence[OpenTurn], last: OpenTurn) -> Gathered:
    """Take final files as they are; files of earlier instants only as rows to write again.

    Raises:
        CorruptMetadataError: the file of a report is missing or damaged.
        StorageError: it cannot be read now.
    """
    foreign: list[str] = []
    for each in carried:
        for report, status in _listed(store, each):
            # A decision may only name files of its own instant (INV-06). So rows of earlier turns
            # are read from their files and written again.
            foreign += [*report.runs, *status.changes.added["path"].to_pylist()]
    listed = _listed(store, last)
    flushed = (WriteStatus(stats=WriteStats(flushes=r.flushes)) for r, _ in listed if r.runs)
    statuses = (status for report, status in listed if report.status)
    return Gathered(
        last.spec,
        (*statuses, *flushed),
        tuple(run for report, _ in listed for run in report.runs),
        tuple(foreign),
        tuple(report.file for report, _ in listed if report.file),
        retried=last.abandoned,
    )


def _listed(store: Store, turn: OpenTurn) -> list[tuple[Report, WriteStatus]]:
    """Return the reports of a turn with what they list, which is checked to be their own."""
    whole_ones = [load_report(store, report, turn.turn.instant) for report in turn.ordered()]
    return [(report, status_of(report, turn.turn)) for report in whole_ones]
