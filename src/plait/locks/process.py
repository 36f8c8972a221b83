"""Locks inside one process: ``process`` between its threads, and ``none``, which is no lock."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from plait.locks.port import Holder, timed_out
from plait.ports import Ports


@dataclass(frozen=True, slots=True)
class NeverLost:
    """A lock that is held until it is let go; it has no fencing token."""

    token: int | None = None
    lost: str | None = None


class NoLock:
    """The lock ``none``: the slots alone give safety; order and fairness are left to luck."""

    name = "none"

    @contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[NeverLost]:  # noqa: ARG002 - the port's
        """Grant it to everybody at once."""
        yield NeverLost()

    def holder(self) -> Holder | None:
        """Tell that nobody does."""
        return None


class ProcessLock:
    """The lock ``process``: first come, first served, among the threads of this process."""

    name = "process"

    def __init__(self, uri: str, ports: Ports) -> None:
        self._lock = fifo_lock(f"process:{uri}")
        self._uri, self._clock = uri, ports.clock

    @contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[NeverLost]:
        """Wait for the lock; raise LockTimeoutError naming the holder."""
        if not self._lock.acquire(owner, wait_s=wait_s):
            lock, hint = f"the lock of {self._uri}", "increase lock.wait, or commit less often"
            raise timed_out(lock, self._lock.holder, wait_s, hint)
        self._lock.since_ms = self._clock.now_ms()
        try:
            yield NeverLost()
        finally:
            self._lock.release()

    def holder(self) -> Holder | None:
        """Tell who holds it now."""
        owner = self._lock.holder
        return None if owner is None else Holder(owner, self._lock.since_ms, None)


@dataclass(eq=False, slots=True)
class _Waiter:
    owner: str
    granted: threading.Event = field(default_factory=threading.Event)


class FifoLock:
    """A lock between threads, handed from holder to waiter, so that nobody can push in."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiters: deque[_Waiter] = deque()
        self._holder: _Waiter | None = None
        self.since_ms: int | None = None
        """Time at which the holder got it, for display only; the caller sets it."""

    @property
    def holder(self) -> str | None:
        """The owner that holds it; None if nobody does."""
        holder = self._holder
        return None if holder is None else holder.owner

    def acquire(self, owner: str, *, wait_s: float) -> bool:
        """Wait for the lock: True; False if it was not granted in time."""
        waiter = _Waiter(owner)
        with self._mutex:
            if self._holder is None:
                self._holder = waiter
                return True
            self._waiters.append(waiter)
        try:
            if waiter.granted.wait(max(0.0, wait_s)):
                return True
        except BaseException:  # interrupted: a grant to nobody would lock for ever
            if self._leave(waiter):
                self.release()
            raise
        # The grant may have come between the time-out and here. It must be accepted, since nobody
        # else would ever release it.
        return self._leave(waiter)

    def _leave(self, waiter: _Waiter) -> bool:
        """Leave the queue; True if the lock was granted at the last moment."""
        with self._mutex:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return False
        return True

    def release(self) -> None:
        """Hand the lock to the next."""
        with self._mutex:
            # Hand over directly instead of freeing the lock: a thread that comes just now would
            # otherwise take it before those that wait.
            self._holder = self._waiters.popleft() if self._waiters else None
            if self._holder is not None:
                self._holder.granted.set()


_LOCKS: WeakValueDictionary[str, FifoLock] = WeakValueDictionary()
_LOCKS_MUTEX = threading.Lock()


def fifo_lock(name: str) -> FifoLock:
    """Return the lock of that name in this process; it lives as long as somebody has it."""
    with _LOCKS_MUTEX:
        lock = _LOCKS.get(name)
        if lock is None:
            lock = _LOCKS[name] = FifoLock()
        return lock


def _forget() -> None:
    """Begin anew in a forked child: the threads that held locks are not in it."""
    global _LOCKS_MUTEX  # noqa: PLW0603 - a mutex that another thread held stays locked for ever
    _LOCKS_MUTEX = threading.Lock()
    _LOCKS.clear()


os.register_at_fork(after_in_child=_forget)
