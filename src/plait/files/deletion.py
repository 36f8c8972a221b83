"""Deletion vectors: which rows of a data file are hidden.

The bytes are those that Delta ("deletion vector format" of its protocol) and Iceberg v3
(``deletion-vector-v1`` of its Puffin specification) share::

    vector  magic D1 D3 39 64, then a 64-bit Roaring bitmap in the portable layout
    entry   length of the vector (4 bytes, big-endian), vector, CRC-32 of the vector (big-endian)
    file    one byte, 01, then entries, each with its seal (``entry_file.py``)

A small vector stands in the decision itself. ``dv_offset`` is where an entry begins in its file
and ``dv_bytes`` is the length of the vector: Delta's ``offset`` and ``sizeInBytes``; to Iceberg
the entry is a blob of ``dv_bytes + 8`` bytes. Neither looks at what lies between the entries.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from plait.errors import InvariantError
from plait.files import roaring
from plait.files.data_file import LiveFile, corrupt
from plait.files.entry_file import EntryFile, read_entry
from plait.files.hash import sorted_once
from plait.files.roaring import CONTAINER_BYTES_MAX, ROWS_A_CONTAINER, Positions
from plait.model.changes import MASKED
from plait.storage.port import Store

INLINE_BYTES_MAX: Final = 4096
"""Vectors up to this size stand in the decision."""

MAGIC: Final = b"\xd1\xd3\x39\x64"
FILE_VERSION: Final = b"\x01"
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
VECTOR_FRAME: Final = _LENGTH.size + _CRC.size
"""Bytes of an entry around its vector."""


def encode(positions: Positions) -> bytes:
    """Write row positions as a vector.

    >>> import numpy as np
    >>> encode(np.array([1], dtype=np.uint64)).hex()
    'd1d339640100000000000000000000003a3000000100000000000000100000000100'
    """
    return MAGIC + roaring.encode(positions)


def decode(vector: bytes, *, count: int, rows: int) -> Positions:
    """Read the row positions of a vector, sorted.

    Args:
        vector: untrusted bytes.
        count: how many positions the metadata declares.
        rows: rows of the data file; a position beyond them is refused.

    Raises:
        ValueError: it is not a vector of so many positions in such a file.
    """
    if vector[:4] != MAGIC:
        raise ValueError(f"a deletion vector begins with {MAGIC.hex()}, not {vector[:4].hex()}")
    if not 0 <= count <= rows:
        raise ValueError(f"{count} masked rows, but the file has {rows}")
    positions = roaring.decode(vector[4:], count=count)
    if len(positions) and int(positions[-1]) >= rows:
        raise ValueError(f"row {int(positions[-1])} is masked in a file of {rows}")
    return positions


def load_mask(store: Store, file: LiveFile) -> Positions | None:
    """Read which rows of a live file are hidden, sorted; None if none are.

    The file's row count must have been compared with its footer before: it bounds what is read.

    Raises:
        CorruptMetadataError: the vector is missing or is not what the metadata says.
    """
    if not file.masked:
        return None
    place = VectorPlace(file.dv_path, file.dv_offset, file.dv_bytes)
    return _load(store, file.path, file.inline, place, count=file.masked, rows=file.rows)


def load_masked(store: Store, masked: Mapping[str, object], *, rows: int) -> Positions:
    """Read the vector that a commit gave a file of ``rows`` rows.

    Args:
        store: the table's.
        masked: a row of MASKED.
        rows: rows of the file.

    Raises:
        CorruptMetadataError: the vector is missing or is not what the record says.
    """
    place = VectorPlace(masked["dv_path"], masked["dv_offset"], masked["dv_bytes"])  # type: ignore[arg-type]  # MASKED's types
    count, inline = int(str(masked["rows"])), masked["inline"]
    vector = inline if isinstance(inline, bytes) else None
    return _load(store, str(masked["path"]), vector, place, count=count, rows=rows)


class VectorPlace(NamedTuple):
    """Where a vector lies that is not inline."""

    path: str | None
    offset: int | None
    size: int | None


def _load(
    store: Store, path: str, inline: bytes | None, place: VectorPlace, *, count: int, rows: int
) -> Positions:
    try:
        vector = _load_vector(store, path, place, rows) if inline is None else inline
        return decode(vector, count=count, rows=rows)
    except ValueError as error:
        raise corrupt(place.path or path, "a deletion vector", str(error)) from error


def union(one: Positions | None, other: Positions | None) -> Positions | None:
    """Put sorted positions together."""
    if one is None or other is None:
        return other if one is None else one
    return np.union1d(one, other)


def _load_vector(store: Store, masked: str, place: VectorPlace, rows: int) -> bytes:
    path, offset, size = place
    if path is None or offset is None or size is None:
        raise corrupt(masked, "a deletion vector", "none")
    limit = vector_bytes_max(rows)
    if not (offset > 0 and 0 < size <= limit):
        raise corrupt(path, f"a deletion vector of at most {limit} bytes", str(size))
    return unframed(read_entry(store, path, offset, size + VECTOR_FRAME), size)


def vector_bytes_max(rows: int) -> int:
    """Return how large the vector of a file of so many rows can be at most."""
    return 64 + (rows // ROWS_A_CONTAINER + 1) * CONTAINER_BYTES_MAX


def unframed(entry: bytes, size: int) -> bytes:
    """Return the vector of an entry.

    Args:
        entry: untrusted bytes, ``VECTOR_FRAME`` more than the vector.
        size: of the vector.

    Raises:
        ValueError: it has another length or checksum.
    """
    vector = entry[_LENGTH.size : -_CRC.size]
    if _LENGTH.unpack_from(entry)[0] != size:
        raise ValueError(f"a vector of {_LENGTH.unpack_from(entry)[0]} bytes, not {size}")
    if _CRC.unpack(entry[-_CRC.size :])[0] != zlib.crc32(vector):
        raise ValueError("a vector with another checksum")
    return vector


class MaskWriter:
    """Collects the deletion vectors of one writer: small ones inline, the others in one file."""

    def __init__(self, store: Store, path: str) -> None:
        """Take the name of the file; it is created when the first large vector comes."""
        self._file = EntryFile(store, path, FILE_VERSION)
        self._rows: list[dict[str, object]] = []

    def add(self, path: str, positions: Positions) -> None:
        """Mask rows of a data file: all that are hidden from now on, those before included."""
        unique = sorted_once(positions)
        if not len(unique):
            raise InvariantError(f"a deletion vector without a row, for {path}")
        vector = encode(unique)
        row: dict[str, object] = {"path": path, "rows": len(unique)}
        if len(vector) <= INLINE_BYTES_MAX:
            row["inline"] = vector
        else:
            crc = _CRC.pack(zlib.crc32(vector))
            row["dv_offset"] = self._file.append(_LENGTH.pack(len(vector)), vector, crc)
            row["dv_path"], row["dv_bytes"] = self._file.path, len(vector)
        self._rows.append(row)

    @property
    def paths(self) -> list[str]:
        """Files written, to be made durable with ``store.persist``."""
        return self._file.paths

    def close(self) -> pa.Table:
        """Finish the file and return the records (MASKED)."""
        self._file.close()
        return pa.Table.from_pylist(self._rows, schema=MASKED)
