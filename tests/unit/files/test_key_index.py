"""Key indexes: every row of a key is found by reading little; damaged ones are refused."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import CorruptMetadataError
from plait.files.data_file import RUN, LiveFile, Place, live_files, unmasked
from plait.files.hash import key_hashes
from plait.files.key_index import BLOCK_ENTRIES, INDEX_NAME, KeyIndex, KeyIndexBuilder
from plait.files.reader import OpenFile, Schemas
from plait.files.writer import DataFileWriter
from plait.model.bucket import BucketSpec
from plait.model.changes import BASE
from plait.model.order import KEY_ORDER, NO_ORDER
from plait.model.plan import COW, TableLayout, TableSpec
from plait.model.schema import Schema
from plait.storage.local import LocalStore

SCHEMA = Schema.create(pa.schema([("id", pa.int64()), ("v", pa.int64())]))
SPEC = TableSpec(SCHEMA, TableLayout((), BucketSpec(0, ("id",), 1), None, COW))
FRONT = b"rows before it"
HASHES = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 3).map(lambda n: n << 32),  # many keys share their upper half
    st.tuples(st.integers(0, 3), st.integers(0, 9)).map(lambda t: (t[0] << 32) + t[1]),
)


class Body:
    """The bytes of a file, which count how often they are read."""

    def __init__(self, body: bytes) -> None:
        self.body, self.reads = body, 0

    def read_at(self, count: int, offset: int) -> bytes:
        self.reads += 1
        return self.body[offset : offset + count]


def written(hashes: list[int], step: int = 7) -> tuple[bytes, dict[bytes, bytes]]:
    """Write an index; give the bytes of the file so far, and the footer's metadata."""
    builder = KeyIndexBuilder()
    for start in range(0, len(hashes), step):
        builder.add(np.array(hashes[start : start + step], dtype=np.uint64))
    sink = pa.BufferOutputStream()
    sink.write(FRONT)
    metadata = builder.write(sink)
    return sink.getvalue().to_pybytes(), {k.encode(): v.encode() for k, v in metadata.items()}


def opened(body: bytes, metadata: dict[bytes, bytes], rows: int) -> tuple[KeyIndex, Body]:
    source = Body(body)
    index = KeyIndex.parse(metadata, source, rows=rows, size=len(body))  # type: ignore[arg-type]
    assert index is not None
    return index, source


def rows_of(hashes: list[int], asked: int) -> list[int]:
    """Give the rows that an index leads to: those whose hash begins alike."""
    return [at for at, each in enumerate(hashes) if each >> 32 == asked >> 32]


@pytest.fixture
def small_blocks() -> Iterator[None]:
    with mock.patch("plait.files.key_index.BLOCK_ENTRIES", 4):
        yield


@given(st.lists(HASHES, min_size=1, max_size=60), st.lists(HASHES, max_size=5))
def test_all_rows_of_a_key_are_found_wherever_blocks_end(
    hashes: list[int], others: list[int]
) -> None:
    """Keys with one hash, and those that begin alike, stand in several blocks."""
    with mock.patch("plait.files.key_index.BLOCK_ENTRIES", 4):
        index, _ = opened(*written(hashes), len(hashes))
        for asked in ([], others, hashes[:3], [*others, *hashes[::5]]):
            found = index.find(np.array(asked, dtype=np.uint64)).tolist()
            assert found == sorted({at for each in asked for at in rows_of(hashes, each)})
        numbers = [int(n) for entries in index.entries() for n in entries]
    assert numbers == sorted((h >> 32 << 32) + at for at, h in enumerate(hashes))


