"""Where something is chosen, and what can be: switches between lanes, and events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.scheduler import threads
from tests.scheduler.world import READS, WRITES, Call, Ghost, Process

GO = "go"
ON_WRITES = (
    "crash_before",
    "crash_after",
    "error",
    "lost_reply",
    "delay",
    "vanish",
    "cut_before",
    "cut_after",
)
ON_SENDS = ("lost", "late", "twice", "crash_before", "crash_after")
ON_READS = ("crash_before", "error", "cut_before")
ON_LISTS = ("early", "torn")
CALL_EVENTS = (*ON_WRITES, *ON_LISTS)
"""What can happen to one call; ``Scenario.events`` names those that are allowed."""
MESSAGE_EVENTS = ON_SENDS[:3]
"""What can happen to one message: it never arrives, after others, or a second time."""


class Lane:
    """One thread of an actor, and where it stands."""

    def __init__(self, name: str, process: Process, task: Callable[[], object]) -> None:
        self.name, self.process, self.task = name, process, task
        self.worker = threads.take()
        self.calls = 0
        self.pending = Call("begin", "")
        self.fresh = True
        """Whether it has not made its first call."""
        self.fate = GO
        self.ready: Callable[[], bool] | None = None
        self.timed_out = False
        self.wakes_s = 0.0
        """When it stops waiting, if nothing else goes on until then."""
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None
        self.history = 0
        """Of its calls and their answers: all that it can know."""

    @property
    def enabled(self) -> bool:
        """Whether it can take a step."""
        return not self.done and (self.ready is None or self.timed_out or self.ready())


class Board(Protocol):
    """What a point sees of the schedule."""

    allowed: Allowed
    lanes: list[Lane]
    processes: list[Process]
    ghosts: list[Ghost]
    lock_taken: Callable[[], bool]


class Point:
    """A place where something is chosen."""

    __slots__ = ("arrived", "current", "lane", "others", "run")

    def __init__(self, run: Board, lane: Lane | None, *, arrived: bool = False) -> None:
        self.run = run
        self.lane = lane
        self.arrived = arrived
        """Whether this lane has just been chosen: its call is made, but something may happen."""
        self.current = lane if lane is not None and lane.enabled else None
        self.others: list[str] = []
        if arrived:
            return
        self.others = [each.name for each in run.lanes if each is not lane and each.enabled]
        self.others += [ghost.name for ghost in run.ghosts]

    @property
    def key(self) -> str:
        """Name it: who made which call last, or stands before which."""
        if self.lane is None:
            return "start"
        return f"{self.lane.name}:{'end' if self.lane.done else self.lane.calls}"

    @property
    def default(self) -> str:
        """What happens if nobody interferes: who runs goes on, then the next in order."""
        return GO if self.current is not None else f">{self.others[0]}"

    def events(self) -> list[str]:
        """List what can happen here beside switches."""
        allowed = self.run.allowed
        found = [f"+{seconds:g}" for seconds in allowed.jumps]
        if self.current is not None:
            operation = self.current.pending.operation
            kinds: tuple[str, ...] = ()
            if operation in WRITES:
                kinds = ON_WRITES
            elif operation in READS:
                kinds = (*ON_READS, *(ON_LISTS if operation == "list" else ()))
            elif operation == "send":
                kinds = ON_SENDS
            found += [f"!{kind}" for kind in kinds if kind in allowed.events]
        for process in self.run.processes:
            if process.steps and not process.dead and process.beats < allowed.beats:
                found.append(f"^{process.name}")
        if allowed.lock_lost and self.run.lock_taken():
            found.append("-lock")
        return found

    def allows(self, move: str) -> bool:
        """Tell whether a move recorded elsewhere makes sense here."""
        if move == GO:
            return self.current is not None
        if move[0] == ">":
            return move[1:] in self.others
        return move in self.events()


class Strategy(Protocol):
    """Chooses what happens next."""

    def choose(self, point: Point) -> str:
        """Give a move that the point allows; raise Abandon to end the schedule."""
        ...


class AbandonError(Exception):
    """The rest of this schedule is the same as that of another."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The events that a scenario allows."""

    events: tuple[str, ...] = ()
    jumps: tuple[float, ...] = ()
    beats: int = 0
    lock_lost: bool = False
