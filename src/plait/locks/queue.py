"""A queue of processes before a lock file, each with a ticket that dies with its holder.

A ticket is a file named by time and nonce, which its owner keeps locked. The oldest living one is
served next. A ticket that can be locked has lost its owner, and whoever finds that removes it.
Clocks of several machines only disturb the order.
"""

# Polled by every waiter, so no pathlib.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Protocol

from plait.ports import Ports
from plait.storage.disk import Disk
from plait.storage.tree import exists, open_directory

_LOOKS = 4
"""Number of polls after which a waiter checks whether the next one still lives."""
_TICKET = re.compile(r"\d{17}-[0-9a-f]{16}", re.ASCII)
"""Pattern of a ticket's name; files with other names are left alone."""


class Locked(Protocol):
    """A lock on one file that can be let go."""

    def release(self) -> None:
        """Let go."""
        ...


class TicketQueue:
    """The queue in one directory. ``try_lock`` locks a file at once, or gives None."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        directory: str,
        try_lock: Callable[[str], Locked | None],
        ports: Ports,
    ) -> None:
        self._disk, self._root, self._directory = disk, root.rstrip("/"), directory
        self._try_lock = try_lock
        self._clock, self._ids = ports.clock, ports.ids

    def waiting(self) -> list[str]:
        """List the tickets, oldest first."""
        try:
            directory = open_directory(self._root, self._directory)
        except FileNotFoundError:
            return []
        try:
            return sorted(name for name in os.listdir(directory) if _TICKET.fullmatch(name))
        finally:
            os.close(directory)

    def join(self) -> Ticket:
        """Take a ticket at the end of the queue."""
        name = f"{self._clock.now_ms():017d}-{self._ids.nonce()}"
        hidden = f".{name}"
        with self._disk.parent(self._path(name)) as (directory, _):
            locked = self._lock(hidden)  # locked before it is seen, or it would be taken for dead
            os.rename(hidden, name, src_dir_fd=directory, dst_dir_fd=directory)
        return Ticket(self, name, locked)

    def remove(self, name: str) -> None:
        """Remove a ticket."""
        try:
            with self._disk.parent(self._path(name)) as (directory, _):
                os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            return

    def remove_if_dead(self, name: str) -> None:
        """Remove a ticket whose owner is gone."""
        with self._disk.parent(self._path(name)) as (directory, _):
            if not exists(directory, name):  # locking it would make it anew
                return
        locked = self._lock(name)
        if locked is not None:
            # Remove it while it is locked: so only one waiter does, and its owner cannot be alive.
            self.remove(name)
            locked.release()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _lock(self, name: str) -> Locked | None:
        return self._try_lock(f"{self._root}/{self._path(name)}")


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
