"""Ports to the world outside: time, randomness, background work, observers.

Production code takes what it needs from a ``Ports`` value; tests and the scheduler hand in
their own. Nothing else in the core may look at a clock or draw a random number.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

_log = logging.getLogger(__name__)


class Clock(Protocol):
    """Time as one machine sees it."""

    def now_ms(self) -> int:
        """Give the wall clock, ms since the epoch; only for names and display."""
        ...

    def monotonic(self) -> float:
        """Give seconds that never go back; for every deadline."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Ids(Protocol):
    """Randomness."""

    def nonce(self) -> str:
        """Give 16 random hex digits."""
        ...

    def jitter(self) -> float:
        """Give a random number in [0, 1)."""
        ...


class Observer(Protocol):
    """Sees named phases of a commit and reports; a no-op in production."""

    def phase(self, name: str, **facts: object) -> None:
        """Hear that a phase begins. Tests block here to step writers through each order."""
        ...


class Background(Protocol):
    """Runs a step again and again beside the caller until it is cancelled."""

    def every(self, interval_s: float, step: Callable[[], None]) -> Callable[[], None]:
        """Call ``step`` each interval; give a function that cancels and waits for the last."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Give the wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Give the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class SystemIds:
    """The operating system's randomness."""

    def nonce(self) -> str:
        """Give 16 random hex digits."""
        return secrets.token_hex(8)

    def jitter(self) -> float:
        """Give a random number in [0, 1)."""
        return secrets.randbelow(1 << 30) / (1 << 30)


class NullObserver:
    """Hears nothing."""

    def phase(self, name: str, **facts: object) -> None:
        """Do nothing."""


class ThreadBackground:
    """One daemon thread a task; a step that raises is logged, and tried again."""

    def every(self, interval_s: float, step: Callable[[], None]) -> Callable[[], None]:
        """Start the thread; it first waits one interval."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(interval_s):
                try:
                    step()
                except Exception:  # noqa: BLE001 - a failing heartbeat must beat again
                    _log.warning("background step failed; it is tried again", exc_info=True)

        thread = threading.Thread(target=run, name="plait-background", daemon=True)
        thread.start()

        def cancel() -> None:
            stop.set()
            if thread is not threading.current_thread():
                thread.join()

        return cancel


@dataclass(frozen=True, slots=True)
class Ports:
    """The bundle that is handed down from the facade."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    observer: Observer = field(default_factory=NullObserver)
    background: Background = field(default_factory=ThreadBackground)
