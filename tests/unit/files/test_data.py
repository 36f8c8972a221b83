"""Data files: what is written comes back, whole or not at all, in bounded pieces."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.errors import CorruptMetadataError, InvariantError
from plait.files.bounds import file_bounds
from plait.files.data_file import LiveFile, Place
from plait.files.footer import LENGTH_MAX, Range
from plait.files.reader import OpenFile, Schemas
from plait.files.writer import DataFileWriter
from plait.model.bucket import BucketSpec
from plait.model.changes import ADDED, BASE
from plait.model.plan import COW, TableLayout, TableSpec
from plait.model.schema import FIELD_ID, Schema
from plait.model.value import to_raw
from plait.storage.port import Store
from tests.support.forge import footer_hash

PLACE = Place("data/file.base.parquet", (), 0, BASE)


def spec_of(schema: pa.Schema, *key: str, ordering: str | None = None) -> TableSpec:
    return TableSpec(Schema.create(schema), TableLayout((), BucketSpec(0, key, 1), ordering, COW))


def write(store: Store, spec: TableSpec, *parts: pa.Table, rows: int = 1 << 17) -> pa.Table:
    return write_raw(store, spec, *(part.cast(spec.schema.arrow) for part in parts), rows=rows)


def write_raw(store: Store, spec: TableSpec, *parts: pa.Table, rows: int = 1 << 17) -> pa.Table:
    with DataFileWriter(store, PLACE, spec, group_rows=rows) as writer:
        for part in parts:
            writer.write(part)
        return writer.close()


def live(record: pa.Table, **changed: object) -> LiveFile:
    row = record.to_pylist()[0]
    row["size_bytes"] = row.pop("bytes")
    row.pop("stats")
    return LiveFile(**{**row, "partition": (), "version": 1, "masked": 0, **changed})


def as_is(store: Store, file: LiveFile) -> LiveFile:
    """Describe the file by the size and footer that it has now."""
    body = Path(store.location(file.path)).read_bytes()
    return replace(file, size_bytes=len(body), footer=footer_hash(body))


def read(store: Store, file: LiveFile, schema: Schema, *written: Schema) -> pa.Table:
    schemas = Schemas(schema, {s.id: s for s in (schema, *written)})
    with OpenFile(store, file, schemas) as source:
        batches = [b for g in range(source.group_count) for b in source.batches(g, schema.names)]
    return pa.Table.from_batches(batches, schema=schema.arrow)


EVERY_TYPE = pa.table(
    {
        "flag": [True, None, False],
        "tiny": pa.array([-128, None, 127], pa.int8()),
        "small": pa.array([-1, None, 1], pa.int16()),
        "int": pa.array([-1, None, 1], pa.int32()),
        "big": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
        "float": pa.array([1.5, None, -0.0], pa.float32()),
        "double": pa.array([1e300, None, math.inf], pa.float64()),
        "text": ["é", None, ""],
        "bytes": pa.array([b"\xff\x00", None, b""], pa.binary()),
        "day": pa.array([0, None, 2**31 - 1], pa.int32()).cast(pa.date32()),
        "moment": pa.array([-(2**62), None, 2**62], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "local": pa.array([0, None, 1], pa.int64()).cast(pa.timestamp("us")),
        "price": pa.array([Decimal("-1.50"), None, Decimal("99999999.99")], pa.decimal128(10, 2)),
        "huge": pa.array([Decimal(10**37), None, Decimal(-1)], pa.decimal128(38, 0)),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        "struct": [{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": None}],
        "a.b": [1, 2, 3],
        "a": [{"b": "namesake"}, None, {"b": None}],
    }
)


def test_every_type_comes_back_from_plain_parquet_with_the_table_s_field_ids(store: Store) -> None:
    spec = spec_of(EVERY_TYPE.schema)
    record = write(store, spec, EVERY_TYPE)
    found = read(store, live(record), spec.schema)
    found.validate(full=True)
    assert found.equals(EVERY_TYPE.cast(spec.schema.arrow))
    found = pq.read_schema(store.location(PLACE.path))
    ids = {field.name: int(field.metadata[FIELD_ID]) for field in found}
    assert ids == {name: spec.schema.ids[name] for name in spec.schema.names}
    assert pq.read_table(store.location(PLACE.path)).num_rows == 3


def test_record_says_what_the_file_is(store: Store) -> None:
    spec = spec_of(pa.schema([("id", pa.int64())]), "id")
    record = write(store, spec, pa.table({"id": [3, 1]}))
    assert record.schema.equals(ADDED)
    row = record.to_pylist()[0]
    assert (row["path"], row["partition"], row["bucket"], row["kind"]) == (
        PLACE.path,
        "[]",
        0,
        BASE,
    )
    assert (row["rows"], row["schema_id"], row["order"]) == (2, 0, -1)
    assert row["bytes"] == Path(store.location(PLACE.path)).stat().st_size
    assert json.loads(row["stats"]) == {"1": ["1", "3", 0]}


def test_row_groups_have_the_size_asked_for_whatever_pieces_come(store: Store) -> None:
    spec = spec_of(pa.schema([("id", pa.int64())]))
    whole = pa.table({"id": np.arange(2500)})
    pieces = [whole.slice(0, 1), whole.slice(1, 1999), whole.slice(2000, 0), whole.slice(2000)]
    record = write(store, spec, *pieces, rows=1000)
    footer = pq.read_metadata(store.location(PLACE.path))
    assert [footer.row_group(i).num_rows for i in range(3)] == [1000, 1000, 500]
    assert read(store, live(record), spec.schema)["id"].to_pylist() == list(range(2500))


def test_writer_holds_no_more_than_a_row_group(store: Store) -> None:
    spec = spec_of(pa.schema([("v", pa.binary())]))
    before = pa.total_allocated_bytes()
    peak = 0
    with DataFileWriter(store, PLACE, spec, group_rows=100) as writer:
        for _ in range(50):
            writer.write(pa.table({"v": [b"x" * 10_000] * 30}).cast(spec.schema.arrow))
            peak = max(peak, pa.total_allocated_bytes() - before)
        writer.close()
    assert peak < 3 * 100 * 10_000


def test_a_file_is_whole_or_none(store: Store) -> None:
    spec = spec_of(pa.schema([("id", pa.int64())]))
    with pytest.raises(InvariantError):
        write_raw(store, spec, pa.table({"id": [1]}, spec.schema.arrow), pa.table({"id": ["1"]}))
    with pytest.raises(pa.ArrowInvalid):
        pq.read_metadata(store.location(PLACE.path))
    record = write(store, spec)
    assert record["rows"].to_pylist() == [0]
    assert read(store, live(record), spec.schema).num_rows == 0


def test_a_file_that_is_not_the_declared_one_is_refused_by_name(store: Store) -> None:
    spec = spec_of(pa.schema([("id", pa.int64())]))
    record = write(store, spec, pa.table({"id": [1, 2]}))
    for declared in (1, 3):
        with pytest.raises(CorruptMetadataError) as caught:
            read(store, live(record, rows=declared), spec.schema)
        assert (caught.value.path, caught.value.found) == (PLACE.path, "2 rows")
    with pytest.raises(CorruptMetadataError):
        read(store, live(record, path="../elsewhere.parquet"), spec.schema)
    place = Path(store.location(PLACE.path))
    place.write_bytes(place.read_bytes()[:-10])
    with pytest.raises(CorruptMetadataError, match=PLACE.path):
        read(store, live(record), spec.schema)
    place.unlink()
    with pytest.raises(CorruptMetadataError, match=PLACE.path):
        read(store, live(record), spec.schema)


def _evolved(*fields: tuple[int, str, pa.DataType]) -> Schema:
    made = [pa.field(n, t, metadata={FIELD_ID: str(number).encode()}) for number, n, t in fields]
    return Schema(1, pa.schema(made))


def test_old_file_is_read_with_renamed_added_and_widened_columns(store: Store) -> None:
    spec = spec_of(pa.schema([("id", pa.int32()), ("name", pa.string()), ("gone", pa.int64())]))
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"], "gone": [0, 0]})
    file = live(write(store, spec, rows))
    newer = _evolved((2, "title", pa.string()), (9, "name", pa.float64()), (1, "id", pa.int64()))
    found = read(store, file, newer, spec.schema)
    assert found.to_pylist() == [
        {"title": "a", "name": None, "id": 1},
        {"title": "b", "name": None, "id": 2},
    ]


def test_file_without_field_ids_is_read_by_the_names_of_its_schema(store: Store) -> None:
    spec = spec_of(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    file = live(write(store, spec, pa.table({"id": [1, 2], "name": ["a", "b"]})))
    pq.write_table(pa.table({"name": ["a", "b"], "id": [1, 2]}), store.location(PLACE.path))
    file = as_is(store, file)
    newer = _evolved((2, "title", pa.string()), (1, "id", pa.int64()))
    assert read(store, file, newer, spec.schema)["title"].to_pylist() == ["a", "b"]


@pytest.mark.slow
def test_another_file_in_the_place_of_a_data_file_is_refused_by_its_size(store: Store) -> None:
    """A few bytes that unpack to very many are not even parsed."""
    spec = spec_of(pa.schema([("name", pa.string())]))
    file = live(write(store, spec, pa.table({"name": ["a"]})))
    sink = store.location(PLACE.path)
    pq.write_table(pa.table({"name": ["x" * (1 << 27)]}), sink, compression="zstd")
    with pytest.raises(CorruptMetadataError) as caught:
        read(store, file, spec.schema)
    assert caught.value.path == PLACE.path
    with pytest.raises(CorruptMetadataError, match="unpacked"):
        read(store, as_is(store, file), spec.schema)


@pytest.mark.parametrize("groups", [1, 3_000])
def test_footer_that_was_changed_is_refused_before_its_bounds_prune_rows(
    store: Store, groups: int
) -> None:
    """INV-01: Parquet has no checksum of a footer; 3,000 groups do not fit in its last 64 KiB."""
    spec = spec_of(pa.schema([("id", pa.int64())]))
    rows = pa.table({"id": pa.array(range(1_000_000, 1_000_000 + groups))})
    file = live(write(store, spec, rows, rows=1))
    assert read(store, file, spec.schema).equals(rows.cast(spec.schema.arrow))
    path = Path(store.location(PLACE.path))
    body = path.read_bytes()
    known = Range(1_000_000, 1_000_000, 0)
    with OpenFile(store, file, Schemas(spec.schema, {0: spec.schema})) as opened:
        assert opened.group_ranges(0, ["id"]) == {"id": known}
    value = struct.pack("<q", 1_000_000)
    at = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    assert value in body[at:]
    path.write_bytes(body[:at] + body[at:].replace(value, struct.pack("<q", 2_000_000)))
    assert pq.read_table(path)["id"][0].as_py() == 1_000_000  # the pages are as they were
    with pytest.raises(CorruptMetadataError, match="footer") as caught:
        OpenFile(store, file, Schemas(spec.schema, {0: spec.schema}))
    assert caught.value.path == PLACE.path


@pytest.mark.parametrize("end", [b"\xff" * 4, b"\0" * 4, struct.pack("<I", 1 << 20)])
def test_footer_of_another_length_is_refused(store: Store, end: bytes) -> None:
    spec = spec_of(pa.schema([("id", pa.int64())]))
    file = live(write(store, spec, pa.table({"id": [1]})))
    path = Path(store.location(PLACE.path))
    path.write_bytes(path.read_bytes()[:-8] + end + b"PAR1")
    with pytest.raises(CorruptMetadataError, match="footer"):
        read(store, file, spec.schema)


def test_file_that_lacks_a_column_of_its_own_schema_is_refused(store: Store) -> None:
    spec = spec_of(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    file = live(write(store, spec, pa.table({"id": [1], "name": ["a"]})))
    narrower = spec_of(pa.schema([("id", pa.int64())]))
    other = live(write(store, narrower, pa.table({"id": [1]})))
    file = replace(file, size_bytes=other.size_bytes, footer=other.footer)
    with pytest.raises(CorruptMetadataError, match="'name'"):
        read(store, file, spec.schema)


def _stats(store: Store, table: pa.Table, **kinds: pa.DataType) -> dict[str, Range]:
    spec = spec_of(table.schema)
    record = write(store, spec, table, rows=2)
    found = file_bounds(record, list(kinds), spec.schema)
    return {
        name: Range(to_raw(known.lower[0]), to_raw(known.upper[0]), known.null_count[0].as_py())
        for name, known in found.items()
    }


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([3, None, 1, 2], pa.int64(), Range(1, 3, 1)),
        ([None, None, None], pa.int64(), Range(None, None, 3)),
        ([None, None, 5], pa.int8(), Range(5, 5, 2)),
        ([1.0, 2.0, math.nan], pa.float64(), Range(None, None, 0)),
        ([0.0, 0.0], pa.float64(), Range(-0.0, 0.0, 0)),
        ([-math.inf, math.inf], pa.float32(), Range(-math.inf, math.inf, 0)),
        (["b", "a", None], pa.string(), Range("a", "b", 1)),
        ([b"\xff", b"a"], pa.binary(), Range(b"a", b"\xff", 0)),
        ([Decimal("-0.01"), None], pa.decimal128(38, 2), Range(*[Decimal("-0.01")] * 2, 1)),
        ([True, False], pa.bool_(), Range(lower=False, upper=True, null_count=0)),
    ],
    ids=str,
)  # fmt: skip
def test_bounds_hold_every_value(
    store: Store, values: list[object], kind: pa.DataType, expected: Range
) -> None:
    found = _stats(store, pa.table({"v": pa.array(values, kind)}), v=kind)["v"]
    assert found == expected
    assert str(found.lower) == str(expected.lower)  # the sign of zero


def test_files_carry_no_statistics_of_floats_and_all_others(store: Store) -> None:
    """INV-04: an engine that skips by them would skip NaN."""
    inner = pa.struct([("x", pa.float32()), ("n", pa.int32())])
    kinds = {
        "d": pa.float64(),
        "i": pa.int64(),
        "s": inner,
        "l": pa.list_(pa.float64()),
        "m": pa.map_(pa.string(), pa.list_(inner)),
    }
    schema = pa.schema(list(kinds.items()))
    values = {"d": 1.0, "i": 1, "s": {"x": 1.0, "n": 1}, "l": [1.0], "m": [("k", [{"n": 2}])]}
    table = pa.Table.from_pylist([values, values], schema=schema)
    record = write(store, spec_of(schema), table)
    footer = pq.read_metadata(store.filesystem().open_input_file(record["path"][0].as_py()))
    leaves = [footer.row_group(0).column(n) for n in range(footer.num_columns)]
    with_bounds = {leaf.path_in_schema for leaf in leaves if leaf.is_stats_set}
    expected = {"i", "s.n", "m.key_value.key", "m.key_value.value.list.element.n"}
    assert with_bounds == expected


def test_bounds_of_dates_and_timestamps_beyond_python_s_calendar(store: Store) -> None:
    kind = pa.timestamp("us", "UTC")
    table = pa.table({"v": pa.array([2**62, -(2**62)], pa.int64()).cast(kind)})
    assert _stats(store, table, v=kind)["v"] == Range(-(2**62), 2**62, 0)


def _long_texts() -> Iterator[str]:
    yield "z" * 500
    yield "a" * 500
    yield "\U0010ffff" * 500
    yield "a" * (LENGTH_MAX - 1) + "\ud7ff" + "b"
    yield "é" * 300


@pytest.mark.parametrize("text", list(_long_texts()), ids=lambda t: ascii(t[-1]))
def test_bounds_of_long_texts_are_short_and_still_hold(store: Store, text: str) -> None:
    found = _stats(store, pa.table({"v": [text]}), v=pa.string())["v"]
    assert isinstance(found.lower, str)
    assert len(found.lower) <= LENGTH_MAX
    assert found.lower.encode() <= text.encode()
    if found.upper is not None:
        assert isinstance(found.upper, str)
        assert len(found.upper) <= LENGTH_MAX
        assert found.upper.encode() >= text.encode()


def test_bounds_are_for_the_first_plain_columns_the_key_and_the_ordering(store: Store) -> None:
    names = [f"c{index}" for index in range(40)]
    table = pa.table({"l": [[1]], **{name: [1] for name in names}})
    spec = spec_of(table.schema, "c38", ordering="c39")
    found = json.loads(write(store, spec, table)["stats"][0].as_py())
    expected = [*names[:32], "c38", "c39"]
    assert list(found) == [str(spec.schema.ids[name]) for name in expected]


def test_columns_whose_paths_are_written_alike_keep_their_statistics_apart(store: Store) -> None:
    """Names may have dots: a column ``a.b``, and a member ``b`` of a column ``a``."""
    member = pa.field("a", pa.struct([("b", pa.float64())]))
    rows = pa.table({"a.b": [1, 100], "a": pa.array([{"b": 0.5}, {"b": 1.5}], member.type)})
    for order in (["a.b", "a"], ["a", "a.b"]):
        chosen = rows.select(order)
        spec = spec_of(chosen.schema)
        record = write(store, spec, chosen)
        stats = json.loads(record["stats"][0].as_py())
        assert stats[str(spec.schema.ids["a.b"])] == ["1", "100", 0]
        store.delete([PLACE.path])
