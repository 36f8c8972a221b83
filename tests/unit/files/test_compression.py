"""Compression: files are packed as the table says, and every reader takes what was written."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.errors import BadRecordError, OptionError
from plait.files.data_file import RUN, LiveFile, Place
from plait.files.reader import OpenFile, Schemas
from plait.files.writer import DataFileWriter
from plait.model.bucket import BucketSpec
from plait.model.changes import BASE, LOG
from plait.model.contract import CODECS, Options
from plait.model.plan import COW, Compression, TableLayout, TableSpec
from plait.model.schema import Schema
from plait.storage.port import Store

SPEC = TableSpec(
    Schema.create(pa.schema([("id", pa.int64()), ("name", pa.string())])),
    TableLayout((), BucketSpec(0, (), 0), None, COW),
)
ROWS = pa.table({"id": range(1000), "name": [f"name {n % 7}" for n in range(1000)]})


def write(store: Store, rows: pa.Table, codec: str, level: int = 0, kind: str = BASE) -> LiveFile:
    """Write a file and describe it as a decision would."""
    packed = Compression.of(
        Options.of({"file.compression": codec, "file.compression.level": level})
    )
    place = Place(f"data/{codec}-{level}.{kind}.parquet", (), 0, kind)
    with DataFileWriter(store, place, replace(SPEC, compression=packed)) as writer:
        writer.write(rows.cast(SPEC.schema.arrow))
        row = writer.close().to_pylist()[0]
    row["size_bytes"] = row.pop("bytes")
    del row["stats"]
    return LiveFile(**{**row, "partition": (), "version": 1, "masked": 0})


def read(store: Store, file: LiveFile) -> pa.Table:
    with OpenFile(store, file, Schemas(SPEC.schema, {0: SPEC.schema})) as source:
        names = SPEC.schema.names
        batches = [b for g in range(source.group_count) for b in source.batches(g, names)]
    return pa.Table.from_batches(batches, schema=SPEC.schema.arrow)


def codecs_in(store: Store, path: str) -> set[str]:
    footer = pq.read_metadata(store.location(path))
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return {group.column(i).compression.lower() for group in groups for i in range(2)}


@pytest.mark.parametrize("kind", [BASE, LOG])
@pytest.mark.parametrize("codec", CODECS)
def test_a_data_file_has_the_codec_of_the_table_and_is_read_back(
    store: Store, codec: str, kind: str
) -> None:
    file = write(store, ROWS, codec, kind=kind)
    assert codecs_in(store, file.path) == {{"none": "uncompressed"}.get(codec, codec)}
    assert read(store, file).equals(ROWS.cast(SPEC.schema.arrow))


@pytest.mark.parametrize(("codec", "most"), [("zstd", 19), ("gzip", 9)])
def test_a_higher_level_packs_tighter(store: Store, codec: str, most: int) -> None:
    words = [" ".join(str(n * k % 997) for k in range(1, 40)) for n in range(5000)]
    texts = pa.table({"id": range(5000), "name": words})
    low, high = write(store, texts, codec, 1), write(store, texts, codec, most)
    assert high.size_bytes < low.size_bytes
    assert read(store, low).equals(read(store, high))


def test_rows_on_the_way_to_another_process_are_packed_fast(store: Store) -> None:
    file = write(store, ROWS, "gzip", 9, kind=RUN)
    assert codecs_in(store, file.path) == {"snappy"}


@pytest.mark.long(1)
@pytest.mark.slow
@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_wide_rows_that_pack_to_almost_nothing_are_read_back(store: Store, codec: str) -> None:
    """INV-04: what a writer has written, its readers do not take for damage."""
    name = "x" * (1 << 20)
    rows = pa.table({"id": range(150), "name": [f"{n}{name}" for n in range(150)]})
    file = write(store, rows, codec)
    assert file.size_bytes * 256 < rows.nbytes - (16 << 20)
    assert read(store, file).equals(rows.cast(SPEC.schema.arrow))


@pytest.mark.slow
def test_a_row_that_no_reader_would_take_is_refused_before_it_is_committed(store: Store) -> None:
    """INV-04: only one that is larger than a row group packs by more than readers believe."""
    rows = pa.table({"id": [1], "name": ["x" * (100 << 20)]})
    with pytest.raises(BadRecordError, match=r"single row") as caught:
        write(store, rows, "zstd")
    assert "snappy" in caught.value.hint
    assert write(store, rows, "snappy").rows == 1


@pytest.mark.parametrize(
    ("codec", "level"), [("snappy", 1), ("lz4", 3), ("none", 1), ("gzip", 10), ("zstd", 23)]
)
def test_a_level_that_the_codec_does_not_have_is_refused_and_a_codec_that_is_not_known(
    codec: str, level: int
) -> None:
    with pytest.raises(OptionError) as caught:
        Compression.of(Options.of({"file.compression": codec, "file.compression.level": level}))
    assert caught.value.key == "file.compression.level"
    with pytest.raises(OptionError) as caught:
        Options.of({"file.compression": "brotli"})
    assert all(codec in caught.value.hint for codec in CODECS)
