"""Files on a local disk that appear whole or not at all, and stay after a power cut.

A file gets its content first, without a name or under a hidden one; it is synced; it gets its
name in one step that fails if the name is taken; then its directory is synced. Paths are relative
to the root, and no link below it is followed.
"""

# Every call is counted in microseconds here, so no pathlib.
# ruff: noqa: PTH103, PTH112, PTH120

from __future__ import annotations

import fcntl
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from plait.ports import Ids
from plait.storage.exclusive import NAMELESS, UNSUPPORTED, link_named, link_nameless
from plait.storage.port import IDENTITY, META
from plait.storage.tree import (
    MODE,
    READ,
    WRITE,
    exists,
    open_below,
    open_directory,
    open_file,
    parent,
)

TEMP_PREFIX = ".plait-tmp-"
_TEMP = re.compile(re.escape(TEMP_PREFIX) + r"[0-9a-f]{16}", re.ASCII)
_SYNC = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_THREADS_MAX, _THREADS_FROM = 8, 4
_ANCHORED_MAX = 50_000


class Disk:
    """Writes and syncs below one directory; ``fsyncs`` counts the syncs.

    A table that is gone must stay gone. If a client of a table that was deleted, renamed or
    unmounted made the directory again, its files would be in no table, or in another one. So only
    the creation of a table makes the root and ``.meta``, and ``makes_root`` ends with it. Other
    directories are made in a root that has ``.meta``.

    Every method raises OSError as the system gave it, and CorruptMetadataError for a link or a
    special file in the place of a file or directory.
    """

    def __init__(
        self, root: str, ids: Ids, *, nameless: bool = True, makes_root: bool = True
    ) -> None:
        self.fsyncs = 0
        self.makes_root = makes_root
        self._root, self._ids = root, ids
        self._nameless = nameless and bool(NAMELESS)
        self._floor = os.path.dirname(root)
        self._anchored: set[str] = set()
        self._counting = threading.Lock()

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory that a file is to be in; it is made when it is missing."""
        place, _, name = path.rpartition("/")
        try:
            directory = open_directory(self._root, place)
        except FileNotFoundError:
            directory = self._make_directory(place, path)
        try:
            yield directory, name
        finally:
            os.close(directory)

    def replace(self, path: str, body: bytes) -> None:
        """Write a whole file in place of one that may be there; not synced."""
        with self.parent(path) as (directory, name):
            self._replace(directory, name, body)

    def _replace(self, directory: int, name: str, body: bytes) -> None:
        descriptor, temp = self.open_temp(directory)
        try:
            _write(descriptor, body)
            os.rename(temp, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            unlink(directory, temp)
            raise
        finally:
            os.close(descriptor)

    def swap(self, path: str, body: bytes, expected: bytes) -> bool | None:
        """Write a whole file in place of exactly ``expected``; None while others do the same.

        The directory is locked meanwhile: the lock ends with its process, however that dies, and
        leaves no file behind.
        """
        with parent(self._root, path) as (directory, name):
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            if not _holds(directory, name, expected, path=path):
                return False
            self._replace(directory, name, body)
            return True

    def publish(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free: True; else False. Durable.

        Raises:
            NotImplementedError: the file system cannot.
        """
        with self.parent(path) as (directory, name):
            if exists(directory, name):  # a loser need not sync what nobody will see
                return False
            won = None
            descriptor = self._open_nameless(directory)
            if descriptor is not None:
                try:
                    won = self._publish_nameless(descriptor, directory, name, body)
                except NotImplementedError:
                    self._nameless = False
            if won is None:
                won = self._publish_named(directory, name, body)
        if path == IDENTITY:
            self.makes_root = False
        if won:
            self.sync_names([os.path.dirname(f"{self._root}/{path}")])
        return won

    def _publish_nameless(self, descriptor: int, directory: int, name: str, body: bytes) -> bool:
        try:
            _write(descriptor, body)
            self._fsync(descriptor)
            return link_nameless(descriptor, directory, name)
        finally:
            os.close(descriptor)

    def _publish_named(self, directory: int, name: str, body: bytes) -> bool:
        descriptor, temp = self.open_temp(directory)
        try:
            _write(descriptor, body)
            self._fsync(descriptor)
            return link_named(directory, temp, name)
        finally:
            os.close(descriptor)
            unlink(directory, temp)

    def open_temp(self, directory: int) -> tuple[int, str]:
        """Open a new file under a hidden name; return its descriptor and the name."""
        temp = f"{TEMP_PREFIX}{self._ids.nonce()}"
        return os.open(temp, WRITE | os.O_CREAT | os.O_EXCL, MODE, dir_fd=directory), temp

    def time_ms(self) -> int:
        """Return the disk's time: what a new file in the root is stamped with."""
        with self.parent(TEMP_PREFIX) as (directory, _):
            descriptor, temp = self._open_nameless(directory), ""
            if descriptor is None:
                descriptor, temp = self.open_temp(directory)
            try:
                return os.fstat(descriptor).st_mtime_ns // 1_000_000
            finally:
                os.close(descriptor)
                if temp:
                    unlink(directory, temp)

    def _open_nameless(self, directory: int) -> int | None:
        """Open a new file without a name; None where there is no such thing."""
        if not self._nameless:
            return None
        flags = os.O_WRONLY | os.O_CLOEXEC | NAMELESS
        try:
            return os.open(".", flags, MODE, dir_fd=directory)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            self._nameless = False
            return None

    def _make_directory(self, place: str, path: str) -> int:
        """Make the directory that a file is to be in, as far as that is allowed; return it open.

        Each step is made in the directory that was opened before it, so nothing appears where
        the root was deleted, or another one put in its place, meanwhile.
        """
        if self.makes_root:
            self._make_root()
            return open_below(open_directory(self._root, ""), place, lambda _: True)
        root = open_directory(self._root, "")
        try:
            os.stat(META, dir_fd=root, follow_symlinks=False)
        except OSError:
            os.close(root)
            raise
        begins = path.endswith(f"/{IDENTITY}")  # of a table inside this one

        def may_make(directory: str) -> bool:
            if directory == META:
                return False
            return begins or not directory.endswith(f"/{META}")

        return open_below(root, place, may_make)

    def _make_root(self) -> None:
        floor = self._floor
        while not os.path.isdir(floor):  # only while the table itself is being made
            floor = os.path.dirname(floor)
        self._floor = floor
        os.makedirs(self._root, exist_ok=True)

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
        descriptor = os.open(path, _SYNC)
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
        try:
            with ThreadPoolExecutor(min(_THREADS_MAX, len(paths))) as pool:
                for _ in pool.map(self.sync, paths):
                    pass
        except RuntimeError:  # no thread can be had
            for path in paths:
                self.sync(path)

    def sync_names(self, directories: Iterable[str]) -> None:
        """Sync directories whose names changed, and once each the way that leads to them.

        Whoever made a directory may have died before its name was durable. So the first time
        that it meets one, it syncs the parent too, whoever made it.
        """
        changed = dict.fromkeys(directories)
        opened: list[str] = []
        for start in list(changed):
            directory = start
            while directory not in self._anchored and len(directory) > len(self._floor):
                opened.append(directory)
                above = os.path.dirname(directory)
                if above == directory:  # the top of the disk
                    break
                directory = above
                changed[directory] = None
        for directory in changed:
            try:
                self.sync(directory)
            except PermissionError:
                if directory.startswith(self._root):
                    raise  # above the table one may be allowed to enter and not to look
        if len(self._anchored) > _ANCHORED_MAX:
            self._anchored.clear()
        self._anchored.update(opened)


def kernel_ms() -> int | None:
    """Return the time that a new file on any disk of this machine gets; None if it is not told."""
    if not hasattr(os, "memfd_create"):
        return None
    descriptor = os.memfd_create("plait")
    try:
        return os.fstat(descriptor).st_mtime_ns // 1_000_000
    finally:
        os.close(descriptor)


def unlink(directory: int, temp: str) -> None:
    """Remove a hidden name; one that stays is no harm, it is swept when it is old."""
    try:
        os.unlink(temp, dir_fd=directory)
    except OSError:
        return


def is_temporary(name: str) -> bool:
    """Tell whether ``open_temp`` gave this name."""
    return _TEMP.fullmatch(name) is not None


def _holds(directory: int, name: str, expected: bytes, *, path: str) -> bool:
    descriptor = open_file(directory, name, READ, path=path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(expected) + 1) == expected


def _write(descriptor: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
