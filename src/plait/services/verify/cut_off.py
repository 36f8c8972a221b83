"""End a timeline below a slot that was lost, so that the table can be written again (RFC 0032).

What came after the lost slot is given up. Commits that their writers were told of go with it, so
only what the plan named is deleted: if there is more by then, nothing is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from plait.errors import FormatError, PlanStaleError
from plait.model.decision import Decision
from plait.model.plain import Plain
from plait.model.sink_ledger import SinkPosition, addresses_of
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.log import Timeline
from plait.timeline.replica_records import load_attempts, load_positions, write_position

_ENDED = "end all writers and services of the table, and plan again"


@dataclass(frozen=True, slots=True)
class CutOff(Plain):
    """What a plan cuts off: the slots from one to the newest that was there."""

    KEYS = "first newest sha256"

    first: int
    """The version whose slot was lost."""
    slots: tuple[str, ...]
    """The slots that are there from it on, the oldest first."""
    sha256: str
    """SHA-256 of the newest of these decisions."""

    @classmethod
    def plan(cls, store: Store, first: int) -> Self:
        """Name what is there now; at least one slot is, or nothing would be lost."""
        slots = _slots_from(store, first)
        body = store.find(slots[-1]) if slots else None
        return cls(first, slots, hashlib.sha256(body or b"").hexdigest())

    @property
    def newest(self) -> str:
        """The newest slot; empty if none is there."""
        return self.slots[-1] if self.slots else ""

    def require_planned(self, planned: Self | None) -> None:
        """Refuse to cut off what the plan did not name.

        Raises:
            PlanStaleError: the plan names other slots, or none.
        """
        if planned != self:
            named = "no slot" if planned is None else f"{planned.newest} as the newest slot"
            raise _stale(f"the plan names {named}, and {self.newest or 'none'} is the newest now")

    def make(self, store: Store, below: TableState) -> None:
        """End the timeline before ``first``.

        Sinks go first: they may hold rows of what is cut off, and no decision tells of it then.
        Then checkpoints, so that nobody begins from one beyond. Slots go from the newest on: if
        this is killed, a gap is left, which is refused as before, and the next repair goes on.
        The oldest shows that gap to each look at the head, so it goes when nothing else is left.

        Raises:
            PlanStaleError: others committed meanwhile. What they committed stays, beyond a gap.
        """
        type(self).plan(store, self.first).require_planned(self)
        _lose_positions(store, _sinks_of(store, below, self.slots))
        first = paths.checkpoint(self.first, "")
        doomed = [info.path for info in store.list(paths.CHECKPOINTS) if info.path >= first]
        store.delete(doomed)
        type(self).plan(store, self.first).require_planned(self)
        oldest, *newer = self.slots
        for path in reversed(newer):
            store.delete([path])
        _require_only(store, self.first, {oldest})
        store.delete([oldest])
        _require_only(store, self.first, set())


def _require_only(store: Store, first: int, rest: set[str]) -> None:
    """Refuse to go on where somebody committed beyond what was cut off."""
    if more := set(_slots_from(store, first)) - rest:
        raise _stale(f"{max(more)} was committed while the timeline was cut off")


def _stale(message: str) -> PlanStaleError:
    return PlanStaleError(f"{message}: the timeline changed since the plan", hint=_ENDED)


def _slots_from(store: Store, version: int) -> tuple[str, ...]:
    """List the slots from a version on, the oldest first."""
    first = paths.slot(version)
    return tuple(sorted(i.path for i in store.list(paths.TIMELINE) if i.path >= first))


def _sinks_of(store: Store, below: TableState, cut: tuple[str, ...]) -> set[str]:
    """Name every sink that anything tells of which can still be read."""
    known = {each.sink for each in load_positions(store)}
    known |= {sink for each in load_attempts(store) for sink in each.sinks}
    known |= {*below.table.replicas, *below.table.former_replicas}
    for decision in _decisions(store, below.version, cut):
        known |= set(() if decision.replicas is None else decision.replicas.sinks)
        table = decision.table or {}
        for part in ("replicas", "former_replicas"):
            known |= set(addresses_of(table.get(part, {})))
    return known


def _decisions(store: Store, below: int, cut: tuple[str, ...]) -> Iterator[Decision]:
    """Load the decisions that are whole, of the history that stays and of what is cut off."""
    timeline, version = Timeline(store), -1
    while version < below:
        try:
            for decision in timeline.load_after(version, limit=below - version):
                version = decision.version
                yield decision
        except FormatError:
            pass  # this one is damaged; a checkpoint makes up for it
        version += 1
    for path in cut:
        number = path.rpartition("/")[2].removesuffix(".json")
        try:
            found = timeline.find(int(number)) if number.isdigit() else None
        except FormatError:
            continue
        if found is not None:
            yield found


def _lose_positions(store: Store, sinks: set[str]) -> None:
    """Note of sinks that nothing is known of them: each has to be repaired."""
    for sink in sorted(sinks):
        write_position(store, SinkPosition(sink, 0, lost=True))
    store.persist([paths.position(sink) for sink in sorted(sinks)])
