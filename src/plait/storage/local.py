"""Local disks: paths and ``file://`` URIs.

Opening with ``x`` would be cheaper than what ``disk`` does, and is not enough: the name is there
before the bytes are, for readers and after a crash.
"""

# Every call is counted in microseconds here, so no pathlib.
# ruff: noqa: PTH100, PTH108, PTH110, PTH112, PTH116, PTH120

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from functools import cached_property

import pyarrow.fs as pafs

from plait.errors import CapabilityMissingError, CorruptMetadataError, StorageError
from plait.model.plan import StoreSpec
from plait.ports import Clock, Ids, SystemClock, SystemIds
from plait.storage.arrow import RootedHandler
from plait.storage.declared import COHERENT, declared_of
from plait.storage.disk import READ, TEMP_PREFIX, Disk, unlink
from plait.storage.mounts import find_mount
from plait.storage.port import FIND_BYTES_MAX, Capabilities, FileInfo, check_path
from plait.storage.skew import ServerClock

TEMP_AGE_MS_MAX = 24 * 3600 * 1000
SWAP_WAIT_S_MAX = 10.0
_SWAP_POLL_S = 0.001
_Absent = (FileNotFoundError, NotADirectoryError)


class LocalStore:
    """A table in a directory, which is made when something is written.

    Args:
        root: the directory.
        options: the storage options that led here, for ``spec``.
        clock: this machine's clock if None.
        ids: names of temporary files.
        nameless: use ``O_TMPFILE`` where there is such a thing.
    """

    def __init__(
        self,
        root: str,
        *,
        options: tuple[tuple[str, object], ...] = (),
        clock: Clock | None = None,
        ids: Ids | None = None,
        nameless: bool = True,
    ) -> None:
        self.root = os.path.abspath(root)
        self._spec = StoreSpec(self.root, options)
        self._base = self.root.rstrip("/") + "/"
        self._clock = clock or SystemClock()
        self._disk = Disk(self.root, ids or SystemIds(), nameless=nameless)

    @property
    def spec(self) -> StoreSpec:
        """Where this store is."""
        return self._spec

    @property
    def fsyncs(self) -> int:
        """Count the syncs of files and directories that this store made."""
        return self._disk.fsyncs

    @cached_property
    def capabilities(self) -> Capabilities:
        """Everything on a disk; no atomic put on a network mount that caches look-ups."""
        mount = find_mount(self.root)
        coherent = mount is None or mount.coherent or COHERENT in declared_of(self._spec)
        swaps = mount is None or not mount.remote  # a lock on a directory goes no further
        return Capabilities(
            coherent, durable=True, shared=True, compare_and_swap=swaps, coherent=coherent
        )

    def check_root(self) -> None:
        """Raise StorageError if the place of the table is taken by a file."""
        if os.path.exists(self.root) and not os.path.isdir(self.root):
            message = f"{self.root} is a file"
            raise StorageError(message, hint="give a directory", path=self.root)

    def find(self, path: str, *, size_max: int = FIND_BYTES_MAX) -> bytes | None:
        """Read a whole file; None if there is none."""
        try:
            descriptor = os.open(self._base + check_path(path), READ)
        except _Absent:
            return None
        except OSError as error:
            raise _failed(path, error, verb="read") from error
        try:
            size = os.fstat(descriptor).st_size
            if size <= size_max:
                return _read(descriptor, size)
        except IsADirectoryError:
            return None
        except OSError as error:
            raise _failed(path, error, verb="read") from error
        finally:
            os.close(descriptor)
        message = f"{path} has {size} bytes, more than the {size_max} that it may have"
        raise CorruptMetadataError(message, path=path, expected=size_max, found=size)

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file, replacing one that is there; not synced."""
        try:
            self._disk.replace(self._base + check_path(path), body)
        except OSError as error:
            raise _failed(path, error, verb="write") from error

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free; durable on return."""
        target = self._base + check_path(path)
        if _exists(target):  # a loser need not sync what nobody will see
            return False
        try:
            return self._disk.publish(target, body)
        except NotImplementedError as error:
            message = f"the file system of {self.root} has neither hard links nor renameat2"
            hint = "keep the table on a local disk or in an object store"
            raise CapabilityMissingError(
                message, hint=hint, capability="put_if_absent", uri=self.spec.uri
            ) from error
        except OSError as error:
            raise _failed(path, error, verb="write") from error

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        """Write a whole file in place of exactly ``expected``; not synced."""
        target = self._base + check_path(path)
        if not self.capabilities.compare_and_swap:
            message = f"{self.root} is on a network mount, whose locks are not relied on"
            hint = "use lock='file' there"
            raise CapabilityMissingError(
                message, hint=hint, capability="compare_and_swap", uri=self.spec.uri
            )
        deadline = self._clock.monotonic() + SWAP_WAIT_S_MAX
        try:
            while (swapped := self._disk.swap(target, body, expected)) is None:
                if self._clock.monotonic() > deadline:
                    raise TimeoutError(None, "another process holds its directory")
                self._clock.sleep(_SWAP_POLL_S)
        except _Absent:
            return False
        except OSError as error:
            raise _failed(path, error, verb="replace") from error
        return swapped

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List the files below a directory, in the order of their paths.

        Temporary names that died more than a day ago are swept on the way.
        """
        top = prefix.rstrip("/")
        start = self._base + check_path(top) if top else self.root
        oldest_ms = self._clock.now_ms() - TEMP_AGE_MS_MAX
        try:
            yield from _walk(start, f"{top}/" if top else "", oldest_ms)
        except OSError as error:
            raise _failed(prefix, error, verb="list") from error

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error."""
        for path in paths:
            try:
                os.unlink(self._base + check_path(path))
            except _Absent:
                continue
            except OSError as error:
                raise _failed(path, error, verb="delete") from error

    def persist(self, paths: Iterable[str]) -> None:
        """Sync files and, once each, the directories that hold them."""
        targets = list(dict.fromkeys(self._base + check_path(path) for path in paths))
        try:
            self._disk.sync_files(targets)
            self._disk.sync_names({os.path.dirname(target) for target in targets})
        except OSError as error:
            name = str(error.filename or self.root).removeprefix(self._base)
            raise _failed(name, error, verb="sync") from error

    def now_ms(self) -> int:
        """Give the clock that stamps the files: this machine's, or the file server's."""
        return self._server.now_ms() if self._server else self._clock.now_ms()

    def filesystem(self) -> pafs.FileSystem:
        """Give an Arrow file system rooted at the table."""
        base = pafs.SubTreeFileSystem(self.root, pafs.LocalFileSystem())
        handler = RootedHandler(base, "local", make_parents=self._make_parents)
        return pafs.PyFileSystem(handler)

    def _make_parents(self, path: str) -> None:
        self._disk.make(os.path.dirname(self._base + path))

    def location(self, path: str) -> str:
        """Give the absolute path of a file."""
        return self._base + check_path(path)

    @cached_property
    def _server(self) -> ServerClock | None:
        mount = find_mount(self.root)
        remote = mount is not None and mount.remote
        return ServerClock(self._clock, self._ask_server) if remote else None

    def _ask_server(self) -> int:
        try:
            descriptor, temp = self._disk.open_temp(self.root)
        except OSError:  # read only: nothing is decided by a clock then
            return self._clock.now_ms()
        try:
            return os.fstat(descriptor).st_mtime_ns // 1_000_000
        finally:
            os.close(descriptor)
            unlink(temp)


