"""What a schedule leaves: a store, what each actor was told, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plait.locks.process import NoLock
from plait.ports import Ports
from plait.state.cache import StateCache
from plait.state.state import TableState
from plait.storage.port import Store
from plait.testing.ports import ManualBackground, SeqIds
from plait.timeline import paths
from plait.txn.table_handle import TableHandle
from tests.scheduler.memo import Memo, remember
from tests.scheduler.run import Line
from tests.scheduler.world import LaneClock, World

AFTER = "ff"
"""The first digits of nonces that are drawn after the schedule."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A promise that does not hold: the invariant, and what was found instead."""

    promise: str
    found: str

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.promise}: {self.found}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one actor."""

    result: object
    error: BaseException | None
    crashed: bool
    hurt: bool
    """Whether a call of it was made to fail."""
    nonces: str
    """How the nonces of all that it began start."""

    @property
    def told(self) -> str:
        """Write what the actor was told; equal texts are equal answers."""
        return f"{self.crashed}{self.hurt}{self.result}{type(self.error).__name__}{self.error}"


@dataclass(slots=True)
class End:
    """What a schedule left."""

    store: Store
    world: World
    outcomes: Mapping[str, Outcome]
    lines: list[Line]
    moves: tuple[tuple[str, str], ...]
    """Every choice that was not the default, and where: what replays it."""
    events: int
    trace: int
    """Equal for schedules that no actor can tell apart and that leave the same."""
    files: int
    """Equal for schedules that leave the same."""
    memo: Memo
    first: TableState
    """The table before the schedule, as a client that never looked since would have it."""
    problems: tuple[Problem, ...] = ()
    abandoned: bool = False
    clients: int = 0
    """How many clients looked at it afterwards."""

    @property
    def order(self) -> tuple[str, ...]:
        """Who made each call."""
        return tuple(line.lane for line in self.lines if line.lane)

    @property
    def results(self) -> dict[str, object]:
        """What actors gave that ended without an error."""
        return {name: each.result for name, each in self.outcomes.items() if each.error is None}

    @property
    def errors(self) -> dict[str, BaseException]:
        """What actors raised."""
        return {name: e.error for name, e in self.outcomes.items() if e.error is not None}

    def handle(self) -> TableHandle:
        """Give a client that was not there, and to which nothing happens any more.

        It opens the table anew where there are checkpoints; without one that means to apply the
        decisions from the first on, and that is remembered.
        """
        self.clients += 1
        ids = SeqIds(f"{AFTER}{self.clients:02x}")
        ports = Ports(LaneClock(self.world, 0), ids, background=ManualBackground())
        cache = remember(StateCache(self.store, ports), self.memo)
        if next(self.store.list(paths.CHECKPOINTS), None) is None:
            cache.offer(self.first)
        return TableHandle(self.store, ports, cache, NoLock())
