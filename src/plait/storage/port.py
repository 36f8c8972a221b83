"""The store port: everything that Plait asks of storage, and what it may rely on.

Paths are relative to the table, with ``/``; no path may leave it (``check_path``). What a store
promises beyond that is in its ``capabilities``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from plait.errors import ClockUnavailableError, CorruptMetadataError
from plait.model.instant import CLOCK_MS_MAX
from plait.model.store_address import StoreAddress

if TYPE_CHECKING:
    import pyarrow.fs as pafs

META = ".meta"
IDENTITY = f"{META}/table.json"
"""The file that is written first where a table is created, and by nothing else."""
FIND_BYTES_MAX = 64 << 20
"""What ``find`` reads at most, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file in a listing. ``modified_ms`` is by the store's clock; None if it cannot tell."""

    path: str
    size: int
    modified_ms: int | None
    kind: str = ""
    """What it is where it is no regular file, such as ``"a symbolic link"``; only disks tell."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do: known of its kind, declared by the user, or found by the probe."""

    put_if_absent: bool
    """Atomic: one winner among any number of callers on any hosts, whole content or nothing."""
    compare_and_swap: bool = False
    """``replace`` is atomic: of any number of callers that expect the same, one succeeds."""
    coherent: bool = False
    """Each read and listing sees every write that has finished, whoever made it, anywhere."""


class Store(Protocol):
    """A table's storage. Adapters translate every foreign error to StorageError, once."""

    @property
    def address(self) -> StoreAddress:
        """Where this store is; ``open_store(address)`` opens it anew.

        With ``/`` and the path of a directory behind its URI, it is the address of that directory.
        """
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do; to know it a probe may write, so only writers ask."""
        ...

    def find(self, path: str, *, size_max: int = ..., later: Sequence[str] = ()) -> bytes | None:
        """Read a whole file; None if there is none. Larger than size_max: CorruptMetadataError.

        ``later`` are names that are only ever given after this one. If one of them is there and
        this one is not, this one was lost: CorruptMetadataError. Where every look costs a
        request, a store looks for the first of them alone.
        """
        ...

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file, replacing one that is there. Readers see old or new, never a part.

        Not fsynced on local disks: for records that may be lost in a power cut.
        """
        ...

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free: True; else False, and nothing changed.

        Durable on return. Raise StorageError if the outcome is unknown. A store that hears no
        answer compares what is there with ``body``: a body must be unique to its attempt.
        """
        ...

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        """Write a whole file in place of exactly ``expected``: True; else False, nothing changed.

        Durable only as ``put`` is. Each body must be unique (a nonce): equal content would stand
        for equal history, and a store that hears no answer reads back whose content is there.
        False also when ours was there and somebody replaced it before it could be read back.
        Raise StorageError if the outcome is unknown.
        """
        ...

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List the files directly or deeper below a directory, in the order of their paths.

        A directory that is not there is empty. Temporary names of the adapter are left out.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error."""
        ...

    def persist(self, paths: Iterable[str]) -> None:
        """Make data files written through ``filesystem`` durable: contents and names."""
        ...

    def now_ms(self) -> int:
        """Return the store's time, ms since the epoch, as near as it can be known cheaply.

        One clock for all clients: never this machine's in place of one that does not answer.
        Raise ClockUnavailableError if it cannot be learned, or is absurd.
        """
        ...

    def filesystem(self) -> pafs.FileSystem:
        """Return an Arrow file system rooted at the table, for data files.

        It creates directories on the way. Not for metadata.
        """
        ...

    def location(self, path: str) -> str:
        """Return the absolute URI or path of a file, as Spark and others open it."""
        ...


def lost(path: str, later: str) -> CorruptMetadataError:
    """Make the error for a file that was there once: one that came after it is still there."""
    message = f"{path} is missing, but the later {later} exists"
    hint = "restore the file from a backup; nothing can be written to this table without it"
    return CorruptMetadataError(message, hint=hint, path=path, expected="a file", found="none")


_NO_NAMES = frozenset(("", ".", ".."))
"""What is no name of a file or directory: an absolute path has an empty one, and so has none."""


def check_path(path: str) -> str:
    """Return the path if it stays inside the table; raise CorruptMetadataError if not.

    >>> check_path("data/a.parquet")
    'data/a.parquet'
    """
    parts = path.split("/")
    bad = "\\" in path or "\0" in path or ":" in parts[0]
    if bad or not _NO_NAMES.isdisjoint(parts):
        raise CorruptMetadataError(
            f"a path in the metadata points outside the table: {path[:200]!r}",
            hint="do not use this table before you have checked its metadata",
            path=path,
            expected="a relative path",
            found=path,
        )
    return path


def sound_time(time_ms: int) -> int:
    """Return a clock's time; raise ClockUnavailableError if it is absurd."""
    if 0 <= time_ms <= CLOCK_MS_MAX:
        return time_ms
    message = f"the store's clock shows {time_ms} ms since 1970, which is impossible"
    hint = "correct the clock of the machine that stores the files"
    raise ClockUnavailableError(message, hint=hint, found=time_ms)


def no_clock(uri: str, cause: object) -> ClockUnavailableError:
    """Return the error to raise when a store does not tell its time."""
    message = f"the store of {uri} does not return its time: {cause}"
    hint = "no other clock was used and nothing was done; run it again when the store answers"
    return ClockUnavailableError(message, hint=hint, uri=uri)
