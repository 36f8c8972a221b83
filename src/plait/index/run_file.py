"""Run files: sorted entries in blocks, and where each block begins (RFC 0028).

::

    magic       "PLTX", format version 1 (4)
    block       4,096 entries, the last block fewer: their hashes (8 each), rising; the numbers of
                their partitions (4 each); their versions (4 each)
    footer      the partitions, as a JSON list of texts; for each block its first hash (8) and the
                XXH64 of its bytes (8); then entries (8), bytes of the JSON (8) and the magic (8)

Numbers are little-endian. Whoever names the file also names its size, and size and XXH64 of its
footer. So one read loads the footer, and one more the block of a key.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs
import xxhash

from plait.errors import CorruptMetadataError
from plait.files.data_file import reading, writing
from plait.files.hash import Hashes
from plait.index.entries import IndexEntries
from plait.storage.port import check_path

BLOCK: Final = 4096
ENTRY_BYTES: Final = 16
_MAGIC: Final = b"PLTX\x01\x00\x00\x00"
_TAIL: Final = struct.Struct("<QQ8s")
_DIRECTORY: Final = 16
_STRETCH: Final = 128
"""Maximum number of blocks that are read at once."""
_PLACES_BYTES_MAX = 256 << 20
"""Maximum size of the partition names in a footer."""
_GAP: Final = 4
"""Maximum number of unneeded blocks that are read to save a call."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run file as a manifest names it."""

    path: str
    entries: int
    first: int
    """The smallest hash in it."""
    last: int
    size_bytes: int
    footer_bytes: int
    footer: int
    """The XXH64 of the footer."""

    def to_list(self) -> list[object]:
        """Return it as plain values."""
        bounds = [f"{self.first:016x}", f"{self.last:016x}"]
        sizes = [self.size_bytes, self.footer_bytes, f"{self.footer:016x}"]
        return [self.path, self.entries, *bounds, *sizes]

    @classmethod
    def from_list(cls, value: object) -> Self:
        """Read what ``to_list`` wrote; raise TypeError or ValueError for anything else."""
        if not isinstance(value, list):
            raise TypeError(value)
        path, entries, first, last, size, footer_bytes, footer = value
        counts = (entries, size, footer_bytes)
        if not isinstance(path, str) or any(type(each) is not int for each in counts):
            raise TypeError(value)
        found = cls(
            check_path(path),
            entries,
            int(first, 16),
            int(last, 16),
            size,
            footer_bytes,
            int(footer, 16),
        )
        body = size - footer_bytes - len(_MAGIC)
        # The footer is read whole: it must not be longer than what it has to say.
        places_bytes = footer_bytes - -(-entries // BLOCK) * _DIRECTORY - _TAIL.size
        if not 0 < entries * ENTRY_BYTES == body or found.first > found.last:
            raise ValueError(value)
        if not 0 <= places_bytes <= _PLACES_BYTES_MAX:
            raise ValueError(f"a footer of {footer_bytes} bytes for {entries} entries")
        return found


class RunWriter:
    """Writes one run file."""

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        """Open the file under a name of its own."""
        self._path = path
        with writing(path):
            self._sink = filesystem.open_output_stream(check_path(path))
            self._sink.write(_MAGIC)
        self._rest = IndexEntries.none()
        self._directory: list[int] = []
        self._count, self._first, self._last = 0, 0, 0

    @property
    def entries(self) -> int:
        """How many it has."""
        return self._count

    def add(self, entries: IndexEntries) -> None:
        """Take entries whose hashes follow those before."""
        if not len(entries):
            return
        if not self._count:
            self._first = int(entries.hashes[0])
        self._last = int(entries.hashes[-1])
        self._count += len(entries)
        held = IndexEntries.concat([self._rest, entries]) if len(self._rest) else entries
        whole = len(held) // BLOCK * BLOCK
        for start in range(0, whole, BLOCK):
            self._write(held.part(start, start + BLOCK))
        # A copy, so that a remainder does not keep what it was cut from.
        self._rest = held.take(np.arange(whole, len(held)))

    def close(self, places: Sequence[str]) -> RunFile:
        """Write the footer; ``places`` are the partitions by number."""
        if len(self._rest):
            self._write(self._rest)
        place_names = json.dumps(list(places), ensure_ascii=True, separators=(",", ":")).encode()
        directory = np.array(self._directory, "<u8").tobytes()
        footer = place_names + directory + _TAIL.pack(self._count, len(place_names), _MAGIC)
        with writing(self._path):
            self._sink.write(footer)
            self._sink.close()
        size = len(_MAGIC) + self._count * ENTRY_BYTES + len(footer)
        digest = xxhash.xxh64_intdigest(footer)
        return RunFile(self._path, self._count, self._first, self._last, size, len(footer), digest)

    def abandon(self) -> None:
        """Close a file that nobody will name."""
        self._sink.close()

    def _write(self, block: IndexEntries) -> None:
        body = b"".join(
            (
                block.hashes.astype("<u8", copy=False).tobytes(),
                block.places.astype("<u4", copy=False).tobytes(),
                block.versions.astype("<u4", copy=False).tobytes(),
            )
        )
        self._directory += [int(block.hashes[0]), xxhash.xxh64_intdigest(body)]
        with writing(self._path):
            self._sink.write(body)


@dataclass(frozen=True, slots=True)
class RunFooter:
    """The footer of a run file."""

    file: RunFile
    places: tuple[str, ...]
    firsts: Hashes
    """The first hash of each block."""
    sums: Hashes
    """The XXH64 of each block."""


class OpenRun:
    """A run file that is open for reading. Close it, or use it in a ``with`` block."""

    def __init__(
        self, filesystem: pafs.FileSystem, file: RunFile, footer: RunFooter | None = None
    ) -> None:
        """Open it; a footer that is known is not read again.

        Raises:
            CorruptMetadataError: the file is missing or damaged.
            StorageError: the store failed.
        """
        self._file = file
        with reading(file.path):
            self._source: pa.NativeFile = filesystem.open_input_file(file.path)
        try:
            self.footer = footer or self._load_footer()
        except BaseException:
            self._source.close()
            raise

    @property
    def firsts(self) -> Hashes:
        """The first hash of each block."""
        return self.footer.firsts

    def __enter__(self) -> Self:
        """Use it in a block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def between(self, low: int, high: int) -> IndexEntries:
        """Read the entries with hashes from ``low`` on and below ``high``.

        Raises:
            CorruptMetadataError: a block is damaged.
        """
        firsts = self.footer.firsts
        # Entries with the hash that a block begins with may begin in the block before.
        start = max(int(np.searchsorted(firsts, np.uint64(low), side="left")) - 1, 0)
        stop = len(firsts)
        if high < 1 << 64:
            stop = int(np.searchsorted(firsts, np.uint64(high), side="left"))
        if start >= stop:
            return IndexEntries.none()
        return IndexEntries.concat(self._stretches(start, stop)).between(low, high)

    def find(self, wanted: Hashes) -> IndexEntries:
        """Return the entries of sorted hashes, each of which comes once.

        Raises:
            CorruptMetadataError: a block is damaged.
        """
        found = []
        for start, stop in self._reached(wanted):
            for blocks in self._parts(start, stop):
                # Only hashes are copied together; of the rest, what was found.
                hashes = blocks.hashes()
                ends = np.searchsorted(wanted, hashes[[0, -1]])
                asked = wanted[ends[0] : ends[1] + 1]
                low = np.searchsorted(hashes, asked, side="left")
                count = np.searchsorted(hashes, asked, side="right") - low
                before = np.cumsum(count) - count
                at = np.arange(count.sum()) + np.repeat(low - before, count)
                found.append(blocks.take(hashes, at))
        return IndexEntries.concat(found)

    def all(self) -> Iterator[IndexEntries]:
        """Read every entry, some blocks at a time.

        Raises:
            CorruptMetadataError: a block is damaged.
        """
        yield from self._stretches(0, len(self.footer.firsts))

    def _reached(self, wanted: Hashes) -> Iterator[tuple[int, int]]:
        """Return stretches of blocks in which entries with these hashes can be."""
        firsts = self.footer.firsts
        low = np.maximum(np.searchsorted(firsts, wanted, side="left") - 1, 0)
        high = np.searchsorted(firsts, wanted, side="right")
        reached = np.zeros(len(firsts) + 1, np.int64)
        np.add.at(reached, low, 1)
        np.add.at(reached, high, -1)
        blocks = np.flatnonzero(np.cumsum(reached)[:-1] > 0)
        if not len(blocks):
            return
        cuts = np.flatnonzero(np.diff(blocks) > _GAP) + 1
        for group in np.split(blocks, cuts):
            for start in range(int(group[0]), int(group[-1]) + 1, _STRETCH):
                yield start, min(start + _STRETCH, int(group[-1]) + 1)

    def _stretches(self, start: int, stop: int) -> Iterator[IndexEntries]:
        for at in range(start, stop, _STRETCH):
            for blocks in self._parts(at, min(at + _STRETCH, stop)):
                yield blocks.entries()

    def _parts(self, start: int, stop: int) -> Iterator[_Blocks]:
        """Read blocks that follow each other; the shorter last one of a file stands alone."""
        path, count = self._file.path, self._file.entries
        begin, end = start * BLOCK, min(stop * BLOCK, count)
        with reading(path):
            size = (end - begin) * ENTRY_BYTES
            body: bytes = self._source.read_at(size, len(_MAGIC) + begin * ENTRY_BYTES)
        if len(body) != size:
            raise _damaged(path, f"{size} bytes of blocks", f"{len(body)}")
        view = memoryview(body)
        for number in range(start, stop):
            low = (number - start) * BLOCK * ENTRY_BYTES
            block = view[low : low + BLOCK * ENTRY_BYTES]
            if xxhash.xxh64_intdigest(block) != int(self.footer.sums[number]):
                raise _damaged(path, f"the checksum of block {number}", "another one")
        whole, rest = divmod(end - begin, BLOCK)
        if whole:
            yield _Blocks(view[: whole * BLOCK * ENTRY_BYTES], whole, BLOCK)
        if rest:
            yield _Blocks(view[whole * BLOCK * ENTRY_BYTES :], 1, rest)

    def _load_footer(self) -> RunFooter:
        file = self._file
        with reading(file.path):
            size = self._source.size()
            if size != file.size_bytes:
                raise _damaged(file.path, f"{file.size_bytes} bytes", f"{size} bytes")
            body: bytes = self._source.read_at(file.footer_bytes, size - file.footer_bytes)
        if xxhash.xxh64_intdigest(body) != file.footer or len(body) < _TAIL.size:
            raise _damaged(file.path, f"a footer with checksum {file.footer:016x}", "another one")
        entries, told_bytes, magic = _TAIL.unpack(body[-_TAIL.size :])
        blocks = -(-file.entries // BLOCK)
        if (
            magic != _MAGIC
            or entries != file.entries
            or told_bytes + blocks * _DIRECTORY + _TAIL.size != len(body)
        ):
            raise _damaged(file.path, f"{file.entries} entries", f"{entries}")
        numbers = np.frombuffer(body, "<u8", 2 * blocks, told_bytes).astype(np.uint64)
        try:
            places = tuple(map(str, json.loads(body[:told_bytes])))
        except (ValueError, TypeError, RecursionError) as error:
            raise _damaged(file.path, "a JSON list of partitions", str(error)) from error
        firsts, sums = numbers[::2].copy(), numbers[1::2].copy()
        if bool((firsts[1:] < firsts[:-1]).any()):
            raise _damaged(file.path, "blocks in order", "blocks out of order")
        return RunFooter(file, places, firsts, sums)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The bytes of some blocks of one size."""

    view: memoryview
    count: int
    size: int
    """Entries of a block."""

    def hashes(self) -> Hashes:
        """Return all hashes, block after block."""
        wide = np.frombuffer(self.view, "<u8").reshape(self.count, 2 * self.size)
        return wide[:, : self.size].reshape(-1).astype(np.uint64, copy=False)

    def take(self, hashes: Hashes, at: npt.NDArray[np.generic]) -> IndexEntries:
        """Return the entries at some positions; ``hashes`` are those of all."""
        narrow = np.frombuffer(self.view, "<u4").reshape(self.count, 4 * self.size)
        block, column = np.divmod(at, self.size)
        places = narrow[block, 2 * self.size + column].astype(np.uint32, copy=False)
        versions = narrow[block, 3 * self.size + column].astype(np.uint32, copy=False)
        return IndexEntries(hashes[at], places, versions)

    def entries(self) -> IndexEntries:
        """Return all entries."""
        narrow = np.frombuffer(self.view, "<u4").reshape(self.count, 4 * self.size)
        places, versions = (
            narrow[:, part * self.size : (part + 1) * self.size].reshape(-1) for part in (2, 3)
        )
        return IndexEntries(
            self.hashes(),
            places.astype(np.uint32, copy=False),
            versions.astype(np.uint32, copy=False),
        )


def _damaged(path: str, expected: str, found: str) -> CorruptMetadataError:
    message = f"the run file {path} is damaged: expected {expected}, found {found}"
    hint = "nothing is lost: run `tablectl index build`, which makes the index anew"
    return CorruptMetadataError(message, hint=hint, path=path, expected=expected, found=found)
