"""Files on a local disk that appear whole or not at all, and stay after a power cut.

A file gets its content first, without a name or under a hidden one; it is synced; it gets its
name in one step that fails if the name is taken; then its directory is synced.
"""

# Every call is counted in microseconds here, so no pathlib.
# ruff: noqa: PTH103, PTH104, PTH108, PTH112, PTH120

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from plait.ports import Ids
from plait.storage.exclusive import NAMELESS, UNSUPPORTED, link_named, link_nameless

TEMP_PREFIX = ".plait-tmp-"
READ = os.O_RDONLY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CLOEXEC
_MODE = 0o666  # the umask takes away what it must
_THREADS_MAX, _THREADS_FROM = 8, 4
_ANCHORED_MAX = 50_000


class Disk:
    """Writes and syncs below one directory; ``fsyncs`` counts the syncs.

    Every method raises OSError as the system gave it.
    """

    def __init__(self, root: str, ids: Ids, *, nameless: bool = True) -> None:
        self.fsyncs = 0
        self._root, self._ids = root, ids
        self._nameless = nameless and bool(NAMELESS)
        self._floor = os.path.dirname(root)
        self._anchored: set[str] = set()
        self._counting = threading.Lock()

    def replace(self, target: str, body: bytes) -> None:
        """Write a whole file in place of one that may be there; not synced."""
        descriptor, temp = self.open_temp(os.path.dirname(target))
        try:
            _write(descriptor, body)
            os.rename(temp, target)
        except BaseException:
            unlink(temp)
            raise
        finally:
            os.close(descriptor)

    def swap(self, target: str, body: bytes, expected: bytes) -> bool | None:
        """Write a whole file in place of exactly ``expected``; None while others do the same.

        The directory is locked meanwhile: the lock ends with its process, however that dies, and
        leaves no file behind.
        """
        directory = os.open(os.path.dirname(target), READ)
        try:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            if not _holds(target, expected):
                return False
            self.replace(target, body)
            return True
        finally:
            os.close(directory)

    def publish(self, target: str, body: bytes) -> bool:
        """Write a whole file if the name is free: True; else False. Durable.

        Raises:
            NotImplementedError: the file system cannot.
        """
        directory = os.path.dirname(target)
        if self._nameless:
            try:
                won = self._publish_nameless(directory, target, body)
            except NotImplementedError:
                self._nameless = False
        if not self._nameless:
            won = self._publish_named(directory, target, body)
        if won:
            self.sync_names([directory])
        return won

    def _publish_nameless(self, directory: str, target: str, body: bytes) -> bool:
        try:
            descriptor = self._open(directory, _WRITE | NAMELESS, directory)
        except OSError as error:
            if error.errno in UNSUPPORTED:
                raise NotImplementedError from error
            raise
        try:
            _write(descriptor, body)
            self._fsync(descriptor)
            return link_nameless(descriptor, target)
        finally:
            os.close(descriptor)

    def _publish_named(self, directory: str, target: str, body: bytes) -> bool:
        descriptor, temp = self.open_temp(directory)
        try:
            _write(descriptor, body)
            self._fsync(descriptor)
            return link_named(temp, target)
        finally:
            os.close(descriptor)
            unlink(temp)

    def open_temp(self, directory: str) -> tuple[int, str]:
        """Open a new file under a hidden name; its directory is made when it is missing."""
        temp = f"{directory}/{TEMP_PREFIX}{self._ids.nonce()}"
        return self._open(temp, _WRITE | os.O_CREAT | os.O_EXCL, directory), temp

    def _open(self, path: str, flags: int, directory: str) -> int:
        try:
            return os.open(path, flags, _MODE)
        except FileNotFoundError:
            self.make(directory)
            return os.open(path, flags, _MODE)

    def make(self, directory: str) -> None:
        """Make a directory and those above it."""
        floor = self._floor
        while not os.path.isdir(floor):  # only while the table itself is being made
            floor = os.path.dirname(floor)
        self._floor = floor
        os.makedirs(directory, exist_ok=True)

    # --- making things durable -----------------------------------------------------------------

    def _fsync(self, descriptor: int) -> None:
        if sys.platform == "darwin":  # fsync leaves the data in the drive's cache there
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)
        with self._counting:
            self.fsyncs += 1

    def sync(self, path: str) -> None:
        """Make a file's content, or a directory's names, durable."""
        descriptor = os.open(path, READ)
        try:
            self._fsync(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def sync_files(self, paths: list[str]) -> None:
        """Make the contents of many files durable; several at once."""
        if len(paths) < _THREADS_FROM:
            for path in paths:
                self.sync(path)
            return
        with ThreadPoolExecutor(min(_THREADS_MAX, len(paths))) as pool:
            for _ in pool.map(self.sync, paths):
                pass

    def sync_names(self, directories: Iterable[str]) -> None:
        """Sync directories whose names changed, and once each the way that leads to them.

        Whoever made a directory may have died before its name was durable. So the first time
        that it meets one, it syncs the parent too, whoever made it.
        """
        changed = dict.fromkeys(directories)
        met: list[str] = []
        for start in list(changed):
            directory = start
            while directory not in self._anchored and len(directory) > len(self._floor):
                met.append(directory)
                directory = os.path.dirname(directory)
                changed[directory] = None
        for directory in changed:
            try:
                self.sync(directory)
            except PermissionError:
                if directory.startswith(self._root):
                    raise  # above the table one may be allowed to enter and not to look
        if len(self._anchored) > _ANCHORED_MAX:
            self._anchored.clear()
        self._anchored.update(met)


def unlink(temp: str) -> None:
    """Remove a hidden name; one that stays is no harm, it is swept when it is old."""
    try:
        os.unlink(temp)
    except OSError:
        return


def _holds(target: str, expected: bytes) -> bool:
    descriptor = os.open(target, READ)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(expected) + 1) == expected


def _write(descriptor: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
