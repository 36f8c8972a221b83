"""Turns that are not decided: their instants, and what writers have reported of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from plait.errors import OffsetGapError, RolledBackError, StorageError
from plait.model.changes import WriteStats, WriteStatus
from plait.model.instant import Action, Operation, State
from plait.model.plan import TableSpec
from plait.state.state import State as TableState
from plait.stream.messages import Offsets, Report, Turn
from plait.stream.participant import status_of
from plait.timeline.pending import PendingInstant, write_requested
from plait.txn.heartbeat import Heartbeat
from plait.txn.site import Site, client
from plait.txn.transaction import AlreadyCommitted, Request, Transaction
from plait.write.gather import Gathered


@dataclass(slots=True)
class OpenTurn:
    """A turn, its instant, and the reports that have come."""

    turn: Turn
    spec: TableSpec
    heartbeat: Heartbeat
    reports: dict[str, Report] = field(default_factory=dict)

    @classmethod
    def begin(cls, site: Site, turn: Turn, state: TableState) -> OpenTurn:
        """Request the instant of a turn that nobody has heard of yet."""
        options = state.table.options
        record = PendingInstant(
            turn.instant,
            State.REQUESTED,
            Operation(turn.operation),
            state.version,
            (),
            host=str(client()["host"]),
            pid=int(str(client()["pid"])),
            started_ms=site.store.now_ms(),
            timeout_s=options.seconds("heartbeat.timeout"),
        )
        write_requested(site.store, record)
        interval_s = options.seconds("heartbeat.interval")
        beat = Heartbeat(site, turn.instant, interval_s=interval_s, since=state.version)
        return cls(turn, state.table.spec, beat)

    @property
    def complete(self) -> bool:
        """Whether every writer that takes part has reported."""
        return all(name in self.reports for name in self.turn.lives)

    def ordered(self) -> list[Report]:
        """Give the reports in a fixed order."""
        return [self.reports[name] for name in sorted(self.reports)]

    def roll_back(self, site: Site, reason: str) -> None:
        """End the instant by a decision, then delete its files; what fails is left to recovery."""
        self.heartbeat.stop()
        request = Request(Operation(self.turn.operation), Action.COMMIT)
        with contextlib.suppress(RolledBackError, AlreadyCommitted, StorageError):
            Transaction.resume(site, request, self.turn.instant).abort(reason)


def follow(offsets: Offsets, reports: Iterable[Report]) -> dict[str, str]:
    """Follow the offsets of every source through reports, oldest first.

    Raises:
        OffsetGapError: a writer went on from somewhere else.
    """
    found = dict(offsets)
    for report in reports:
        for source, start in report.starts.items():
            expected = found.get(source, "")
            if start != expected:
                message = (
                    f"writer {report.writer!r} has source {source!r} from {start!r} on, "
                    f"and {expected!r} is next"
                )
                hint = "one source belongs to one writer; it reads on from Participant.offset"
                raise OffsetGapError(message, hint=hint, expected=expected, given=start)
        found.update(report.ends)
    return found


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
