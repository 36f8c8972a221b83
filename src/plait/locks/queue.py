"""A queue of processes before a lock file, each with a ticket that dies with its holder.

A ticket is a file named by time and nonce, which its owner keeps locked. The oldest living one is
served next. A ticket that can be locked has lost its owner, and whoever finds that removes it.
Clocks of several machines only disturb the order.
"""

# Polled by every waiter, so no pathlib.
# ruff: noqa: PTH103, PTH104, PTH108, PTH208

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from plait.ports import Ports

_LOOKS = 4
"""Who is next is looked at once in so many polls, whether it still lives."""


class Locked(Protocol):
    """A lock on one file that can be let go."""

    def release(self) -> None:
        """Let go."""
        ...


class TicketQueue:
    """The queue in one directory. ``try_lock`` locks a file at once, or gives None."""

    def __init__(
        self, directory: str, try_lock: Callable[[str], Locked | None], ports: Ports
    ) -> None:
        self._directory, self._try_lock = directory, try_lock
        self._clock, self._ids = ports.clock, ports.ids

    def waiting(self) -> list[str]:
        """List the tickets, oldest first."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if not name.startswith("."))

    def join(self) -> Ticket:
        """Take a ticket at the end of the queue."""
        os.makedirs(self._directory, exist_ok=True)
        name = f"{self._clock.now_ms():017d}-{self._ids.nonce()}"
        hidden = f"{self._directory}/.{name}"
        locked = self._try_lock(hidden)  # locked before it is seen, or it would be taken for dead
        os.rename(hidden, f"{self._directory}/{name}")
        return Ticket(self, name, locked)

    def remove(self, name: str) -> None:
        """Remove a ticket."""
        try:
            os.unlink(f"{self._directory}/{name}")
        except FileNotFoundError:
            return

    def remove_if_dead(self, name: str) -> None:
        """Remove a ticket whose owner is gone."""
        path = f"{self._directory}/{name}"
        if not os.path.exists(path):  # noqa: PTH110 - locking it would make it anew
            return
        locked = self._try_lock(path)
        if locked is not None:
            self.remove(name)
            locked.release()


class Ticket:
    """A place in the queue."""

    def __init__(self, queue: TicketQueue, name: str, locked: Locked | None) -> None:
        self._queue, self._name, self._locked = queue, name, locked
        self._next, self._seen = "", 0

    def ahead(self) -> int:
        """Count those to be served before; who is next for long, and is dead, is removed."""
        ahead = [name for name in self._queue.waiting() if name < self._name]
        if ahead:
            self._seen = self._seen + 1 if ahead[0] == self._next else 1
            self._next = ahead[0]
            if self._seen % _LOOKS == 0:  # to look is to lock: dear where many wait
                self._queue.remove_if_dead(ahead[0])
        return len(ahead)

    def leave(self) -> None:
        """Leave the queue."""
        self._queue.remove(self._name)
        if self._locked is not None:
            self._locked.release()
