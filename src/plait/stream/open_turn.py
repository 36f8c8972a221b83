"""Undecided turns: their instants, and the reports of the writers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from plait.errors import OffsetGapError
from plait.model.changes import Digest, WriteStats, WriteStatus
from plait.model.decision import Span
from plait.model.plan import TableSpec
from plait.state.state import TableState
from plait.stream.messages import Offsets, Report, Turn
from plait.stream.participant import status_of
from plait.timeline.pending import PendingInstant
from plait.txn.begin import request_instant
from plait.txn.heartbeat import Heartbeat
from plait.txn.recovery import abandon
from plait.txn.table_handle import TableHandle
from plait.write.group_commit import Gathered


@dataclass(slots=True)
class OpenTurn:
    """A turn, its instant, and the reports that have come."""

    turn: Turn
    spec: TableSpec
    heartbeat: Heartbeat
    reports: dict[str, Report] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, handle: TableHandle, turn: Turn, record: PendingInstant, state: TableState
    ) -> OpenTurn:
        """Request the instant of a turn that no writer knows yet.

        Raises:
            SingleWriterError: the table is for one writer, and another is live.
        """
        request_instant(handle.store, record, state.table.contract, lambda: handle)
        interval_s = state.table.options.seconds("heartbeat.interval")
        beat = Heartbeat(handle, turn.instant, interval_s=interval_s, since=record.v0)
        return cls(turn, state.table.spec, beat)

    @property
    def complete(self) -> bool:
        """Whether every writer that takes part has reported."""
        return all(name in self.reports for name in self.turn.lives)

    def ordered(self) -> list[Report]:
        """Return the reports in a fixed order."""
        return [self.reports[name] for name in sorted(self.reports)]

    def roll_back(self, handle: TableHandle, reason: str) -> None:
        """End the instant by a decision, then delete its files; what fails is left to recovery."""
        self.heartbeat.stop()
        abandon(handle, self.turn.instant, reason)


def follow(offsets: Offsets, reports: Iterable[Report]) -> dict[str, str]:
    """Follow the offsets of every source through reports, oldest first.

    Raises:
        OffsetGapError: a writer continued from another offset.
    """
    reached = dict(offsets)
    for report in reports:
        for source, start in report.starts.items():
            expected = reached.get(source, "")
            if start != expected:
                message = (
                    f"writer {report.writer!r} read source {source!r} from {start!r}, "
                    f"but {expected!r} is next"
                )
                hint = "use each source in one writer, and continue from Participant.offset"
                raise OffsetGapError(message, hint=hint, expected=expected, given=start)
        reached.update(report.ends)
    return reached


def spans_of(offsets: Offsets, reports: Sequence[Report], ends: Offsets) -> tuple[Span, ...]:
    """Return what the sources of some reports gave, from the offsets in the table on."""
    sources = sorted({source for report in reports for source in report.starts})
    return tuple(Span(source, offsets.get(source, ""), ends[source]) for source in sources)


def digest_of(reports: Iterable[Report]) -> Digest:
    """Return the digest of the rows of some reports together."""
    return sum((Digest(report.rows, report.hash) for report in reports), Digest())


def gathered_of(carried: Sequence[OpenTurn], last: OpenTurn) -> Gathered:
    """Take final files as they are; files of earlier instants only as rows to write again."""
    foreign: list[str] = []
    for each in carried:
        for report in each.ordered():
            foreign += [*report.runs, *status_of(report).changes.added["path"].to_pylist()]
    reports = last.ordered()
    flushed = (WriteStatus(stats=WriteStats(flushes=r.flushes)) for r in reports if r.runs)
    statuses = (status_of(report) for report in reports if report.status)
    return Gathered(
        last.spec,
        (*statuses, *flushed),
        tuple(run for report in reports for run in report.runs),
        tuple(foreign),
    )
