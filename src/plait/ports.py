"""Ports to the world outside: time, randomness, background work, observers.

Production code takes what it needs from a ``Ports`` value; tests and the scheduler hand in
their own. Nothing else in the core may look at a clock or draw a random number.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

_log = logging.getLogger(__name__)
_SUSPENSION = (
    (getattr(time, "CLOCK_BOOTTIME", None), getattr(time, "CLOCK_MONOTONIC", None))  # Linux
    if hasattr(time, "CLOCK_BOOTTIME")
    else (getattr(time, "CLOCK_MONOTONIC_RAW", None), getattr(time, "CLOCK_UPTIME_RAW", None))
)
"""Two clocks since the start of the machine: with the time that it was suspended, and without."""


class Clock(Protocol):
    """Time as one machine sees it."""

    def now_ms(self) -> int:
        """Return the wall clock, ms since the epoch; only for names and display."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; for every deadline."""
        ...

    def asleep_s(self) -> float:
        """Return for how long this machine was suspended since it started; 0 if it never was.

        The monotonic clock leaves that out.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Ids(Protocol):
    """Randomness."""

    def nonce(self) -> str:
        """Return 16 random hex digits."""
        ...

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        ...


class Observer(Protocol):
    """Sees named phases of a commit and reports; a no-op in production."""

    def phase(self, name: str, **facts: object) -> None:
        """Observe that a phase begins. Tests block here to step writers through each order."""
        ...


class Background(Protocol):
    """Runs a step again and again beside the caller until it is cancelled."""

    def every(self, interval_s: float, step: Callable[[], None]) -> Callable[[], None]:
        """Call ``step`` each interval; return a function that cancels and waits for the last.

        Never raises for want of a thread: a sign of life that is late harms nobody.
        """
        ...

    def tend(self) -> None:
        """Start what could not be started before; called now and then by who works on."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return the wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()

    def asleep_s(self) -> float:
        """Return for how long this machine was suspended, as far as the system tells."""
        whole, awake = _SUSPENSION
        if whole is None or awake is None:
            return 0.0
        return max(0.0, time.clock_gettime(whole) - time.clock_gettime(awake))

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class SystemIds:
    """The operating system's randomness."""

    def nonce(self) -> str:
        """Return 16 random hex digits."""
        return secrets.token_hex(8)

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        return secrets.randbelow(1 << 30) / (1 << 30)


class Backoff:
    """Pauses between attempts, each about twice as long as the one before, up to ``most_s``.

    Each is spread between half and one and a half of its length, so that clients that failed
    together do not come back together.

    >>> backoff = Backoff(SystemClock(), SystemIds(), 0.001, 0.003)
    >>> backoff.pause(); backoff.pause(); backoff.length_s
    0.003
    """

    def __init__(self, clock: Clock, ids: Ids, first_s: float, most_s: float) -> None:
        self._clock, self._ids = clock, ids
        self._first_s, self._most_s = first_s, most_s
        self.length_s = first_s
        """The length of the next pause."""

    def pause(self, left_s: float = math.inf) -> None:
        """Wait, but not longer than ``left_s``."""
        self._clock.sleep(min(self.length_s * (0.5 + self._ids.jitter()), left_s))
        self.length_s = min(2 * self.length_s, self._most_s)

    def restart(self) -> None:
        """Begin with the first length again, because something moved."""
        self.length_s = self._first_s


class NullObserver:
    """Ignores every phase."""

    def phase(self, name: str, **facts: object) -> None:
        """Do nothing."""


class ThreadBackground:
    """Daemon threads, but none for what ends before its first step is due.

    One thread of the process watches all that is due; what comes due for the first time gets a
    thread of its own, so that a slow step of one table never delays another's. A step that
    raises is logged, and tried again.

    Where the system gives no more threads, nothing raises: the watcher takes the steps itself
    until threads can be had again. A watcher that could not start is started by the next call.
    """

    def __init__(self, threads: Callable[..., threading.Thread] = threading.Thread) -> None:
        """Begin with nothing to do.

        Args:
            threads: makes a thread, as ``threading.Thread`` does.
        """
        self._threads = threads
        self._short = False
        """Whether the last thread that was asked for did not start: said once, not each time."""
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
        self._put(task)

        def cancel() -> None:
            task.cancel()
            self.tend()

        return cancel

    def tend(self) -> None:
        """Start the watcher if there is something to do and it does not run."""
        with self._changed:
            if self._due and (self._watcher is None or not self._watcher.is_alive()):
                self._watcher = self._start(self._watch, "plait-background")

    def _put(self, task: _Repeated) -> None:
        with self._changed:
            entry = (time.monotonic() + task.interval_s, next(self._numbers), task)
            heapq.heappush(self._due, entry)
            if self._due[0] is entry:
                self._changed.notify()
        self.tend()

    def _start(self, target: Callable[[], None], name: str) -> threading.Thread | None:
        """Start a daemon thread; None if the system gives none, or the interpreter ends."""
        thread = self._threads(target=target, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._short:
                _log.warning("background work continues without its own thread: %s", error)
            self._short = True
            return None
        self._short = False
        return thread

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
            if not task.start(self._start):
                task.step()
                self._put(task)


class _Repeated:
    """One step that is repeated until it is cancelled."""

    def __init__(self, interval_s: float, step: Callable[[], None]) -> None:
        self.interval_s, self._step = interval_s, step
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._stepping = threading.RLock()  # a step may cancel itself
        self._thread: threading.Thread | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it need not start any more."""
        return self._stop.is_set()

    def start(self, start: Callable[[Callable[[], None], str], threading.Thread | None]) -> bool:
        """Take the first step and go on, in a thread of its own; False if there is none."""
        with self._lock:
            if not self._stop.is_set():
                self._thread = start(self._run, "plait-step")
            return self._stop.is_set() or self._thread is not None

    def step(self) -> None:
        """Take one step, unless it is cancelled."""
        with self._stepping:
            if self._stop.is_set():
                return
            try:
                self._step()
            except Exception:  # noqa: BLE001 - a failing heartbeat must beat again
                _log.warning("a background step failed and will be tried again", exc_info=True)

    def cancel(self) -> None:
        """Stop, and wait for a step that is under way."""
        with self._lock:
            self._stop.set()
            thread = self._thread
        with self._stepping:
            pass
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.step()
            self._stop.wait(self.interval_s)


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

    def backoff(self, first_s: float, most_s: float) -> Backoff:
        """Return pauses by this clock."""
        return Backoff(self.clock, self.ids, first_s, most_s)
