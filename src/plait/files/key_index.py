"""Key indexes: where the row of each key stands in a file that is not sorted by key (RFC 0018).

Such a file of a table with a record key has an entry of eight bytes for each row, between its rows
and its Parquet footer. Entries rise, and stand in blocks that are read one by one::

    entry       the upper 32 bits of the key's hash, then the row's position in the file: one uint64
    block       4,096 entries; the last block may have fewer
    directory   where the first block begins (8), and for each block its first entry (8) and the
                XXH64 of its bytes (8)

Numbers are little-endian. The directory is in the footer, as base64 under ``plait.keys``. So the
decision's hash of the footer covers it, and it covers the blocks. An index says which rows may have
a key; the keys themselves are compared by whoever asks. Without one, key columns are read whole.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from plait.files.hash import Hashes, sorted_once
from plait.files.roaring import Positions

INDEX_NAME: Final = "plait.keys"
"""Name under which the footer has the directory."""
BLOCK_ENTRIES: Final = 4096
_WIDTH = 8
_HALF = np.uint64(32)
_POSITION = np.uint64((1 << 32) - 1)
_ROWS_MAX: Final = 1 << 32


def entries_of(hashes: Hashes, first: int) -> Hashes:
    """Return the entries of rows that follow each other from a position on.

    >>> [f"{entry:016x}" for entry in entries_of(np.array([0x9ED50FD59358D232], np.uint64), 7)]
    ['9ed50fd500000007']
    """
    return (hashes & ~_POSITION) | np.arange(first, first + len(hashes), dtype=np.uint64)


class KeyIndexBuilder:
    """Collects the key hashes of the rows of a file, in their order; eight bytes a row."""

    def __init__(self) -> None:
        self._parts: list[Hashes] = []
        self._rows = 0

    def add(self, hashes: Hashes) -> None:
        """Take the rows that come next."""
        self._parts.append(entries_of(hashes, self._rows))
        self._rows += len(hashes)

    def write(self, sink: pa.NativeFile) -> dict[str, str]:
        """Write the blocks, and return what the footer says of them: nothing of too many rows."""
        if self._rows > _ROWS_MAX:
            return {}
        directory = [sink.tell()]
        for block in self._blocks():
            body = block.astype("<u8", copy=False).tobytes()
            directory += [int(block[0]), xxhash.xxh64_intdigest(body)]
            sink.write(body)
        body = np.array(directory, dtype="<u8").tobytes()
        return {INDEX_NAME: base64.b64encode(body).decode()}

    def _blocks(self) -> Iterator[Hashes]:
        entries = np.empty(self._rows, dtype=np.uint64)
        stop = self._rows
        while self._parts:  # each part is let go once it is copied
            part = self._parts.pop()
            entries[stop - len(part) : stop] = part
            stop -= len(part)
        entries.sort()
        for start in range(0, self._rows, BLOCK_ENTRIES):
            yield entries[start : start + BLOCK_ENTRIES]


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The key index of an open file."""

    source: pa.NativeFile
    rows: int
    """Rows of the file; each has an entry."""
    offset: int
    """Where the first block begins."""
    firsts: Hashes
    """The first entry of each block."""
    sums: Hashes
    """The XXH64 of each block."""

    @classmethod
    def parse(
        cls,
        metadata: Mapping[bytes, bytes] | None,
        source: pa.NativeFile,
        *,
        rows: int,
        size: int,
    ) -> Self | None:
        """Read the directory from the footer's metadata; None if the file has no index.

        Args:
            metadata: the footer's key-value metadata.
            source: the file.
            rows: rows of the file.
            size: bytes of the file.

        Raises:
            ValueError: it is not the directory of a file with so many rows and bytes.
        """
        text = (metadata or {}).get(INDEX_NAME.encode())
        if text is None:
            return None
        body = base64.b64decode(text, validate=True)
        blocks = -(-rows // BLOCK_ENTRIES)
        if len(body) != _WIDTH * (1 + 2 * blocks):
            raise ValueError(f"a directory of {len(body)} bytes for {blocks} blocks")
        numbers = np.frombuffer(body, dtype="<u8").astype(np.uint64)
        offset, firsts = int(numbers[0]), numbers[1::2]
        if offset + rows * _WIDTH > size or bool((firsts[1:] <= firsts[:-1]).any()):
            raise ValueError(f"blocks out of order, or beyond {size} bytes")
        return cls(source, rows, offset, firsts, numbers[2::2])

    def find(self, hashes: Hashes) -> Positions:
        """Return the sorted positions of all rows with keys of these hashes, and of few others.

        Reads one block for each hash, or two.

        Raises:
            ValueError: a block is damaged.
        """
        wanted = sorted_once(hashes >> _HALF)
        found = [np.zeros(0, dtype=np.uint64)]
        for number in self._reached(wanted):
            entries = self._load(number)
            found.append(entries[np.isin(entries >> _HALF, wanted)] & _POSITION)
        return np.sort(np.concatenate(found))

    def entries(self) -> Iterator[Hashes]:
        """Read every entry, block by block.

        Raises:
            ValueError: a block is damaged, or entries do not rise.
        """
        last: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        for number in range(len(self.firsts)):
            entries = self._load(number)
            stretch = np.concatenate([last, entries])
            if entries[0] != self.firsts[number] or bool((stretch[1:] <= stretch[:-1]).any()):
                raise ValueError(f"entries of block {number} are out of order")
            last = entries[-1:]
            yield entries

    def _reached(self, wanted: npt.NDArray[np.uint64]) -> list[int]:
        """Return the blocks in which entries with these upper halves can be."""
        firsts = self.firsts >> _HALF
        # Entries with the upper half that a block begins with may begin in the block before.
        low = np.maximum(np.searchsorted(firsts, wanted, side="left") - 1, 0)
        high = np.searchsorted(firsts, wanted, side="right")
        ranges = map(range, low.tolist(), high.tolist())
        return sorted(set(itertools.chain.from_iterable(ranges)))

    def _load(self, number: int) -> Hashes:
        start = number * BLOCK_ENTRIES
        count = min(BLOCK_ENTRIES, self.rows - start)
        body: bytes = self.source.read_at(count * _WIDTH, self.offset + start * _WIDTH)
        if len(body) != count * _WIDTH or xxhash.xxh64_intdigest(body) != self.sums[number]:
            raise ValueError(f"block {number} is cut off, or its checksum differs")
        return np.frombuffer(body, dtype="<u8").astype(np.uint64, copy=False)