def test_a_key_is_found_by_reading_one_block_of_many() -> None:
    ids = pa.table({"id": pa.array(range(100_000), pa.int64())})
    hashes = key_hashes(ids, ["id"]).tolist()
    index, source = opened(*written(hashes, 30_000), len(hashes))
    assert len(index.firsts) == -(-100_000 // BLOCK_ENTRIES)
    for at in range(0, 100_000, 9_973):
        source.reads = 0
        assert at in index.find(np.array([hashes[at]], dtype=np.uint64)).tolist()
        assert source.reads == 1


def test_a_block_is_read_only_where_it_can_have_the_key(small_blocks: None) -> None:
    index, source = opened(*written([n << 32 for n in range(2, 100)]), 98)
    assert index.find(np.array([1 << 32], dtype=np.uint64)).tolist() == []
    assert source.reads == 0


@pytest.mark.usefixtures("small_blocks")
def test_every_flipped_byte_of_a_block_is_refused() -> None:
    hashes = [n << 40 for n in range(9)]
    body, metadata = written(hashes)
    for at in range(len(FRONT), len(body)):
        changed = bytearray(body)
        changed[at] ^= 1
        for part in (bytes(changed), body[:at]):
            index = opened(body, metadata, 9)[0]
            damaged = KeyIndex(Body(part), 9, index.offset, index.firsts, index.sums)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="checksum"):
                damaged.find(np.array(hashes, dtype=np.uint64))
            with pytest.raises(ValueError, match="checksum"):
                list(damaged.entries())


def by_hand(*blocks: list[int]) -> tuple[bytes, dict[bytes, bytes]]:
    """Write blocks as they are, with the right checksums, as a writer with a fault would."""
    bodies = [np.array(block, dtype="<u8").tobytes() for block in blocks]
    sums = [(block[0], xxhash.xxh64_intdigest(b)) for block, b in zip(blocks, bodies, strict=True)]
    numbers = [len(FRONT), *itertools.chain.from_iterable(sums)]
    directory = base64.b64encode(np.array(numbers, dtype="<u8").tobytes())
    return FRONT + b"".join(bodies), {INDEX_NAME.encode(): directory}


def test_entries_that_do_not_rise_are_refused(small_blocks: None) -> None:
    with pytest.raises(ValueError, match="order"):
        opened(*by_hand([5, 6, 7, 8], [1, 2, 3, 4]), 8)
    with pytest.raises(ValueError, match="order"):
        opened(*by_hand([1, 2, 3, 4], [1, 5, 6, 7]), 8)
    for first, second in (([1, 3, 2, 4], [5, 6, 7, 8]), ([1, 2, 3, 6], [5, 7, 8, 9])):
        with pytest.raises(ValueError, match="order"):
            list(opened(*by_hand(first, second), 8)[0].entries())
    assert len(list(opened(*by_hand([1, 2, 3, 4], [5, 6, 7, 8]), 8)[0].entries())) == 2


def test_a_directory_that_does_not_fit_its_file_is_refused(small_blocks: None) -> None:
    body, metadata = written([n << 40 for n in range(9)])
    text = metadata[INDEX_NAME.encode()]
    whole = base64.b64decode(text)
    for wrong in (b"!", text[:-4], base64.b64encode(whole + whole[:8]), base64.b64encode(b"")):
        with pytest.raises(ValueError, match=r".+"):
            opened(body, {INDEX_NAME.encode(): wrong}, 9)
    for rows, size in ((8, len(body)), (13, len(body) + 99), (9, len(body) - 1)):
        with pytest.raises(ValueError, match=r".+"):
            KeyIndex.parse(metadata, Body(body), rows=rows, size=size)  # type: ignore[arg-type]
    assert KeyIndex.parse(None, Body(b""), rows=9, size=0) is None  # type: ignore[arg-type]
    assert KeyIndex.parse({b"other": b""}, Body(b""), rows=9, size=0) is None  # type: ignore[arg-type]


# --- in a data file ----------------------------------------------------------------------------


