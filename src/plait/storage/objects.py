"""What the stores behind fsspec have in common.

A conditional write whose reply is lost looks like a lost race: the client sends it again and
hears that the name is taken, by its own bytes. So "taken" is never believed; the store is read
back, and the content, unique to its attempt, tells whose it is.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from plait.errors import CapabilityMissingError, CorruptMetadataError, StorageError, TableError
from plait.model.cached import cached_property
from plait.model.store_address import StoreAddress
from plait.ports import Backoff, Clock, Ids, SystemClock, SystemIds
from plait.storage.arrow import RootedHandler
from plait.storage.location import PROVEN, declared_of, options_of
from plait.storage.port import (
    FIND_BYTES_MAX,
    IDENTITY,
    META,
    Capabilities,
    FileInfo,
    check_path,
    lost,
    no_clock,
)
from plait.storage.probe import PASSED, ProbeSubject, establish
from plait.storage.skew import ServerClock

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

TEMP_PREFIX = ".plait-tmp-"
ATTEMPTS_MAX = 6
RETRY_S_MAX = 30.0
_PAUSE_S, _PAUSE_S_MAX = 0.2, 5.0
_READ_BLOCK, _WRITE_BLOCK = 1 << 20, 8 << 20
_CLOCK_FILE = ".meta/hints/clock"
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a kind of store before it is probed."""

    create_is_atomic: bool = False
    """``pipe_file(mode="create")`` is one conditional request to the server."""
    writes_are_whole: bool = False
    """A file that is being written is not there before it is complete."""
    has_directories: bool = True
    """Files can be written only into directories that are there."""
    swap_is_atomic: bool = False
    """``replace`` is one conditional request to the server."""
    coherent: bool = False
    """Each read and listing sees every write that has finished."""


