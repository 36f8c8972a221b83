"""What a lane is given instead of the real ports: its store, lock, background and ids."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from plait.errors import LockTimeoutError
from plait.locks.port import Held, Holder
from plait.storage.port import Store
from plait.testing.wrapper import WrappedStore
from tests.scheduler.run import Run
from tests.scheduler.world import Call, Process

T = TypeVar("T")
_log = logging.getLogger(__name__)


class LaneStore(WrappedStore):
    """The shared store as one process sees it: each call is a step of the schedule."""

    def __init__(self, inner: Store, run: Run, process: Process, *, skew_ms: int = 0) -> None:
        super().__init__(inner)
        self.run, self.process, self._skew_ms = run, process, skew_ms

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        """Stop, then do what the schedule says of the call."""
        return self.run.call(self.process, Call(operation, path), run)

    def now_ms(self) -> int:
        """Give the store's clock, as this machine believes it to be."""
        return self.inner.now_ms() + self._skew_ms


class LaneBackground:
    """Background steps that run when the schedule says so, call by call beside their actor."""

    def __init__(self, run: Run, process: Process) -> None:
        self._run, self._process = run, process

    def every(self, interval_s: float, step: Callable[[], None]) -> Callable[[], None]:
        """Keep the step; give a function that drops it and waits if it is under way."""
        working = [0]

        def once() -> None:
            working[0] += 1
            try:
                step()
            except Exception:  # noqa: BLE001 - as ThreadBackground: it is tried again
                _log.debug("background step failed", exc_info=True)
            finally:
                working[0] -= 1

        def cancel() -> None:
            if once in self._process.steps:
                self._process.steps.remove(once)
            if working[0] and not self._process.dead:
                self._run.wait_until(self._process, "background", lambda: not working[0])

        self._process.steps.append(once)
        return cancel

    def tend(self) -> None:
        """Do nothing: the schedule says when."""


@dataclass
class _Grant:
    """A lock as its holder sees it."""

    process: Process
    token: int | None
    lost: str | None = None


class Lock:
    """One lock for all lanes; a schedule can take it from its holder, who learns nothing."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._grant: _Grant | None = None
        self._count = 0
        run.lock_taken = lambda: not self._free()
        run.lock_lose = self._lose

    def of(self, process: Process) -> LaneLock:
        """Give the lock as one process sees it."""
        return LaneLock(self, process)

    def _free(self) -> bool:
        return self._grant is None or self._grant.process.dead

    def _lose(self) -> None:
        if self._grant is not None:
            self._grant = None

    @contextlib.contextmanager
    def held(self, process: Process, wait_s: float, owner: str) -> Iterator[Held]:
        """Hold the lock; raise LockTimeoutError if nobody is left who could free it."""
        self._run.call(process, Call("lock", "lock"), lambda: None)
        if not self._run.wait_until(process, "lock", self._free):
            message = f"{owner} did not get the lock"
            raise LockTimeoutError(
                message, hint="", lock="lock", holder="another", waited_ms=int(wait_s * 1000)
            )
        self._count += 1
        mine = self._grant = _Grant(process, self._count)
        try:
            yield mine
        finally:
            if self._grant is mine:
                self._grant = None


class LaneLock:
    """The lock provider of one lane."""

    name = "schedule"

    def __init__(self, lock: Lock, process: Process) -> None:
        self._lock, self._process = lock, process

    def acquire(self, *, wait_s: float, owner: str) -> contextlib.AbstractContextManager[Held]:
        """Wait for the lock as long as anybody can free it."""
        return self._lock.held(self._process, wait_s, owner)

    def holder(self) -> Holder | None:
        """Tell nothing: only people ask."""
        return None
