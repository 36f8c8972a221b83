"""What a change of the columns promises to those who read and write beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pyarrow as pa
import pytest

from plait import (
    RepushOpenError,
    RetryableConflictError,
    SchemaError,
    SchemaMismatchError,
    Transaction,
)
from plait.repush.begin import RepushRequest, begin
from plait.repush.load import Load
from plait.repush.shadow import Shadow
from plait.services.definition.alter import Alteration
from tests.support import build
from tests.support.build import again, content

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int32())])
rows = partial(build.rows, schema=SCHEMA, p="x", v=0)
make = partial(build.make, SCHEMA, append=rows(1, 2, 3), buckets=2)
FIRST = [{"id": number, "p": "x", "v": 0} for number in (1, 2, 3)]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_version_shows_its_own_columns(kind: str) -> None:
    """INV-04, INV-05: and a window of changes those of its last version."""
    table = make(table_type=kind)
    table.alter.columns().rename("v", "count").widen("count", "bigint").commit()
    with pytest.raises(SchemaMismatchError):
        again(table).append(rows(9))
    table.upsert(pa.table({"id": [1], "p": ["y"], "count": [2**40]}))
    table.alter.columns().drop("p").add("note", "string", default="none", after="id").commit()
    table.upsert(pa.table({"id": [4], "note": ["new"], "count": [4]}))
    shown = [
        (r["id"], r["count"], r["note"]) for r in again(table).changes(0).to_arrow().to_pylist()
    ]
    assert sorted(shown[:3]) == [(number, 0, "none") for number in (1, 2, 3)]
    assert shown[3:] == [(1, 0, "none"), (1, 2**40, "none"), (4, 4, "new")]
    table.maintenance.compact(full=True)
    assert content(table, 1) == FIRST
    renamed = [{"id": number, "p": "x", "count": 0} for number in (1, 2, 3)]
    assert content(table, 2) == renamed
    assert content(table, 3) == [{"id": 1, "p": "y", "count": 2**40}, *renamed[1:]]
    assert content(table) == [
        {"id": 1, "note": "none", "count": 2**40},
        {"id": 2, "note": "none", "count": 0},
        {"id": 3, "note": "none", "count": 0},
        {"id": 4, "note": "new", "count": 4},
    ]
    assert not table.check.verify(data=True).problems


def test_rows_that_come_without_a_column_have_the_default_of_their_time() -> None:
    table = make()
    table.alter.columns().add("n", "int", nullable=False, default=5).commit()
    table.append(rows(4))
    table.alter.columns().default("n", 6).commit()
    table.append(rows(5))
    assert [row["n"] for row in content(table)] == [5, 5, 5, 5, 6]
    found = again(table).scan(where="n = 5").to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 2, 3, 4]
    assert again(table).scan(where="n = 6").count() == 1


def test_bounds_of_files_from_before_hold_for_the_wider_type() -> None:
    """No file is left out whose rows match."""
    kinds = {"f": pa.float32(), "d": pa.date32(), "m": pa.decimal128(4, 1), "n": pa.int8()}
    properties = {"checkpoint.interval": 2}
    table = build.make(
        pa.schema([("id", pa.int64()), *kinds.items()]), record_key=(), properties=properties
    )
    values = [
        pa.array([text]).cast(kind)
        for text, kind in zip(["0.1", "2026-01-31", "1.5", "7"], kinds.values(), strict=True)
    ]
    data = pa.table([pa.array([1]), *values], names=["id", *kinds])
    table.append(data)
    table.append(data)
    table.alter.columns().widen("f", "double").widen("d", "timestamp_ntz").widen(
        "m", "decimal(8,3)"
    ).widen("n", "bigint").commit()
    exact = values[0].cast(pa.float64())[0].as_py()
    for where in (
        f"f = {exact!r}",
        "f > 0.1",
        "d = TIMESTAMP_NTZ '2026-01-31 00:00:00'",
        "m = 1.5",
        "n = 7",
    ):
        assert again(table).scan(where=where).count() == 2, where
    table.append(data.slice(0, 1).set_column(2, "d", values[1].cast(pa.timestamp("us"))))
    table.append(data)
    assert again(table).scan(where="f > 0.1").count() == 4
    assert not table.check.verify(data=True).problems


REFUSED: dict[str, Callable[[Alteration], Alteration]] = {
    "drop of the key": lambda change: change.drop("id"),
    "rename to a name that is taken": lambda change: change.rename("id", "p"),
    "narrower": lambda change: change.widen("v", "smallint"),
    "unknown": lambda change: change.drop("nothing"),
    "required": lambda change: change.add("n", "int", nullable=False),
    "a default that no type has": lambda change: change.add("q", "int", default=1 << 70),
    "several types": lambda change: change.add("q", "int, z string"),
    "a required type": lambda change: change.add("q", "int not null"),
    "a good step before a bad one": lambda change: change.add("n", "int").add("N", "int"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_possible_is_refused_before_anything_is_written(name: str) -> None:
    table = make()
    with pytest.raises(SchemaError):
        REFUSED[name](table.alter.columns()).commit()
    assert table.alter.columns().rename("v", "w").rename("w", "v").commit() is None
    assert table.version == 1
    assert content(table) == FIRST


@pytest.mark.parametrize("field", ["truncate(10, v)", "bucket(4, v)", "v"])
def test_a_column_that_decides_a_partition_stays_and_keeps_its_type(field: str) -> None:
    """INV-08: of another type, it has other values, and a key would be in two partitions."""
    table = make(partition_by=field)
    for change in (
        table.alter.columns().widen("v", "bigint"),
        table.alter.columns().drop("v"),
    ):
        with pytest.raises(SchemaError, match="partition"):
            change.commit()
    assert table.version == 1
    table.alter.columns().allow_null("v").rename("p", "q").commit()
    assert again(table).scan(where="v = 0").count() == 3


@pytest.mark.parametrize(
    ("how", "column", "value"),
    [
        ({}, "id", 5),
        ({"partition_by": "p"}, "p", "x"),
        ({"partition_by": "truncate(10, v)"}, "v", 1),
        ({"ordering": "v"}, "v", 1),
    ],
)
def test_a_column_that_the_table_lives_by_has_no_default(
    how: dict[str, object], column: str, value: object
) -> None:
    """INV-08: rows that come without a key would all be one row, and others would be lost."""
    table = make(**how)
    with pytest.raises(SchemaError, match="default"):
        table.alter.columns().default(column, value).commit()
    assert table.version == 1
    assert table.alter.columns().default(column, None).commit() is None
    dated = build.make("id bigint, d date", record_key=(), ttl="d 30d row")
    with pytest.raises(SchemaError, match="default"):
        dated.alter.columns().default("d", "2026-01-31").commit()


@pytest.mark.parametrize("commits", [1, 2])
def test_a_column_that_is_dropped_and_added_again_is_empty(commits: int) -> None:
    """A column is its id, also where the names and types are the same afterwards."""
    table = make()
    if commits == 2:
        table.alter.columns().drop("v").commit()
        table.alter.columns().add("v", "int").commit()
    else:
        table.alter.columns().drop("v").add("v", "int").commit()
    assert content(table) == [{**row, "v": None} for row in FIRST]
    ids = {schema.id: schema for schema in table._handle.cache.refresh().table.schemas.values()}
    assert len({schema.ids["v"] for schema in ids.values() if "v" in schema.names}) == 2
    assert not table.check.verify(data=True).problems


def test_columns_that_take_each_others_names_keep_their_values() -> None:
    table = make()
    table.alter.columns().add("w", "int", default=9).commit()
    change = table.alter.columns().rename("v", "t").rename("w", "v").rename("t", "w")
    change.move("w", after="v").commit()
    assert content(table) == [{"id": row["id"], "p": "x", "v": 9, "w": 0} for row in FIRST]


def test_neither_a_restore_to_other_columns_nor_an_alteration_waits_for_a_repush() -> None:
    """The repush has copied the columns as they were, and a column that came back would be null."""
    table = make()
    table.alter.columns().drop("v").commit()
    begin(table._handle, RepushRequest(buckets=3))
    opened = table._handle.cache.refresh().table.repush
    assert opened is not None
    shadow = Shadow.open(table._handle, opened)
    Load.of(table._handle, shadow).run(shadow, shadow.progress())
    with pytest.raises(RepushOpenError):
        table.versions.restore(version=1)
    with pytest.raises(RepushOpenError):
        table.alter.columns().add("n", "int").commit()
    table.upsert(pa.table({"id": [1], "p": ["y"]}))
    table.versions.restore(version=2)
    assert table.layout.repush(buckets=3).version is not None
    table.versions.restore(version=1)
    assert content(table) == FIRST
    table.alter.columns().add("n", "int").commit()
    assert content(table) == [{**row, "n": None} for row in FIRST]


def test_a_repush_keeps_what_the_columns_became() -> None:
    table = make()
    table.alter.columns().add("n", "int", default=3).rename("v", "w").commit()
    table.layout.repush(buckets=3, table_type="mor")
    table.append(pa.table({"id": [4], "p": ["x"], "w": pa.array([1], pa.int32())}))
    assert [row["n"] for row in content(table)] == [3] * 4
    assert content(table, 1) == FIRST


# --- writers that meet it ----------------------------------------------------------------------

CHANGES: dict[str, Callable[[Alteration], Alteration]] = {
    "add": lambda change: change.add("n", "int", default=9, after=""),
    "rename": lambda change: change.rename("v", "w"),
    "widen": lambda change: change.widen("v", "bigint"),
    "drop": lambda change: change.drop("v"),
    "move": lambda change: change.move("v", after=""),
    "all": lambda change: change.rename("p", "q").add("p", "date").widen("v", "bigint"),
}


def shown(name: str, row: dict[str, object]) -> dict[str, object]:
    """Say a row of the first columns in those that there are after a change."""
    found = dict(row)
    if name == "add":
        found["n"] = 9
    elif name == "rename":
        found["w"] = found.pop("v")
    elif name == "drop":
        del found["v"]
    elif name == "all":
        found |= {"q": found["p"], "p": None}
    return found


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("write", ["append", "insert", "upsert", "delete", "overwrite", "block"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_writer_that_staged_before_commits_after_it(name: str, write: str, kind: str) -> None:
    """INV-07: whatever it wrote is there, under the columns that there are."""
    table, work = make(table_type=kind), ExitStack()
    given, client = rows(3, 4, v=7) if write == "upsert" else rows(4, 5, v=7), again(table)
    if write == "block":
        work.enter_context(client.transaction()).upsert(given)
    elif write == "delete":
        given = given.slice(0, 0)
        work.enter_context(client.writer(write)).write(rows(1).select(["id"]))
    else:
        work.enter_context(client.writer(write)).write(given)
    CHANGES[name](table.alter.columns()).commit()
    work.close()
    expected = {} if write == "overwrite" else {row["id"]: row for row in FIRST}
    expected |= {row["id"]: row for row in given.to_pylist()}
    if write == "delete":
        del expected[1]
    assert content(table) == [shown(name, expected[number]) for number in sorted(expected)]
    assert not table.check.verify(data=True).problems


@pytest.mark.parametrize("name", CHANGES)
def test_an_expression_means_what_it_meant_or_is_run_again(name: str) -> None:
    """No name stands for another column than the one that was meant at the call."""
    table, work = make(), ExitStack()
    late = again(table)  # it has not heard of the alteration
    work.enter_context(again(table).transaction()).update({"v": "v + 1"}, where="p = 'x'")
    CHANGES[name](table.alter.columns()).commit()
    if name in ("add", "widen", "move"):
        work.close()
        changed = [shown(name, {**row, "v": 1}) for row in FIRST]
    else:
        with pytest.raises(RetryableConflictError):
            work.close()
        with pytest.raises(RetryableConflictError):
            late.delete(where="v = 0 AND p = 'x'")
        changed = [shown(name, row) for row in FIRST]
    assert content(table) == changed


NARROW = {
    "d": (pa.date32(), "timestamp_ntz", "DATE '2026-01-02'"),
    "m": (pa.decimal128(10, 2), "decimal(12,3)", "1.50"),
    "f": (pa.float32(), "double", "0.25"),
    "n": (pa.int32(), "bigint", "2"),
}
VALUES = {
    "d": ["2026-01-01", "2026-01-02", "2026-01-03"],
    "m": ["1.40", "1.50", "1.60"],
    "f": ["0.125", "0.25", "0.5"],
    "n": ["1", "2", "3"],
}
EXPRESSIONS: dict[str, Callable[[Transaction, str, str], object]] = {
    "delete": lambda txn, name, value: txn.delete(where=f"{name} = {value}"),
    "delete of some": lambda txn, name, value: txn.delete(
        where=f"NOT ({name} > {value} OR {name} < {value})"
    ),
    "delete of listed": lambda txn, name, value: txn.delete(where=f"{name} IN ({value}, {value})"),
    "update": lambda txn, name, value: txn.update({"gone": "true"}, where=f"{name} = {value}"),
    "overwrite": lambda txn, name, value: txn.overwrite(
        pa.table({name: pa.array([VALUES[name][1]]).cast(NARROW[name][0])}),
        where=f"{name} = {value}",
    ),
}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("what", EXPRESSIONS)
def test_a_literal_means_the_same_value_of_a_wider_type(what: str, name: str) -> None:
    """INV-07: what was parsed for the column as it was is done to the column as it is."""
    kind, wider, literal = NARROW[name]
    schema = pa.schema([(name, kind), ("gone", pa.bool_())])
    table = build.make(schema, record_key=(), isolation="serializable")
    table.append(pa.table({name: pa.array(VALUES[name]).cast(kind)}))
    with again(table).transaction() as txn:
        EXPRESSIONS[what](txn, name, literal)
        table.alter.columns().widen(name, wider).commit()
    found = again(table).scan(where="gone IS NULL").to_arrow()[name].to_pylist()
    wanted = pa.array(VALUES[name]).cast(kind).cast(table.schema.field(name).type).to_pylist()
    assert sorted(found) == (wanted if what == "overwrite" else [wanted[0], wanted[2]])
    assert not table.check.verify(data=True).problems


MEMBERS = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32()), ("b", pa.int32())]))])


def test_a_name_inside_a_struct_stands_for_the_same_column() -> None:
    schema = "id bigint, s struct<a:int,b:int>"
    table = build.make(schema)
    table.append(pa.table({"id": [1], "s": [{"a": 1, "b": 2}]}, schema=MEMBERS))
    work = ExitStack()
    work.enter_context(again(table).transaction()).delete(where="s.a = 1")
    table.alter.columns().rename("s.a", "c").rename("s.b", "a").commit()
    with pytest.raises(RetryableConflictError):
        work.close()
    assert again(table).scan().count() == 1


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_comment_is_in_the_way_of_no_writer(kind: str) -> None:
    """INV-07: it changes nothing that was read or written, so nothing is staged again."""
    table, work = make(table_type=kind), ExitStack()
    txn = work.enter_context(again(table).transaction())
    found = txn.scan().to_arrow()
    txn.upsert(found.set_column(2, "v", pa.array([8] * 3, pa.int32())))
    writer = work.enter_context(again(table).writer("upsert"))
    writer.write(rows(4, 5, v=8))
    table.alter.columns().comment("v", "what it is").commit()
    table.upsert(rows(6, v=8))
    work.close()
    table.upsert(rows(7, v=8))
    assert content(table) == [{"id": number, "p": "x", "v": 8} for number in range(1, 8)]
    assert not [each for each in table.inspect.history() if "restaged" in str(each)]
    assert not table.check.verify(data=True).problems


def test_a_read_of_before_a_comment_is_as_good_as_one_after_it() -> None:
    """INV-07: but columns that come back after a restore are a change."""
    table = make()
    scan = again(table).scan()
    table.alter.columns().comment("v", "what it is").commit()
    table.upsert(scan.to_arrow(), read_from=scan)
    assert content(table) == FIRST
    table.alter.columns().comment("v", "").widen("v", "bigint").commit()
    with pytest.raises(RetryableConflictError):
        table.upsert(scan.to_arrow(), read_from=scan)
    table.versions.restore(version=1)
    scan = again(table).scan()
    table.alter.columns().widen("v", "bigint").commit()
    with pytest.raises(RetryableConflictError):
        table.upsert(scan.to_arrow(), read_from=scan)
    assert content(table) == FIRST


def test_rows_of_a_partial_upsert_keep_a_column_that_came_meanwhile() -> None:
    table = make()
    with again(table).writer("upsert", missing_columns="keep") as writer:
        writer.write(rows(1, v=5).select(["id", "v"]))
        table.alter.columns().add("n", "int", default=3).rename("v", "w").commit()
    assert content(table)[0] == {"id": 1, "p": "x", "w": 5, "n": 3}


def test_two_alterations_at_once_both_count() -> None:
    """Ids are given out once."""
    table = make()
    one, other = again(table), again(table)
    one._handle.cache.refresh()
    other._handle.cache.refresh()
    one.alter.columns().add("a", "int").commit()
    other.alter.columns().add("b", "int").commit()
    with pytest.raises(SchemaError):
        one.alter.columns().add("B", "int").commit()
    schema = again(table)._handle.cache.refresh().table.spec.schema
    assert schema.names == ["id", "p", "v", "a", "b"]
    assert len({schema.ids[name] for name in schema.names}) == 5


# --- a date becomes a time only if each row has a date that is one --------------------------------

LAST = 106_751_991
"""Days from 1970 to the last day of which a timestamp in microseconds knows every moment."""
OFFSETS = pa.array([0, 1], pa.int32())
SHAPES: dict[str, tuple[str, str, Callable[[pa.Array], pa.Array]]] = {
    "column": ("date", "d", lambda days: days),
    "member": (
        "struct<x:date>",
        "d.x",
        lambda days: pa.StructArray.from_arrays([days], names=["x"]),
    ),
    "element": ("array<date>", "d.element", lambda days: pa.ListArray.from_arrays(OFFSETS, days)),
    "value": (
        "map<string,date>",
        "d.value",
        lambda days: pa.MapArray.from_arrays(OFFSETS, pa.array(["k"]), days),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("day", "fits"), [(LAST, True), (LAST + 1, False), (-LAST - 3, False)])
def test_a_date_that_is_no_time_refuses_the_change(shape: str, day: int, fits: bool) -> None:
    """Every version stays readable, and the column can be corrected."""
    kind, path, put = SHAPES[shape]
    table = build.make(f"id bigint, d {kind}")
    days = pa.array([day], pa.int32()).cast(pa.date32())
    table.upsert(pa.table({"id": [1], "d": put(days)}))
    change = table.alter.columns().widen(path, "timestamp_ntz")
    if fits:
        change.commit()
    else:
        with pytest.raises(SchemaError, match="no timestamp"):
            change.commit()
    assert table.version == 1 + fits
    assert table.scan().to_arrow().num_rows == 1
    assert not table.check.verify(data=True).problems
