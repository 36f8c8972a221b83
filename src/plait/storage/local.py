"""Local disks: paths and ``file://`` URIs.

Opening with ``x`` would be cheaper than what ``disk`` does, and is not enough: the name is there
before the bytes are, for readers and after a crash.
"""

# Every call is counted in microseconds here, so no pathlib.
# ruff: noqa: PTH110, PTH112

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow.fs as pafs

from plait.errors import (
    CapabilityMissingError,
    ClockUnavailableError,
    CorruptMetadataError,
    StorageError,
)
from plait.model.cached import cached_property
from plait.model.consent import absolute_path
from plait.model.store_address import StoreAddress
from plait.model.texts import is_text
from plait.ports import Backoff, Clock, Ids, SystemClock, SystemIds
from plait.storage.arrow import LocalFiles
from plait.storage.disk import TEMP_PREFIX, Disk, is_temporary, kernel_ms, unlink
from plait.storage.location import COHERENT, declared_of
from plait.storage.mounts import find_mount
from plait.storage.port import FIND_BYTES_MAX, Capabilities, FileInfo, check_path, lost, no_clock
from plait.storage.skew import JUMP_MS, ServerClock
from plait.storage.tree import (
    READ,
    find_first,
    kind_of,
    open_directory,
    open_file,
    open_inner,
    parent,
)

TEMP_AGE_MS_MAX = 24 * 3600 * 1000
SWAP_WAIT_S_MAX = 10.0
_SWAP_POLL_S, _SWAP_POLL_S_MAX = 0.001, 0.02
_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_JUMP_MS = 50
"""On a local disk asking is cheap."""
_STAMP_MS_MAX = 7_258_118_400_000  # the year 2200; file systems end in 2446 at the earliest
DEPTH_MAX = 64
"""A listing goes so deep: tables have three levels at most."""


