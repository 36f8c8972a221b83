"""Ports for tests: a clock set by hand, ids in order, background work run by hand."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from plait.ports import Clock, Ids, NullObserver, Observer, Ports


class SimClock:
    """A clock that stands still until a test sleeps or advances it.

    Several can share one ``start``; ``skew_ms`` moves the wall clock alone, as of a machine whose
    clock is wrong.

    >>> clock = SimClock()
    >>> before = clock.now_ms(); clock.sleep(2.5); clock.now_ms() - before
    2500
    """

    START_MS = 1_700_000_000_000

    def __init__(self, start_ms: int = START_MS, *, skew_ms: int = 0) -> None:
        self._now_ms = float(start_ms)
        self._start_ms = float(start_ms)
        self._asleep_s = 0.0
        self._mutex = threading.Lock()
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Return the wall clock."""
        return int(self._now_ms + self._asleep_s * 1000) + self.skew_ms

    def monotonic(self) -> float:
        """Return seconds since the start."""
        return (self._now_ms - self._start_ms) / 1000

    def asleep_s(self) -> float:
        """Return the total time of all ``suspend`` calls."""
        return self._asleep_s

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: the wall clock continues, the monotonic clock does not."""
        with self._mutex:
            self._asleep_s += seconds

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let the time pass."""
        with self._mutex:
            self._now_ms += seconds * 1000


class SeqIds:
    """Nonces that count: 16 hex digits, ``prefix`` first. Jitter is always a half."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._next = itertools.count(1)

    def nonce(self) -> str:
        """Return the next."""
        return f"{self._prefix}{next(self._next):0{16 - len(self._prefix)}x}"

    def jitter(self) -> float:
        """Return a half."""
        return 0.5


@dataclass
class ManualBackground:
    """Background work that runs when the test says so."""

    steps: list[Callable[[], None]] = field(default_factory=list)

    def every(self, interval_s: float, step: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Keep the step; return a function that drops it."""
        self.steps.append(step)

        def cancel() -> None:
            if step in self.steps:
                self.steps.remove(step)

        return cancel

    def tend(self) -> None:
        """Do nothing: the test says when."""

    def run(self) -> None:
        """Run every step once."""
        for step in list(self.steps):
            step()


def sim_ports(
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    observer: Observer | None = None,
    background: ManualBackground | None = None,
) -> Ports:
    """Bundle ports for a test; what is not given is simulated."""
    return Ports(
        clock or SimClock(),
        ids or SeqIds(),
        observer or NullObserver(),
        background or ManualBackground(),
    )