def _walk(directory: str, prefix: str, oldest_ms: int) -> Iterator[FileInfo]:
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=_order)
    except _Absent:
        return
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{path}/", oldest_ms)
            continue
        try:
            facts = entry.stat()
        except FileNotFoundError:  # deleted since the directory was read
            continue
        modified_ms = facts.st_mtime_ns // 1_000_000
        if entry.name.startswith(TEMP_PREFIX):
            if modified_ms < oldest_ms:  # its writer died long ago
                unlink(entry.path)
        elif stat.S_ISREG(facts.st_mode):
            yield FileInfo(path, facts.st_size, modified_ms)


def _order(entry: os.DirEntry[str]) -> str:
    """Sort names so that whole paths come out sorted: a directory counts with its slash."""
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _exists(target: str) -> bool:
    try:
        os.stat(target)
    except OSError:
        return False
    return True


def _read(descriptor: int, size: int) -> bytes:
    body = os.read(descriptor, size + 1)
    if len(body) == size:
        return body
    parts = [body]
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _failed(path: str, error: OSError, *, verb: str) -> StorageError:
    cause = error.strerror or type(error).__name__
    message = f"cannot {verb} {path}: {cause}"
    hint = "see whether the disk is there, has room, and may be written"
    return StorageError(message, hint=hint, path=path)