class LocalStore:
    """A table in a directory.

    Args:
        root: the directory.
        options: the storage options that led here, for ``address``.
        clock: this machine's clock if None.
        ids: names of temporary files.
        nameless: use ``O_TMPFILE`` where there is such a thing.
        makes_root: whether a write makes the directory when it is missing. That ends when a
            table is created in it.
    """

    def __init__(
        self,
        root: str,
        *,
        options: tuple[tuple[str, object], ...] = (),
        clock: Clock | None = None,
        ids: Ids | None = None,
        nameless: bool = True,
        makes_root: bool = True,
    ) -> None:
        self.root = os.path.normpath(absolute_path(root))
        self._address = StoreAddress(self.root, options)
        self._base = self.root.rstrip("/") + "/"
        self._clock, self._ids = clock or SystemClock(), ids or SystemIds()
        self._disk = Disk(self.root, self._ids, nameless=nameless, makes_root=makes_root)

    @property
    def address(self) -> StoreAddress:
        """Where this store is."""
        return self._address

    @property
    def fsyncs(self) -> int:
        """Count the syncs of files and directories that this store made."""
        return self._disk.fsyncs

    @cached_property
    def capabilities(self) -> Capabilities:
        """Everything on a disk; no atomic put on a network mount that caches look-ups."""
        mount = find_mount(self.root)
        coherent = mount is None or mount.coherent or COHERENT in declared_of(self._address)
        swaps = mount is None or not mount.remote  # a lock on a directory goes no further
        return Capabilities(coherent, compare_and_swap=swaps, coherent=coherent)

    def check_root(self) -> None:
        """Raise StorageError if the place of the table is taken by a file."""
        if os.path.exists(self.root) and not os.path.isdir(self.root):
            raise StorageError(f"{self.root} is a file", hint="pass a directory", path=self.root)

    def find(
        self, path: str, *, size_max: int = FIND_BYTES_MAX, later: Sequence[str] = ()
    ) -> bytes | None:
        """Read a whole file; None if there is none."""
        check_path(path)
        try:
            descriptor = self._open_found(path)
            if descriptor is None and (after := find_first(self.root, later)) is not None:
                descriptor = self._open_found(path)  # both may have come since
                if descriptor is None:
                    raise lost(path, after)
        except OSError as error:
            raise _failed(path, error, verb="read") from error
        if descriptor is None:
            return None
        try:
            size = os.fstat(descriptor).st_size
            if size <= size_max:
                return _read(descriptor, size)
        except OSError as error:
            raise _failed(path, error, verb="read") from error
        finally:
            os.close(descriptor)
        message = f"{path} has {size} bytes; at most {size_max} are allowed"
        raise CorruptMetadataError(message, path=path, expected=size_max, found=size)

    def _open_found(self, path: str) -> int | None:
        try:
            with parent(self.root, path) as (directory, name):
                return open_file(directory, name, READ, path=path)
        except FileNotFoundError:
            return None

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file, replacing one that is there; not synced."""
        try:
            self._disk.replace(check_path(path), body)
        except OSError as error:
            raise _failed(path, error, verb="write") from error

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free; durable on return."""
        check_path(path)
        try:
            return self._disk.publish(path, body)
        except NotImplementedError as error:
            message = f"the file system of {self.root} has neither hard links nor renameat2"
            hint = "keep the table on a local disk or in an object store"
            raise CapabilityMissingError(
                message, hint=hint, capability="put_if_absent", uri=self.address.uri
            ) from error
        except OSError as error:
            raise _failed(path, error, verb="write") from error

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        """Write a whole file in place of exactly ``expected``; not synced."""
        check_path(path)
        if not self.capabilities.compare_and_swap:
            message = f"{self.root} is on a network mount, where a swap is not atomic"
            hint = "keep the table on a local disk or in an object store"
            raise CapabilityMissingError(
                message, hint=hint, capability="compare_and_swap", uri=self.address.uri
            )
        deadline = self._clock.monotonic() + SWAP_WAIT_S_MAX
        backoff = Backoff(self._clock, self._ids, _SWAP_POLL_S, _SWAP_POLL_S_MAX)
        try:
            while (swapped := self._disk.swap(path, body, expected)) is None:
                if self._clock.monotonic() > deadline:
                    raise TimeoutError(None, "another process holds its directory")
                backoff.pause()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _failed(path, error, verb="replace") from error
        return swapped

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List the files below a directory, in the order of their paths.

        A link or a special file is listed and not followed: whoever opens it is refused. A name
        that is no text to this process is left out.
        Temporary names that died more than a day ago are swept on the way.
        """
        top = prefix.rstrip("/")
        if top:
            check_path(top)
        try:
            start = open_directory(self.root, top)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed(prefix, error, verb="list") from error
        try:
            yield from _walk(start, f"{top}/" if top else "", self._sweep)
        except OSError as error:
            raise _failed(prefix, error, verb="list") from error

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error. Of a link, the link itself goes."""
        for path in paths:
            check_path(path)
            try:
                with parent(self.root, path) as (directory, name):
                    os.unlink(name, dir_fd=directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _failed(path, error, verb="delete") from error

    def persist(self, paths: Iterable[str]) -> None:
        """Sync files and, once each, the directories that hold them."""
        targets = list(dict.fromkeys(self._base + check_path(path) for path in paths))
        try:
            self._disk.sync_files(targets)
            self._disk.sync_names({target.rpartition("/")[0] for target in targets})
        except OSError as error:
            name = str(error.filename or self.root).removeprefix(self._base)
            raise _failed(name, error, verb="sync") from error

    def now_ms(self) -> int:
        """Return the time of the clock that stamps the files; raise ClockUnavailableError.

        That of the file server on a network mount; else that of the kernel, which is the same
        for every process of the machine, whatever clock it was given.
        """
        return self._server.now_ms()

    def filesystem(self) -> pafs.FileSystem:
        """Return an Arrow file system rooted at the table."""
        return pafs.PyFileSystem(LocalFiles(self._disk, self.root))

    def location(self, path: str) -> str:
        """Return the absolute path of a file."""
        return self._base + check_path(path)

    @cached_property
    def _server(self) -> ServerClock:
        mount = find_mount(self.root)
        remote = mount is not None and mount.remote
        if remote:
            return ServerClock(self._clock, self._ask_disk, jump_ms=JUMP_MS)
        return ServerClock(self._clock, self._ask_kernel, jump_ms=_JUMP_MS)

    def _ask_disk(self) -> int:
        try:
            return self._disk.time_ms()
        except OSError as error:
            raise no_clock(self.root, error.strerror or type(error).__name__) from error

    def _ask_kernel(self) -> int:
        """Ask a disk of this machine; of one that may only be read, whose clock stamps its files.

        The same kernel stamps the files of all of them.
        """
        try:
            return self._ask_disk()
        except ClockUnavailableError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _READ_ONLY:
                raise
            now_ms = kernel_ms()
            if now_ms is None:
                raise
            return now_ms

    def _sweep(self, directory: int, temp: str, modified_ms: int) -> None:
        """Remove a temporary file whose writer died long ago; none while nobody tells the time."""
        with suppress(ClockUnavailableError):
            if is_temporary(temp) and modified_ms < self.now_ms() - TEMP_AGE_MS_MAX:
                unlink(directory, temp)


_Sweep = Callable[[int, str, int], None]


def _walk(directory: int, prefix: str, sweep: _Sweep) -> Iterator[FileInfo]:
    """List a directory that is open, and close it."""
    try:
        if prefix.count("/") > DEPTH_MAX:
            raise OSError(None, f"directories are more than {DEPTH_MAX} levels deep")
        with os.scandir(directory) as scanned:
            # Arrow and JSON take text alone, and Plait gives no other names: a stranger's file with
            # one is passed over, as one that is hidden from this process.
            named = (each for each in scanned if each.name.isascii() or is_text(each.name))
            entries = sorted(named, key=_order)
        for entry in entries:
            with suppress(FileNotFoundError):  # deleted since the directory was read
                yield from _listed(directory, entry, prefix, sweep)
    finally:
        os.close(directory)


def _listed(
    directory: int, entry: os.DirEntry[str], prefix: str, sweep: _Sweep
) -> Iterator[FileInfo]:
    path = prefix + entry.name
    if entry.is_dir(follow_symlinks=False):
        yield from _walk(open_inner(directory, entry.name, path), f"{path}/", sweep)
        return
    facts = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
    modified_ms = facts.st_mtime_ns // 1_000_000
    if modified_ms > _STAMP_MS_MAX:  # nobody wrote it then: it must not seem young for ever
        modified_ms = 0
    if entry.name.startswith(TEMP_PREFIX):
        sweep(directory, entry.name, modified_ms)
    else:
        yield FileInfo(path, facts.st_size, modified_ms, kind_of(facts.st_mode))


def _order(entry: os.DirEntry[str]) -> str:
    """Sort names so that whole paths come out sorted: a directory counts with its slash."""
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _read(descriptor: int, size: int) -> bytes:
    """Read as many bytes as the file had when it was opened: a file that grows has no end."""
    parts = []
    while size and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _failed(path: str, error: OSError, *, verb: str) -> StorageError:
    cause = error.strerror or type(error).__name__
    message = f"cannot {verb} {path}: {cause}"
    hint = "check that the disk is mounted, has space, and is writable"
    if isinstance(error, FileNotFoundError):
        hint = "the directory of the table was deleted, renamed or unmounted, or never made"
    return StorageError(message, hint=hint, path=path)
