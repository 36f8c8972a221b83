"""Row maps: where a rewrite put the rows of each file that it replaced (RFC 0018).

A rewrite puts the rows of some files, its sources, into others, its targets. Whoever hid rows of a
source meanwhile finds them in the targets by the source's row map, and reads no row. Positions
count through the targets of a group one after another::

    entry   form (1 byte), rows of the source (8), rows that were copied (8), n (4), a Roaring
            bitmap of the positions that were not copied (n), the new positions of the copied rows
            in the source's order, XXH64 of all before it (8)
    file    50 4C 54 52 02 00 00 00 ("PLTR", version 2), then entries, each with its seal
            (``entry_file.py``)

Numbers are little-endian. In form 1 the new positions rise, as in a merge of sorted files, and are
a Roaring bitmap; in form 2 they come in any order, each as 4 bytes. A small entry stands in the
decision itself.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from plait.errors import InvariantError
from plait.files import roaring
from plait.files.data_file import corrupt
from plait.files.entry_file import EntryFile, read_entry
from plait.files.roaring import CONTAINER_BYTES_MAX, ROWS_A_CONTAINER, Positions
from plait.model.changes import MOVED
from plait.storage.port import Store

INLINE_BYTES_MAX: Final = 4096
"""Entries up to this size stand in the decision."""
TARGET_ROWS_MAX: Final = (1 << 32) - 1
"""A group has no more rows: new positions have 32 bits."""

_MAGIC: Final = b"PLTR\x02\x00\x00\x00"
_HEAD: Final = struct.Struct("<BQQI")
_SUM: Final = struct.Struct("<Q")
_RISING, _ANY = 1, 2
_WIDTH: Final = 4
_NOT_COPIED: Final = np.uint32(TARGET_ROWS_MAX)


@dataclass(frozen=True, slots=True)
class RowMap:
    """Where the rows of one source went."""

    rows: int
    """Rows of the source, those that were hidden included."""
    skipped: Positions
    """Sorted positions of the rows that were not copied: they were hidden."""
    placed: npt.NDArray[np.uint32]
    """The new position of each copied row, in the order of the source."""

    def image(self, positions: Positions) -> Positions:
        """Return the sorted new positions of rows; those that were not copied have none.

        >>> moved = RowMap(3, np.array([1], dtype=np.uint64), np.array([7, 9], dtype=np.uint32))
        >>> moved.image(np.array([1, 2], dtype=np.uint64)).tolist()
        [9]
        """
        before = np.searchsorted(self.skipped, positions)
        copied = np.ones(len(positions), dtype=np.bool_)
        if len(self.skipped):
            nearest = self.skipped[np.minimum(before, len(self.skipped) - 1)]
            copied = nearest != positions
        rank = positions[copied].astype(np.int64) - before[copied]
        return np.sort(self.placed[rank]).astype(np.uint64)

    def whole(self) -> Positions:
        """Return the sorted new positions of every copied row."""
        return np.sort(self.placed).astype(np.uint64)


class RowMapBuilder:
    """Collects where the rows of one source go, in any order; four bytes a row."""

    def __init__(self, rows: int) -> None:
        self._to = np.full(rows, _NOT_COPIED, dtype=np.uint32)

    def add(self, positions: Positions, new: npt.NDArray[np.int64]) -> None:
        """Take the new positions of some rows."""
        if len(new) and int(new.max()) >= TARGET_ROWS_MAX:
            raise InvariantError(f"a rewrite into more than {TARGET_ROWS_MAX} rows")
        self._to[positions.astype(np.int64)] = new.astype(np.uint32)

    def build(self) -> RowMap:
        """Return the map; rows that were never added were not copied."""
        skipped = np.flatnonzero(self._to == _NOT_COPIED).astype(np.uint64)
        return RowMap(len(self._to), skipped, self._to[self._to != _NOT_COPIED])


def encode(moved: RowMap) -> bytes:
    """Write a map as an entry."""
    rising = bool((moved.placed[1:] > moved.placed[:-1]).all())
    skipped = roaring.encode(moved.skipped)
    if rising:
        placed = roaring.encode(moved.placed.astype(np.uint64))
    else:
        placed = moved.placed.astype("<u4").tobytes()
    form = _RISING if rising else _ANY
    body = b"".join(
        (_HEAD.pack(form, moved.rows, len(moved.placed), len(skipped)), skipped, placed)
    )
    return body + _SUM.pack(xxhash.xxh64_intdigest(body))


def decode(entry: bytes, *, rows: int, target_rows: int) -> RowMap:
    """Read an entry.

    Args:
        entry: untrusted bytes.
        rows: rows of the source by the table's metadata.
        target_rows: rows of the targets of its group; a new position beyond them is refused.

    Raises:
        ValueError: it is not a map of a file with so many rows into so many.
    """
    body, tail = entry[: -_SUM.size], entry[-_SUM.size :]
    if len(body) < _HEAD.size or _SUM.unpack(tail)[0] != xxhash.xxh64_intdigest(body):
        raise ValueError("a row map is cut off, or its checksum differs")
    form, stated, copied, size = _HEAD.unpack_from(body)
    if stated != rows or not 0 <= copied <= min(rows, target_rows):
        raise ValueError(f"{copied} of {stated} rows were copied, where the file has {rows}")
    skipped = roaring.decode(body[_HEAD.size : _HEAD.size + size], count=rows - copied)
    if len(skipped) and int(skipped[-1]) >= rows:
        raise ValueError(f"row {int(skipped[-1])} was not copied from a file of {rows}")
    placed = _placed(form, body[_HEAD.size + size :], copied)
    if copied and int(placed.max()) >= target_rows:
        raise ValueError(f"row {int(placed.max())} of targets that have {target_rows}")
    return RowMap(rows, skipped, placed)


def _placed(form: int, body: bytes, copied: int) -> npt.NDArray[np.uint32]:
    if form == _RISING:
        new = roaring.decode(body, count=copied)
        if copied and int(new[-1]) >= TARGET_ROWS_MAX:
            raise ValueError(f"new position {int(new[-1])}")
        return new.astype(np.uint32)
    if form != _ANY or len(body) != copied * _WIDTH:
        raise ValueError(f"form {form} with {len(body)} bytes for {copied} rows")
    placed = np.frombuffer(body, dtype="<u4").astype(np.uint32)
    if len(np.unique(placed)) != copied:
        raise ValueError("two rows have one new position")
    return placed


def load_row_map(store: Store, moved: Mapping[str, object], *, target_rows: int) -> RowMap:
    """Read the map of one source.

    Args:
        store: the table's.
        moved: its row of MOVED.
        target_rows: rows of the targets of its group.

    Raises:
        CorruptMetadataError: the map is gone, or is not what the decision says.
    """
    source, rows, inline = str(moved["path"]), int(str(moved["rows"])), moved["map_inline"]
    path = moved["map_path"]
    if isinstance(inline, bytes):
        entry = inline
    else:
        place = moved["map_offset"], moved["map_bytes"]
        if not isinstance(path, str) or not all(isinstance(each, int) for each in place):
            raise corrupt(source, "a row map", "none")
        offset, size = (int(str(each)) for each in place)
        entry = _load_entry(store, path, offset, size, rows)
    try:
        return decode(entry, rows=rows, target_rows=target_rows)
    except ValueError as error:
        raise corrupt(str(path or source), "a row map", str(error)) from error


def _load_entry(store: Store, path: str, offset: int, size: int, rows: int) -> bytes:
    containers = 2 * (rows // ROWS_A_CONTAINER + 2)
    limit = 64 + rows * _WIDTH + containers * CONTAINER_BYTES_MAX
    if not (offset >= len(_MAGIC) and 0 < size <= limit):
        raise corrupt(path, f"a row map of at most {limit} bytes", str(size))
    return read_entry(store, path, offset, size)


class RowMapWriter:
    """Collects the row maps of one rewrite: small ones inline, the others in one file."""

    def __init__(self, store: Store, path: str) -> None:
        """Take the name of the file; it is created when the first large map comes."""
        self._file = EntryFile(store, path, _MAGIC)
        self._rows: list[dict[str, object]] = []

    def add(self, path: str, group: int, moved: RowMap) -> None:
        """Take the map of a source."""
        entry = encode(moved)
        row: dict[str, object] = {"path": path, "group": group, "rows": moved.rows}
        if len(entry) <= INLINE_BYTES_MAX:
            row["map_inline"] = entry
        else:
            row["map_offset"] = self._file.append(entry)
            row["map_path"], row["map_bytes"] = self._file.path, len(entry)
        self._rows.append(row)

    @property
    def paths(self) -> list[str]:
        """Files written, to be made durable with ``store.persist``."""
        return self._file.paths

    def close(self) -> pa.Table:
        """Finish the file and return the records (MOVED)."""
        self._file.close()
        return pa.Table.from_pylist(self._rows, schema=MOVED)
