"""What a column may be: one answer at every door, for the schema and for its rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import polars as pl
import pyarrow as pa
import pytest

from plait import Insert, Table, Update
from plait.arrow.cast import Fit, fit
from plait.errors import CorruptMetadataError, SchemaError
from plait.model.schema import FIELDS_MAX, NAME_CHARS_MAX, Schema, storable_type, type_name
from tests.support import build
from tests.support.types import AROUND, REFUSED, TAKEN

KEYED = "id bigint"
fresh = partial(build.make, record_key=())


def keyed(kind: str, ddl: str) -> Table:
    table = fresh(f"id bigint, c {ddl}", record_key="id", table_type=kind, buckets=1)
    table.append(pa.table({"id": [0]}))
    return table


# --- the doors: each makes a column for a value, or writes one into a column that there is -------


def _created(rows: pa.Table) -> Table:
    table = fresh(rows.schema)
    table.append(rows)
    return table


def _evolved(rows: pa.Table) -> Table:
    table = fresh(KEYED)
    table.append(rows, evolve="add")
    return table


def _altered(rows: pa.Table) -> Table:
    table = fresh(KEYED)
    table.alter.columns().add("c", rows.schema.field("c").type).commit()
    table.append(rows)
    return table


MAKERS: dict[str, Callable[[pa.Table], Table]] = {
    "create": _created,
    "evolve": _evolved,
    "alter": _altered,
}


def _merge(table: Table, rows: pa.Table) -> None:
    table.merge(rows, matched=Update({"c": "s.c"}), not_matched=Insert())


def _merge_by_name(table: Table, rows: pa.Table) -> None:
    table.merge(rows.rename_columns(["id", "other"]), not_matched=Insert({"c": "s.other"}))


def _transaction(table: Table, rows: pa.Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows)


WRITERS: dict[str, Callable[[Table, pa.Table], object]] = {
    "append": lambda table, rows: table.append(rows),
    "insert": lambda table, rows: table.insert(rows),
    "upsert": lambda table, rows: table.upsert(rows),
    "partial": lambda table, rows: table.upsert(rows, missing_columns="keep"),
    "overwrite": lambda table, rows: table.overwrite(rows, where="id >= 0"),
    "batches": lambda table, rows: table.append(rows.to_reader()),
    "merge": _merge,
    "merge by name": _merge_by_name,
    "transaction": _transaction,
}


def _rows(value: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array([1]), "c": value})


@pytest.mark.long(40)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", TAKEN)
def test_a_type_makes_one_column_at_every_door_and_its_rows_fit(name: str, around: str) -> None:
    value, ddl = TAKEN[name]
    shape, wrapped = AROUND[around]
    rows = _rows(wrapped(value))
    found = set()
    for make in MAKERS.values():
        table = make(rows)
        assert type_name(table.schema.field("c").type) == shape.format(ddl)
        found.add(str(table.scan(columns=["c"]).to_arrow()["c"].chunk(0)))
    assert len(found) == 1


@pytest.mark.long(5)
@pytest.mark.parametrize("name", TAKEN)
def test_rows_of_a_type_that_makes_a_column_fit_it_in_every_operation(name: str) -> None:
    value, ddl = TAKEN[name]
    for (shape, wrapped), kind in ((AROUND["alone"], "cow"), (AROUND["list"], "mor")):
        expected = None
        for door, write in WRITERS.items():
            table = keyed(kind, shape.format(ddl))
            write(table, _rows(wrapped(value)))
            found = str(table.scan(where="id = 1").to_arrow()["c"].combine_chunks())
            expected = expected or found
            assert found == expected, door


@pytest.mark.long(24)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_makes_no_column_is_refused_at_every_door_before_anything_is_written(
    name: str, around: str
) -> None:
    rows = _rows(AROUND[around][1](REFUSED[name]))
    kind = rows.schema.field("c").type
    with pytest.raises(SchemaError) as told:
        fresh(rows.schema)
    assert str(told.value.column).startswith("c")
    table = keyed("cow", "bigint")
    with pytest.raises(SchemaError):
        table.alter.columns().add("d", kind).commit()
    with pytest.raises(SchemaError):
        table.upsert(rows.rename_columns(["id", "d"]), evolve="add", missing_columns="keep")
    source = rows.rename_columns(["id", "d"])
    if not (pa.types.is_null(kind) and around == "alone"):
        with pytest.raises(SchemaError):
            table.merge(source, not_matched=Insert())
    assert table.version == 1
    with pytest.raises(SchemaError):
        storable_type(kind, "c")


def test_rows_fit_some_column_only_if_their_type_makes_one() -> None:
    columns = [pa.bool_(), pa.int8(), pa.int64(), pa.float64(), pa.string(), pa.binary()]
    columns += [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(38, 2)]
    columns += [pa.struct([("a", pa.int64())]), pa.struct([("value", pa.binary())])]
    columns += [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())]
    narrowed = {"null", "decimal of 39", "empty struct"}  # their values alone decide
    for name in REFUSED.keys() - narrowed:
        assert {fit(REFUSED[name].type, kind) for kind in columns} == {Fit.NEVER}, name


@pytest.mark.long(2)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("coded", [pl.Categorical, pl.Enum(["a", "b"]), pl.String])
def test_coded_texts_of_polars_are_written_looked_up_and_deleted(
    kind: str, coded: pl.DataType
) -> None:
    table = fresh("k string, p string, n bigint", record_key="k", partition_by="p", table_type=kind)
    types = {"k": coded, "p": coded}
    frame = pl.DataFrame({"k": ["a", "b"], "p": ["a", "b"], "n": [1, 2]}, schema_overrides=types)
    table.upsert(frame)
    table.upsert(frame)
    table.merge(frame, matched=Update({"n": "s.n + t.n"}), not_matched=Insert())
    assert table.get(frame.select("k")).num_rows == 2
    table.overwrite(frame, partitions="dynamic")
    table.delete(keys=frame.select("k", "p")[:1])
    with table.writer("upsert") as writer:
        writer.write(frame[:1])
        writer.remove(frame.select("k", "p")[1:])
    assert table.scan().to_arrow().to_pylist() == [{"k": "a", "p": "a", "n": 1}]


@pytest.mark.parametrize(
    "kind",
    [
        *("interval day", "interval year to month", "variant", "time(6)", "void", "object", "uint"),
        *("string collate UTF8_LCASE", "array<string collate UTF8_LCASE>", "array<void>"),
        *("map<string, string collate UNICODE>", "struct<a: string collate UNICODE>", "struct<>"),
        *("decimal(39, 0)", "decimal(5, 9)", "struct<a: int, A: int>", "timestamp(3)", "array"),
    ],
)
def test_a_type_in_ddl_that_no_column_has_is_refused(kind: str) -> None:
    with pytest.raises(SchemaError):
        fresh(f"c {kind}")
    table = fresh(KEYED)
    for text in (f"ADD COLUMN c {kind}", f"ADD COLUMN s struct<c: {kind}>"):
        with pytest.raises(SchemaError):
            table.alter.columns().sql(text).commit()
    assert table.version == 0


# --- names and limits ----------------------------------------------------------------------------


def _nested(depth: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


LIMITS: dict[str, tuple[pa.Schema, bool]] = {
    "longest name": (pa.schema([("a" * NAME_CHARS_MAX, pa.int64())]), True),
    "longer name": (pa.schema([("a" * (NAME_CHARS_MAX + 1), pa.int64())]), False),
    "longer name of a member": (
        pa.schema([("c", pa.struct([("a" * (NAME_CHARS_MAX + 1), pa.int64())]))]),
        False,
    ),
    "deepest": (pa.schema([("c", _nested(32))]), True),
    "deeper": (pa.schema([("c", _nested(33))]), False),
    "most columns": (pa.schema([(f"c{n}", pa.int64()) for n in range(FIELDS_MAX)]), True),
    "more columns": (pa.schema([(f"c{n}", pa.int64()) for n in range(FIELDS_MAX + 1)]), False),
    "more parts": (
        pa.schema([("c", pa.struct([(f"c{n}", pa.int64()) for n in range(FIELDS_MAX)]))]),
        False,
    ),
    "no column": (pa.schema([]), False),
}


@pytest.mark.long(3)
@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_of_schemas_holds_for_what_is_made_and_for_what_is_read(name: str) -> None:
    schema, allowed = LIMITS[name]
    if allowed:
        made = Schema.create(schema)
        assert Schema.from_dict(made.to_dict()).same_columns(made)
        return
    with pytest.raises(SchemaError):
        Schema.create(schema)


def test_a_change_of_columns_keeps_to_the_limits() -> None:
    table = fresh("id bigint, s struct<a: bigint>")
    for path in ("x" * (NAME_CHARS_MAX + 1), "s." + "x" * (NAME_CHARS_MAX + 1), "s.A", "ID"):
        with pytest.raises(SchemaError):
            table.alter.columns().add(path, pa.int64()).commit()
    with pytest.raises(SchemaError):
        table.alter.columns().rename("id", "y" * (NAME_CHARS_MAX + 1)).commit()
    with pytest.raises(SchemaError):
        table.alter.columns().add("\ud800", pa.int64()).commit()
    with pytest.raises(SchemaError):
        table.alter.columns().rename("id", "\ud800").commit()
    assert table.version == 0


@pytest.mark.parametrize(
    "fields",
    [
        [("a", "bigint"), ("A", "bigint")],
        [("a", {"struct": [("b", "bigint"), ("B", "bigint")]})],
        [("a", {"struct": []})],
        [("", "bigint")],
        [("\ud800", "bigint")],
        [("_change_type", "bigint")],
        [],
    ],
)
def test_metadata_of_columns_that_no_table_could_have_is_corrupt(
    fields: list[tuple[str, object]],
) -> None:
    numbers = itertools.count(1)

    def listed(given: list[tuple[str, object]]) -> list[dict[str, object]]:
        return [
            {"id": next(numbers), "name": name, "type": typed(kind), "nullable": True}
            for name, kind in given
        ]

    def typed(kind: object) -> object:
        return {"struct": listed(kind["struct"])} if isinstance(kind, dict) else kind

    with pytest.raises(CorruptMetadataError):
        Schema.from_dict({"id": 0, "fields": listed(fields)})


def test_ids_of_metadata_are_each_columns_own() -> None:
    for first, second in ((1, 1), (0, 1), (1, 1 << 31), (-1, 2), (True, 2)):
        fields = [
            {"id": number, "name": name, "type": "bigint", "nullable": True}
            for number, name in ((first, "a"), (second, "b"))
        ]
        with pytest.raises(CorruptMetadataError):
            Schema.from_dict({"id": 0, "fields": fields})
