"""The footer of a Parquet file: read once, hashed and parsed from the same bytes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

THRIFT_BYTES_MAX: Final = 64 << 20
_TAIL_BYTES = 64 << 10
"""Read at once, as Arrow does: most footers are smaller, and cost one request."""
_FOOTER_BYTES_MAX = 256 << 20
_END_BYTES = 8
"""The length of what stands before it, little endian, and Parquet's magic."""


def footer_bytes(file: pa.NativeFile, size: int) -> bytes:
    """Read a file from the start of its footer to its end; fewer bytes if it declares nonsense."""
    count = min(size, _TAIL_BYTES)
    tail: bytes = file.read_at(count, size - count)
    declared = int.from_bytes(tail[-_END_BYTES : -_END_BYTES // 2], "little") + _END_BYTES
    if len(tail) < declared <= min(size, _FOOTER_BYTES_MAX):
        tail = file.read_at(declared, size - declared)
    return tail[-declared:]


def footer_hash(footer: bytes) -> int:
    """Return what a decision says of these bytes."""
    return xxhash.xxh64_intdigest(footer)


def parse_footer(footer: bytes) -> pq.FileMetaData:
    """Parse a footer; raise what Arrow raises if it is none."""
    source = pa.BufferReader(footer)
    return pq.ParquetFile(source, thrift_string_size_limit=THRIFT_BYTES_MAX).metadata
