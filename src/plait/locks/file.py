"""The lock ``file``: between processes that see one disk.

An advisory lock of the operating system on ``.meta/locks/commit``; it ends with its process,
however that dies. Threads of one process queue in memory first, then one of them stands for the
process in a queue of tickets, so that each is served about in its turn.
"""

# Taken within a commit, so no pathlib.
# ruff: noqa: PTH116

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from plait.errors import CorruptMetadataError, LockTimeoutError, LockUnavailableError, TableError
from plait.locks.port import Holder, timed_out
from plait.locks.process import fifo_lock
from plait.locks.queue import Locked, TicketQueue
from plait.ports import Ports
from plait.storage.disk import Disk
from plait.storage.local import LocalStore
from plait.storage.tree import exists, parent

_POLL_S, _POLL_S_MAX = 0.004, 0.05
_RECORD_BYTES_MAX = 4096
_FOLDER = ".meta/locks"
_RECORD = f"{_FOLDER}/commit.holder"


class FileLock:
    """The lock of a table below a local directory."""

    name = "file"

    def __init__(self, root: str, ports: Ports) -> None:
        self._path = f"{root.rstrip('/')}/{_FOLDER}/commit"
        self._clock, self._ports = ports.clock, ports
        self._disk = Disk(root, ports.ids, makes_root=False)
        self._store = LocalStore(root, clock=ports.clock, ids=ports.ids, makes_root=False)
        self._threads = fifo_lock(f"file:{os.path.realpath(root)}")
        self._queue = TicketQueue(self._disk, root, f"{_FOLDER}/queue", try_lock, ports)

    @contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[FileHeld]:
        """Wait for the lock; raise LockTimeoutError naming the holder."""
        deadline = self._clock.monotonic() + wait_s
        # Threads of this process queue in memory first. That keeps their order and costs no system
        # call; the one in front stands for the process in the queue of tickets.
        if not self._threads.acquire(owner, wait_s=wait_s):
            raise self._timed_out(wait_s)
        try:
            locked = self._lock(deadline)
            if locked is None:
                raise self._timed_out(wait_s)
            try:
                # Written after the lock is held and removed before it is released: a record that a
                # killed holder left is only shown, and only while somebody holds the lock.
                self._write_record(owner)
                yield FileHeld(self._path)
            finally:
                with suppress(TableError):
                    self._store.delete([_RECORD])
                locked.release()
        finally:
            self._threads.release()

    def _lock(self, deadline: float) -> Locked | None:
        try:
            with self._disk.parent(f"{_FOLDER}/commit"):  # made, and not by way of a link
                pass
            # Without a queue, try at once and spare the ticket. If others wait, do not push in
            # before them.
            if not self._queue.waiting():
                locked = try_lock(self._path)
                if locked is not None or self._clock.monotonic() >= deadline:
                    return locked
            return self._wait(deadline)
        except (OSError, NotImplementedError, CorruptMetadataError) as error:
            raise self._unavailable(error) from error

    def _wait(self, deadline: float) -> Locked | None:
        ticket, backoff = self._queue.join(), self._ports.backoff(_POLL_S, _POLL_S_MAX)
        try:
            while True:
                ahead = ticket.ahead()
                locked = None if ahead else try_lock(self._path)
                if locked is not None or self._clock.monotonic() >= deadline:
                    return locked
                backoff.length_s = min(_POLL_S * (1 + ahead), _POLL_S_MAX)
                backoff.pause()
        finally:
            ticket.leave()

    def holder(self) -> Holder | None:
        """Tell who holds it now, by the record that holders leave; None if nobody does."""
        try:
            with parent(self._store.root, f"{_FOLDER}/commit") as (directory, name):
                if not exists(directory, name):  # locking it would make it
                    return None
            locked = try_lock(self._path)
        except FileNotFoundError:
            return None
        except (OSError, NotImplementedError, CorruptMetadataError) as error:
            raise self._unavailable(error) from error
        if locked is not None:
            locked.release()
            return None
        return self._read_record() or Holder("a process that left no record", None, None)

    def _unavailable(self, error: Exception) -> LockUnavailableError:
        hint = "check that the directory is writable and its file system supports locks"
        return LockUnavailableError(f"cannot lock {self._path}: {error}", hint=hint)

    def _timed_out(self, wait_s: float) -> LockTimeoutError:
        record = self._read_record()
        holder = record.owner if record else "a process that left no record"
        hint = "increase lock.wait; the lock of a dead process is free at once"
        return timed_out(f"the lock {self._path}", holder, wait_s, hint)

    def _write_record(self, owner: str) -> None:
        facts = {
            "owner": owner,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since_ms": self._clock.now_ms(),
        }
        with suppress(TableError):  # for people only: nothing is decided by it
            self._store.put(_RECORD, json.dumps(facts).encode())

    def _read_record(self) -> Holder | None:
        try:
            facts = json.loads(self._store.find(_RECORD, size_max=_RECORD_BYTES_MAX) or b"")
            owner = f"{facts['owner']} (process {facts['pid']} on {facts['host']})"
            return Holder(owner[:500], int(facts["since_ms"]), None)
        except (TableError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None


class FileHeld:
    """A granted file lock. It has no fencing token: the slots fence."""

    token: int | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode = self._find_inode()

    @property
    def lost(self) -> str | None:
        """Why others may hold it too: somebody removed the file, or put another in its place."""
        return None if self._find_inode() == self._inode else f"{self._path} was removed"

    def _find_inode(self) -> int | None:
        try:
            return os.stat(self._path, follow_symlinks=False).st_ino
        except OSError:
            return None


def try_lock(path: str) -> Locked | None:
    """Lock a file at once; None if somebody else has it."""
    import filelock  # noqa: PLC0415 - its only place, and readers do without

    lock = filelock.FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        return None
    return lock