class ObjectStore:
    """A table below one prefix of an fsspec file system.

    A subclass opens the file system, says in ``traits`` what is known of it, names in ``foreign``
    the errors of its library, which become StorageError here, and overrides ``reopen``. Without
    an atomic create in ``traits`` the store can be read only.
    """

    traits: Traits = Traits()
    foreign: tuple[type[Exception], ...] = (OSError,)

    def __init__(
        self,
        address: StoreAddress,
        files: AbstractFileSystem,
        root: str,
        *,
        makes_root: bool = True,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self.makes_root = makes_root
        self._address, self._files, self._root = address, files, root.rstrip("/")
        self._clock, self._ids = clock or SystemClock(), ids or SystemIds()
        self._server = ServerClock(self._clock, self._ask_server)

    @property
    def address(self) -> StoreAddress:
        """Where this store is."""
        return self._address

    @cached_property
    def capabilities(self) -> Capabilities:
        """What is known of this kind of store, so far as its server keeps to it.

        That is found by the probe, unless the server is known or the user declared that it was.
        """
        traits = self.traits
        if not traits.create_is_atomic:
            return Capabilities(put_if_absent=False, coherent=traits.coherent)
        proven = PROVEN in declared_of(self._address) or self._server_is_known()
        report = PASSED if proven else establish(self.probe_subject())
        return Capabilities(
            report.fit,
            compare_and_swap=traits.swap_is_atomic and report.swaps,
            coherent=traits.coherent or report.fresh,
        )

    def _server_is_known(self) -> bool:
        """Tell whether the server is one that honours conditions."""
        return False

    def probe_subject(self) -> ProbeSubject:
        """Return this store as the probe takes it."""
        scheme, _, rest = self._address.uri.partition("://")
        options = json.dumps(options_of(self._address), sort_keys=True, default=str)
        mark = hashlib.sha256(options.encode()).hexdigest()[:12]
        server = f"{scheme}://{rest.split('/', 1)[0] or rest} {mark}"
        return ProbeSubject(self, self.reopen, _library_of(self._files), server)

    def reopen(self) -> ObjectStore:
        """Open the same place anew, sharing no cache and no connection."""
        message = f"{type(self).__name__} must override reopen: the probe races several clients"
        raise NotImplementedError(message)

    def _at(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    # --- reading -------------------------------------------------------------------------------

    def find(
        self, path: str, *, size_max: int = FIND_BYTES_MAX, later: Sequence[str] = ()
    ) -> bytes | None:
        """Read a whole file with one ranged request; None if there is none.

        Where there is none, one more request looks for the first of ``later``.
        """
        with self._translated("read", path):
            body = self._load(self._at(path), size_max)
            if body is None and later and self._load(self._at(later[0]), 0) is not None:
                body = self._load(self._at(path), size_max)  # both may have come since
                if body is None:
                    raise lost(path, later[0])
        if body is not None and len(body) > size_max:
            message = f"{path} has more than {size_max} bytes"
            raise CorruptMetadataError(message, path=path, expected=size_max, found=len(body))
        return body

    def _load(self, full: str, size_max: int) -> bytes | None:
        try:
            return bytes(self._files.cat_file(full, start=0, end=size_max + 1))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        except (OSError, ValueError):  # an empty file has no bytes to ask for
            if self._files.info(full).get("size") == 0:
                return b""
            raise

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List the files below a directory, in the order of their paths."""
        top = prefix.rstrip("/")
        with self._translated("list", prefix):
            self._files.invalidate_cache()
            try:
                listed = self._files.find(self._at(top) if top else self._root, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return
        start = self._root.strip("/") + "/"
        infos = [
            _file_info(str(name).strip("/").removeprefix(start), facts)
            for name, facts in listed.items()
        ]
        yield from sorted((info for info in infos if info is not None), key=lambda i: i.path)

    # --- writing -------------------------------------------------------------------------------

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file, replacing one that is there."""
        full = self._at(path)
        with self._translated("write", path):
            self._make_parents(path)
            if self.traits.writes_are_whole:
                self._files.pipe_file(full, body)
                return
            temp = f"{full.rsplit('/', 1)[0]}/{TEMP_PREFIX}{self._ids.nonce()}"
            self._files.pipe_file(temp, body)
            self._files.mv(temp, full)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free; read it back whenever that is in doubt."""
        full = self._at(path)
        self._require_atomic()
        with self._translated("write", path):
            self._make_parents(path)
        deadline = self._clock.monotonic() + RETRY_S_MAX
        cause: Exception | None = None
        backoff = self._backoff()
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                backoff.pause()
            try:
                self._create(full, body)
            except self.foreign as error:
                self._raise_if_final(path, error)
                cause = error
            else:
                return True
            ours = self._find_ours(full, body)
            if ours is not None:
                return ours
            if self._clock.monotonic() > deadline:
                break
        message = f"the store did not say whether {path} was written: {cause}"
        hint = "it may appear later; read it before you write again"
        raise StorageError(message, hint=hint, path=path) from cause

    def _backoff(self) -> Backoff:
        return Backoff(self._clock, self._ids, _PAUSE_S, _PAUSE_S_MAX)

    def _create(self, full: str, body: bytes) -> None:
        self._files.pipe_file(full, body, mode="create")

    def _find_ours(self, full: str, body: bytes) -> bool | None:
        """Tell whether the file holds this body; None if there is none or nobody answers."""
        try:
            there = self._load(full, len(body))
        except self.foreign:
            return None
        return None if there is None else there == body

    def _raise_if_final(self, path: str, error: Exception) -> None:
        """Raise for what no repetition mends, and what was surely not written."""
        if isinstance(error, TableError):
            raise error
        if isinstance(error, OSError) and error.errno == errno.ENOSYS:
            raise self._unable(why="whose server does not support conditional writes") from error
        if isinstance(error, (PermissionError, FileNotFoundError, NotImplementedError)):
            raise _failed(path, error, verb="write") from error

    def _require_atomic(self) -> None:
        """Raise CapabilityMissingError where the store has no such operation at all."""
        if not self.traits.create_is_atomic:
            raise self._unable(why="which is not known to have an atomic put-if-absent")

    def _unable(self, *, why: str) -> CapabilityMissingError:
        message = f"cannot write to {self._address.uri}, {why}"
        hint = "keep the table on a local disk or in an S3-compatible store"
        return CapabilityMissingError(
            message, hint=hint, capability="put_if_absent", uri=self._address.uri
        )

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:  # noqa: ARG002 - the port's
        """Refuse: fsspec has no such call."""
        check_path(path)
        message = f"{self._address.uri} has no known compare-and-swap"
        hint = "use lock='none', or 'zookeeper://...'"
        raise CapabilityMissingError(
            message, hint=hint, capability="compare_and_swap", uri=self._address.uri
        )

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error."""
        for path in paths:
            with self._translated("delete", path):
                try:
                    self._files.rm_file(self._at(path))
                except FileNotFoundError:
                    continue

    def persist(self, paths: Iterable[str]) -> None:
        """Check the paths; what is stored was stored when its file was closed."""
        for path in paths:
            check_path(path)

    # --- the rest ------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the time of the clock that stamps the files; raise ClockUnavailableError."""
        return self._server.now_ms()

    def _ask_server(self) -> int:
        """Write a small file and see what time it got; raise ClockUnavailableError."""
        path = f"{_CLOCK_FILE}-{self._ids.nonce()}"
        try:
            self.put(path, b"?")
            with self._translated("ask the time of", path):
                self._files.invalidate_cache()
                modified_ms = _modified_ms(self._files.info(self._at(path)))
        except StorageError as error:
            raise no_clock(self._address.uri, error.message) from error
        finally:
            with suppress(StorageError):  # a hint that stays is no harm
                self.delete([path])
        if modified_ms is None:
            raise no_clock(self._address.uri, "its files have no times")
        return modified_ms

    def filesystem(self) -> pafs.FileSystem:
        """Return an Arrow file system rooted at the table."""
        base = pafs.SubTreeFileSystem(self._root, pafs.PyFileSystem(_Streams(self._files)))
        handler = RootedHandler(base, "objects", make_parents=self._make_parents)
        return pafs.PyFileSystem(handler)

    def _make_parents(self, path: str) -> None:
        """Make the directory of a file; the root and ``.meta`` only while a table is created."""
        if not self.traits.has_directories:
            return
        place = self._at(path).rsplit("/", 1)[0]
        if not self.makes_root:
            if self._files.isdir(place):
                return
            if not self._files.isdir(f"{self._root}/{META}"):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
        self._files.makedirs(place, exist_ok=True)
        if path == IDENTITY:
            self.makes_root = False

    def location(self, path: str) -> str:
        """Return the URI of a file."""
        return f"{self._address.uri}/{check_path(path)}"

    @contextmanager
    def _translated(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except TableError:
            raise
        except self.foreign as error:
            raise _failed(path, error, verb=verb) from error


class _Streams(pafs.FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """Arrow's own bridge, with fewer requests for each file and smaller buffers."""

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(self.fs.open(path, "rb", block_size=_READ_BLOCK), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: dict[str, str] | None) -> pa.NativeFile:  # noqa: ARG002
        return pa.PythonFile(self.fs.open(path, "wb", block_size=_WRITE_BLOCK), mode="w")


def _library_of(files: AbstractFileSystem) -> str:
    """Name the adapter's class, and the versions of its library and of fsspec."""
    kind = type(files)
    libraries = dict.fromkeys((kind.__module__.split(".")[0], "fsspec"))
    versions = [getattr(sys.modules.get(name), "__version__", "?") for name in libraries]
    shown = ", ".join(
        f"{name} {version}" for name, version in zip(libraries, versions, strict=True)
    )
    return f"{kind.__module__}.{kind.__qualname__}, {shown}"


def _file_info(path: str, facts: Mapping[str, object]) -> FileInfo | None:
    name = path.rsplit("/", 1)[-1]
    if facts.get("type") != "file" or name.startswith(TEMP_PREFIX) or not path:
        return None
    return FileInfo(path, int(str(facts.get("size") or 0)), _modified_ms(facts))


def _modified_ms(facts: Mapping[str, object]) -> int | None:
    for key in _TIMES:
        value = facts.get(key)
        if isinstance(value, (int, float)):
            return int(value * 1000)
        if isinstance(value, str):
            try:
                value = dt.datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, dt.datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return int(aware.timestamp() * 1000)
    return None


def _failed(path: str, error: Exception, *, verb: str) -> StorageError:
    message = f"cannot {verb} {path}: {type(error).__name__}: {error}"
    hint = "check that the store can be reached and the credentials allow it"
    return StorageError(message, hint=hint, path=path)
