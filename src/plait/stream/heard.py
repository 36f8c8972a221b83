"""What a writer has heard of coordinators: a transport may repeat anything, at any time."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from plait.model.instant import Instant
from plait.stream.messages import TURNS_MAX, Acknowledgement, Offsets, Report, Turn


@dataclass(slots=True)
class Heard:
    """Turns and acknowledgements that came; what is older than they are is passed over."""

    begun: dict[str, int] = field(default_factory=dict)
    """By coordinator: the newest turn that this writer began."""
    last: tuple[str, int] = ("", -1)
    """The coordinator and the number of the turn that came last; a hello answers it."""
    committed: Offsets = field(default_factory=dict)
    """How far the table is."""
    _names: dict[Instant, tuple[str, int]] = field(default_factory=dict)
    """By instant, the coordinator and the number of the newest turns that were heard."""
    _told_at: tuple[str, int] = ("", -1)
    """The coordinator that told it, and the turn up to which it had decided."""

    def newest(self, session: str) -> int:
        """Return the newest turn of a coordinator that was begun; -1 if there is none."""
        return self.begun.get(session, -1)

    def contradicts(self, turn: Turn) -> bool:
        """Whether a turn has the instant of another one, or another instant than it had before.

        A coordinator requests an instant for each turn, so one of the two is nobody's.
        """
        told = turn.session, turn.number
        known = self._names.get(turn.instant)
        return known != told if known is not None else told in self._names.values()

    def note(self, turn: Turn) -> None:
        """Note a turn that a coordinator sent; a hello answers the last one."""
        self.last = turn.session, turn.number
        self._names[turn.instant] = self.last
        if len(self._names) > TURNS_MAX:
            del self._names[next(iter(self._names))]

    def is_old(self, turn: Turn) -> bool:
        """Whether a turn was begun, or is of a coordinator that another one overtook."""
        overtaken = turn.session < max(self.begun, default="")
        return overtaken or turn.number <= self.newest(turn.session)

    def note_committed(self, message: Turn | Acknowledgement) -> None:
        """Note how far the table is, unless more is known."""
        at = (message.session, message.decided)
        if at >= self._told_at:
            self.committed, self._told_at = message.offsets, at


@dataclass(slots=True)
class Undecided:
    """Reports that are not known to be decided; any thread may add to them."""

    _reports: list[Report] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def holds(self) -> bool:
        """Whether there are any that say more than that nothing came."""
        with self._lock:
            return any(not each.idle for each in self._reports)

    def add(self, report: Report) -> None:
        """Add a report."""
        with self._lock:
            self._reports.append(report)

    def forget(self, decided: int) -> list[Report]:
        """Drop those of turns up to this one; return the others."""
        with self._lock:
            self._reports = [each for each in self._reports if each.number > decided]
            return list(self._reports)

    def clear(self) -> None:
        """Drop all."""
        with self._lock:
            self._reports.clear()

    def left_out_by(self, message: Turn | Acknowledgement) -> bool:
        """Whether turns were decided without what was reported for them."""
        with self._lock:
            decided = [each.ends for each in self._reports if each.number <= message.decided]
        reached = {source: end for ends in decided for source, end in ends.items()}
        return any(message.offsets.get(source, "") != end for source, end in reached.items())
