"""Deletion vectors: the bytes that Delta and Iceberg v3 share, and nothing else."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyroaring
import pytest

from plait.errors import CorruptMetadataError, InvariantError
from plait.files.data_file import LiveFile, live_files
from plait.files.deletion import INLINE_BYTES_MAX, MaskWriter, decode, encode, load_mask
from plait.model.changes import MASKED
from plait.model.plan import LIVE
from plait.storage.port import Store

# Row 1 is deleted: as written by Databricks for Delta, found in a published test of a reader.
DATABRICKS = bytes.fromhex("d1d339640100000000000000000000003a3000000100000000000000100000000100")
PATH = "data/masks.dv.bin"
SCATTERED = np.arange(0, 2_000_000, 7, dtype=np.uint64)


def file_of(masked: pa.Table, rows: int) -> LiveFile:
    entry = masked.to_pylist()[0]
    return LiveFile(
        path=entry["path"],
        partition=(),
        bucket=0,
        kind="base",
        rows=rows,
        size_bytes=1,
        order=-1,
        schema_id=0,
        footer=0,
        version=1,
        masked=entry["rows"],
        inline=entry["inline"],
        dv_path=entry["dv_path"],
        dv_offset=entry["dv_offset"],
        dv_bytes=entry["dv_bytes"],
    )


def test_vector_written_by_another_system_is_read_and_written_alike() -> None:
    assert decode(DATABRICKS, count=1, rows=2).tolist() == [1]
    assert encode(np.array([1], dtype=np.uint64)) == DATABRICKS


def test_small_vector_stands_in_the_decision(store: Store) -> None:
    writer = MaskWriter(store, PATH)
    writer.add("data/a.parquet", np.array([5, 3, 5], dtype=np.uint64))
    masked = writer.close()
    assert masked.schema.equals(MASKED)
    assert writer.paths == []
    assert masked["rows"].to_pylist() == [2]
    assert load_mask(store, file_of(masked, 6)).tolist() == [3, 5]  # type: ignore[union-attr]
    assert not list(store.list("data"))


def test_large_vectors_share_one_file_in_delta_s_layout(store: Store) -> None:
    writer = MaskWriter(store, PATH)
    writer.add("data/a.parquet", SCATTERED)
    writer.add("data/b.parquet", SCATTERED + np.uint64(2**33))
    masked = writer.close()
    assert writer.paths == [PATH]
    assert masked["inline"].null_count == 2
    body = Path(store.location(PATH)).read_bytes()
    assert body[0] == 1
    for entry, shift in zip(masked.to_pylist(), (0, 2**33), strict=True):
        at, size = entry["dv_offset"], entry["dv_bytes"]
        assert size > INLINE_BYTES_MAX
        assert struct.unpack_from(">i", body, at) == (size,)
        vector = body[at + 4 : at + 4 + size]
        assert vector[:4] == bytes.fromhex("d1d33964")
        assert struct.unpack_from(">I", body, at + 4 + size) == (zlib.crc32(vector),)
        foreign = pyroaring.BitMap64.deserialize(vector[4:])
        assert foreign == pyroaring.BitMap64(range(shift, shift + 2_000_000, 7))
    assert load_mask(store, file_of(masked, 2_000_000)).tolist() == SCATTERED.tolist()  # type: ignore[union-attr]


def test_file_without_hidden_rows_has_no_mask(store: Store) -> None:
    writer = MaskWriter(store, PATH)
    assert writer.close().num_rows == 0
    with pytest.raises(InvariantError):
        writer.add("data/a.parquet", np.array([], dtype=np.uint64))


def test_damaged_vectors_are_refused_by_name(store: Store) -> None:
    writer = MaskWriter(store, PATH)
    writer.add("data/a.parquet", SCATTERED)
    file = file_of(writer.close(), 2_000_000)
    place = Path(store.location(PATH))
    whole = place.read_bytes()
    flipped = bytearray(whole)
    flipped[5000] ^= 1
    damages = [
        (bytes(flipped), file),
        (whole[:-1], file),
        (whole, replace(file, dv_offset=2)),
        (whole, replace(file, dv_offset=-1)),
        (whole, replace(file, dv_bytes=2**62)),
        (whole, replace(file, dv_bytes=0)),
        (whole, replace(file, masked=file.masked - 1)),
        (whole, replace(file, rows=1_999_000)),
        (whole, replace(file, dv_path="../masks.bin")),
    ]
    for body, damaged in damages:
        place.write_bytes(body)
        with pytest.raises(CorruptMetadataError):
            load_mask(store, damaged)
    place.unlink()
    with pytest.raises(CorruptMetadataError, match=PATH):
        load_mask(store, file)


def _run_bomb() -> bytes:
    """Give a vector of 64 KiB that claims billions of positions."""
    containers = 4096
    head = struct.pack("<I", 12347 | (containers - 1) << 16) + b"\xff" * (containers // 8)
    head += b"".join(struct.pack("<HH", key, 65535) for key in range(containers))
    head += b"\0\0\0\0" * containers
    body = b"".join(struct.pack("<HHH", 1, 0, 65535) for _ in range(containers))
    return bytes.fromhex("d1d33964") + struct.pack("<QI", 1, 0) + head + body


def test_vector_that_would_explode_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(ValueError, match="more positions than declared"):
        decode(_run_bomb(), count=1000, rows=1000)


@pytest.mark.parametrize("vector", [b"", b"\0\0\0\0", DATABRICKS[:-1], DATABRICKS + b"\0"])
def test_bytes_that_are_no_vector_are_refused(vector: bytes) -> None:
    with pytest.raises(ValueError, match=r"vector|bitmap"):
        decode(vector, count=1, rows=2)


def test_metadata_of_files_is_checked_before_it_is_used() -> None:
    row = {
        "path": "data/a.parquet",
        "partition": "[]",
        "bucket": 0,
        "kind": "base",
        "rows": 5,
        "bytes": 9,
        "order": 0,
        "schema_id": 0,
        "footer": 0,
        "version": 1,
        "masked": 0,
    }
    assert [f.path for f in live_files(pa.Table.from_pylist([row], schema=LIVE))] == [row["path"]]
    for change in ({"path": "/etc/passwd"}, {"masked": 6}, {"rows": -1}, {"partition": "{}"}):
        table = pa.Table.from_pylist([{**row, **change}], schema=LIVE)
        with pytest.raises(CorruptMetadataError):
            list(live_files(table))