def write(
    store: LocalStore, spec: TableSpec = SPEC, *, order: int = 5, kind: str = BASE
) -> LiveFile:
    """Write 100 rows, in which keys fall, in row groups of ten."""
    ids = np.arange(100)[::-1]
    place = Place(f"data/file.{kind}.parquet", (), 0, kind)
    with DataFileWriter(store, place, spec, order=order, group_rows=10) as writer:
        writer.write(pa.table({"id": ids, "v": ids}, schema=SCHEMA.arrow))
        return next(live_files(unmasked(writer.close(), version=1)))


def metadata_of(store: LocalStore, file: LiveFile) -> dict[bytes, bytes]:
    return pq.read_metadata(store.location(file.path)).metadata or {}


def test_a_file_that_is_not_sorted_by_key_has_an_index_of_all_its_rows(store: LocalStore) -> None:
    file = write(store)
    with OpenFile(store, file, Schemas(SCHEMA, {0: SCHEMA})) as source:
        index = source.key_index()
        assert index is not None
        for key in (0, 7, 99):
            asked = key_hashes(pa.table({"id": [key]}), ["id"])
            assert index.find(asked).tolist() == [99 - key]
        assert sum(map(len, source.indexed_keys())) == 100


@pytest.mark.parametrize("reader", ["pyarrow", "duckdb", "polars"])
def test_other_readers_of_parquet_do_not_notice_an_index(store: LocalStore, reader: str) -> None:
    path = store.location(write(store).path)
    if reader == "pyarrow":
        found = pq.read_table(path)["id"].to_pylist()
    elif reader == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        found = [row[0] for row in duckdb.sql(f"SELECT id FROM '{path}'").fetchall()]
    else:
        found = pytest.importorskip("polars").read_parquet(path)["id"].to_list()
    assert found == list(range(99, -1, -1))


def test_files_that_need_no_index_have_none(store: LocalStore) -> None:
    """Sorted by key, of a table without one, of one row group, and runs of an unfinished merge."""
    unkeyed = TableSpec(SCHEMA, TableLayout((), BucketSpec(0, (), 0), None, COW))
    assert INDEX_NAME.encode() in metadata_of(store, write(store, order=NO_ORDER))
    for spec, order, kind in ((SPEC, KEY_ORDER, BASE), (unkeyed, 5, BASE), (SPEC, NO_ORDER, RUN)):
        file = write(store, spec, order=order, kind=kind)
        assert INDEX_NAME.encode() not in metadata_of(store, file)
    place = Place("data/one.base.parquet", (), 0, BASE)
    with DataFileWriter(store, place, SPEC, order=5, group_rows=10) as writer:
        writer.write(pa.table({"id": range(10), "v": range(10)}, schema=SCHEMA.arrow))
        one = next(live_files(unmasked(writer.close(), version=1)))
    assert INDEX_NAME.encode() not in metadata_of(store, one)


def test_a_damaged_directory_is_a_damaged_footer(store: LocalStore) -> None:
    """INV-04: the decision has the footer's hash, so nobody is led astray."""
    file = write(store)
    place = Path(store.location(file.path))
    body = bytearray(place.read_bytes())
    at = body.index(metadata_of(store, file)[INDEX_NAME.encode()])
    body[at + 20] ^= 1
    place.write_bytes(bytes(body))
    with pytest.raises(CorruptMetadataError, match="footer"):
        OpenFile(store, file, Schemas(SCHEMA, {0: SCHEMA}))


def test_the_example_of_the_specification_is_what_is_written() -> None:
    text = Path(__file__).parents[3].joinpath("docs/spec/format.md").read_text()
    shown = re.split(r"has\s+this\s+key\s+index:", text)[1].split("```")[1]
    lines = re.findall(r"^(?:block|directory) +([0-9a-f ]+)$", shown, re.MULTILINE)
    block, directory = map(bytes.fromhex, lines)
    ids = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    body, metadata = written(key_hashes(ids, ["id"]).tolist())
    assert body[len(FRONT) :] == block
    wanted = base64.b64decode(metadata[INDEX_NAME.encode()])
    assert wanted[8:] == directory[8:]
    assert int.from_bytes(directory[:8], "little") == 4
