"""The world of a schedule: time that moves only by events, calls, and who makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

READS = ("find", "list", "open_input")
WRITES = ("put", "put_if_absent", "delete", "open_output", "persist")


@dataclass(frozen=True, slots=True)
class Call:
    """What a lane is about to do."""

    operation: str
    path: str

    def touches(self, other: Call) -> bool:
        """Tell whether the order of two calls can matter to anybody."""
        if self.operation in READS and other.operation in READS:
            return False
        if self.operation == "list":
            return _inside(other.path, self.path)
        if other.operation == "list":
            return _inside(self.path, other.path)
        return self.path == other.path


def _inside(path: str, directory: str) -> bool:
    return not directory or path.startswith(f"{directory.rstrip('/')}/")


class World:
    """What all lanes share beside the store: one true time."""

    def __init__(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.time_ms = now_ms
        self.idle_s = 0.0
        """For how long all lanes have waited for messages that did not come."""

    def now_ms(self) -> int:
        """Give the store's clock."""
        return self.time_ms

    def monotonic(self) -> float:
        """Give seconds since the schedule began."""
        return (self.time_ms - self.start_ms) / 1000

    def asleep_s(self) -> float:
        """Return 0: no machine is suspended."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Let the time pass for everybody."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let the time pass for everybody."""
        self.time_ms += int(seconds * 1000)


class LaneClock:
    """One machine's clock.

    Sleeping moves only the sleeper's own deadlines: back-off is short beside everything that
    is judged by time, and the order of calls is the schedule's to choose.
    """

    def __init__(self, world: World, skew_ms: int) -> None:
        self.world, self._skew_ms, self._slept_s = world, skew_ms, 0.0

    def now_ms(self) -> int:
        """Give the machine's wall clock, wrong as it may be."""
        return self.world.time_ms + self._skew_ms

    def monotonic(self) -> float:
        """Give seconds that never go back."""
        return self.world.monotonic() + self.world.idle_s + self._slept_s

    def asleep_s(self) -> float:
        """Return 0: no machine is suspended."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Come nearer to the own deadlines."""
        self._slept_s += seconds


class Process:
    """What dies as one: an actor and its background steps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.cut = False
        """Whether it cannot reach the store any more."""
        self.hurt = False
        """Whether a call of it was made to fail."""
        self.steps: list[Callable[[], None]] = []
        """Background steps that are due whenever the schedule says so."""
        self.beats = 0
        self.flushes = 0
        """How many lanes were begun to flush beside the actor."""


@dataclass(slots=True)
class Ghost:
    """A write that was sent, whose sender heard nothing, and that lands later."""

    name: str
    call: Call
    action: Callable[[], object]
