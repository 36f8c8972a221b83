"""Storage in this process, for tests and trials: ``memory://name``.

Every store of one name in a process shows the same files. They go with the process.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs

from plait.errors import CorruptMetadataError, OptionError
from plait.model.store_address import StoreAddress
from plait.ports import Clock, SystemClock
from plait.storage.port import FIND_BYTES_MAX, Capabilities, FileInfo, check_path, lost, sound_time

SCHEME = "memory://"


def in_this_process(address: StoreAddress) -> bool:
    """Tell whether other processes cannot reach a store."""
    return address.uri.startswith(SCHEME)


@dataclass(slots=True)
class _Space:
    """The files of one name: content and time of the last write."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    mutex: threading.RLock = field(default_factory=threading.RLock)  # a finaliser may come back


_SPACES: dict[str, _Space] = {}
_SPACES_MUTEX = threading.Lock()


class MemoryStore:
    """A table in a dictionary."""

    def __init__(self, uri: str, *, clock: Clock | None = None) -> None:
        uri = uri.rstrip("/")
        if not uri.removeprefix(SCHEME) or not uri.startswith(SCHEME):
            message = f"{uri!r} is not a location in memory"
            raise OptionError(message, hint="for example memory://trial", key="uri", value=uri)
        self._uri = uri
        self._clock = clock or SystemClock()
        with _SPACES_MUTEX:
            self._space = _SPACES.setdefault(uri, _Space())

    @property
    def address(self) -> StoreAddress:
        """Where this store is; only this process can open it."""
        return StoreAddress(self._uri)

    @property
    def capabilities(self) -> Capabilities:
        """Atomic, and gone with the process."""
        return Capabilities(put_if_absent=True, compare_and_swap=True, coherent=True)

    def find(
        self, path: str, *, size_max: int = FIND_BYTES_MAX, later: Sequence[str] = ()
    ) -> bytes | None:
        """Read a whole file; None if there is none."""
        check_path(path)
        with self._space.mutex:
            entry = self._space.files.get(path)
            after = next(filter(self._space.files.__contains__, later), None)
        if entry is None:
            if after is not None:
                raise lost(path, after)
            return None
        size = len(entry[0])
        if size > size_max:
            message = f"{path} has {size} bytes; at most {size_max} are allowed"
            raise CorruptMetadataError(message, path=path, expected=size_max, found=size)
        return entry[0]

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file, replacing one that is there."""
        entry = (bytes(body), self._clock.now_ms())
        with self._space.mutex:
            self._space.files[check_path(path)] = entry

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free."""
        entry = (bytes(body), self._clock.now_ms())
        with self._space.mutex:
            if check_path(path) in self._space.files:
                return False
            self._space.files[path] = entry
        return True

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        """Write a whole file in place of exactly ``expected``."""
        entry = (bytes(body), self._clock.now_ms())
        with self._space.mutex:
            there = self._space.files.get(check_path(path))
            if there is None or there[0] != expected:
                return False
            self._space.files[path] = entry
        return True

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List the files below a directory, in the order of their paths."""
        top = prefix.rstrip("/")
        start = f"{check_path(top)}/" if top else ""
        with self._space.mutex:
            held = list(self._space.files.items())
        # outside of the lock, and over a copy: a finaliser that runs meanwhile may delete
        infos = [
            FileInfo(path, len(body), modified_ms)
            for path, (body, modified_ms) in held
            if path.startswith(start)
        ]
        yield from sorted(infos, key=lambda info: info.path)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error."""
        for path in paths:
            with self._space.mutex:
                self._space.files.pop(check_path(path), None)

    def persist(self, paths: Iterable[str]) -> None:
        """Check the paths; nothing here survives the process."""
        for path in paths:
            check_path(path)

    def now_ms(self) -> int:
        """Return this machine's time; raise ClockUnavailableError if it is absurd."""
        return sound_time(self._clock.now_ms())

    def filesystem(self) -> pafs.FileSystem:
        """Return an Arrow file system over the same files."""
        return pafs.PyFileSystem(_MemoryHandler(self))

    def location(self, path: str) -> str:
        """Return the URI of a file; only this process can open it."""
        return f"{self._uri}/{check_path(path)}"


class _Output(io.BytesIO):
    """A file that is there once it is closed, whole."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        super().__init__()
        self._store, self._path = store, path

    def close(self) -> None:
        if not self.closed:
            self._store.put(self._path, self.getvalue())
        super().close()


class _MemoryHandler(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Arrow's calls on the files of a memory store; directories are parts of names."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def get_type_name(self) -> str:
        return "plait-memory"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _MemoryHandler):
            return self._store.address == other._store.address
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal by place, as Arrow asks

    def __ne__(self, other: object) -> bool:
        return not self == other

    def normalize_path(self, path: str) -> str:
        return path.rstrip("/")

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        return [self._info(path.rstrip("/")) for path in paths]

    def _info(self, path: str) -> pafs.FileInfo:
        body = self._store.find(path, size_max=_ANY) if path else None
        if body is not None:
            return pafs.FileInfo(path, pafs.FileType.File, size=len(body))
        if not path or next(self._store.list(path), None) is not None:
            return pafs.FileInfo(path, pafs.FileType.Directory)
        return pafs.FileInfo(path, pafs.FileType.NotFound)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        top = selector.base_dir.rstrip("/")
        start = f"{top}/" if top else ""
        infos: dict[str, pafs.FileInfo] = {}
        for info in self._store.list(top):
            parts = info.path.removeprefix(start).split("/")
            for depth in range(1, len(parts)):
                folder = start + "/".join(parts[:depth])
                infos.setdefault(folder, pafs.FileInfo(folder, pafs.FileType.Directory))
            infos[info.path] = pafs.FileInfo(info.path, pafs.FileType.File, size=info.size)
        if not infos and top and not selector.allow_not_found:
            raise FileNotFoundError(top)
        deep = selector.recursive
        return [info for path, info in infos.items() if deep or "/" not in path[len(start) :]]

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - Arrow's call
        pass

    def delete_dir(self, path: str) -> None:
        self._store.delete([info.path for info in self._store.list(check_path(path))])

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:  # noqa: FBT001, ARG002
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        raise PermissionError("cannot delete the contents of a whole table through its file system")

    def delete_file(self, path: str) -> None:
        self._body(path)
        self._store.delete([path])

    def move(self, src: str, dest: str) -> None:
        self.copy_file(src, dest)
        self._store.delete([src])

    def copy_file(self, src: str, dest: str) -> None:
        self._store.put(dest, self._body(src))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._body(path))

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._body(path))

    def open_output_stream(self, path: str, metadata: dict[str, str] | None) -> pa.NativeFile:  # noqa: ARG002
        return pa.PythonFile(_Output(self._store, check_path(path)), mode="w")

    def open_append_stream(self, path: str, metadata: dict[str, str] | None) -> pa.NativeFile:  # noqa: ARG002
        raise PermissionError(f"{path}: files of a table are written once, never appended to")

    def _body(self, path: str) -> bytes:
        body = self._store.find(path, size_max=_ANY)
        if body is None:
            raise FileNotFoundError(path)
        return body


_ANY = 1 << 62
