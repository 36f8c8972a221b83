"""Ports to the world outside: time, randomness, background work, observers.

Production code takes what it needs from a ``Ports`` value; tests and the scheduler hand in
their own. Nothing else in the core may look at a clock or draw a random number.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
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
    """Daemon threads, but none for what ends before its first step is due.

    One thread of the process watches all that is due; what comes due for the first time gets a
    thread of its own, so that a slow step of one table never delays another's. A step that
    raises is logged, and tried again.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, _Repeated]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._watcher: threading.Thread | None = None

    def reset(self) -> None:
        """Begin anew in a forked child, which has no threads of its parent."""
        self._due, self._watcher, self._changed = [], None, threading.Condition()

    def every(self, interval_s: float, step: Callable[[], None]) -> Callable[[], None]:
        """Call ``step`` each interval; the first time after one interval."""
        task = _Repeated(interval_s, step)
        with self._changed:
            entry = (time.monotonic() + interval_s, next(self._numbers), task)
            heapq.heappush(self._due, entry)
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="plait-background", daemon=True
                )
                self._watcher.start()
            elif self._due[0] is entry:
                self._changed.notify()
        return task.cancel

    def _watch(self) -> None:
        while True:
            with self._changed:
                while self._due and self._due[0][2].cancelled:
                    heapq.heappop(self._due)
                wait_s = self._due[0][0] - time.monotonic() if self._due else None
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                _, _, task = heapq.heappop(self._due)
            task.start()


class _Repeated:
    """One step that is repeated until it is cancelled."""

    def __init__(self, interval_s: float, step: Callable[[], None]) -> None:
        self._interval_s, self._step = interval_s, step
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it need not start any more."""
        return self._stop.is_set()

    def start(self) -> None:
        """Take the first step and go on, in a thread of its own."""
        with self._lock:
            if self._stop.is_set():
                return
            self._thread = threading.Thread(target=self._run, name="plait-step", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """Stop, and wait for a step that is under way."""
        with self._lock:
            self._stop.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except Exception:  # noqa: BLE001 - a failing heartbeat must beat again
                _log.warning("background step failed; it is tried again", exc_info=True)
            self._stop.wait(self._interval_s)


_BACKGROUND = ThreadBackground()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_BACKGROUND.reset)


@dataclass(frozen=True, slots=True)
class Ports:
    """The bundle that is handed down from the facade."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    observer: Observer = field(default_factory=NullObserver)
    background: Background = field(default_factory=lambda: _BACKGROUND)
