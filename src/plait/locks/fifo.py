"""A lock between the threads of a process that serves them in the order of their coming."""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass, field
from weakref import WeakValueDictionary


@dataclass(eq=False, slots=True)
class _Waiter:
    owner: str
    granted: threading.Event = field(default_factory=threading.Event)


class FifoLock:
    """Handed from holder to waiter, so that nobody can push in."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiters: deque[_Waiter] = deque()
        self._holder: _Waiter | None = None
        self.since_ms: int | None = None
        """When its holder got it, for people; noted by whoever uses it."""

    @property
    def holder(self) -> str | None:
        """Who holds it."""
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
