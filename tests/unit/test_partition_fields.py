"""Partitions by transforms of columns and by functions of one's own (RFC 0024)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import (
    BadRecordError,
    Insert,
    OptionError,
    RetryableConflictError,
    SchemaError,
    SchemaMismatchError,
    Table,
    UnsupportedFeatureError,
    Update,
    register_partition_function,
)
from plait.definition.features import PARTITION_FIELDS
from plait.files import partition_values
from plait.model.partitioning import parse_field
from tests.support.memory import forget

SCHEMA = "id bigint, ts timestamp, user string, v bigint"
BEGIN = dt.datetime(2026, 1, 30, 20, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers ends with it."""
    monkeypatch.setattr(partition_values, "_FUNCTIONS", {})


def table_of(uri: str, *fields: str, table_type: str = "cow") -> Table:
    return Table.create(
        uri, SCHEMA, record_key="id", partition_by=fields, table_type=table_type, buckets=2
    )


def rows_of(ids: Sequence[int], v: int = 0) -> pa.Table:
    rows = [
        {
            "id": n,
            "ts": None if n % 11 == 10 else BEGIN + dt.timedelta(hours=3 * n),
            "user": f"user {n % 7}",
            "v": v,
        }
        for n in ids
    ]
    kinds = [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
    schema = pa.schema([*kinds, ("user", pa.string()), ("v", pa.int64())])
    return pa.Table.from_pylist(rows, schema=schema)


def partitions_of(table: Table) -> set[str]:
    return set(table.inspect.files()["partition"].to_pylist())


def ids_of(table: Table, where: str | None = None) -> list[int]:
    return sorted(table.scan(where=where).to_arrow()["id"].to_pylist())


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_every_operation_finds_the_partition_by_the_sources(uri: str, table_type: str) -> None:
    """INV-08: the identity is the computed value and the key."""
    table = table_of(uri, "day(ts)", "bucket(3, user)", table_type=table_type)
    table.upsert(rows_of(range(30)))
    table.upsert(rows_of(range(5), v=1))
    assert table.scan().count() == 30
    assert ids_of(table, "v = 1") == list(range(5))
    named = rows_of([0, 1]).select(["id", "ts", "user"])
    table.delete(keys=named)
    table.delete(keys=rows_of([2]).select(["id"]))
    assert ids_of(table) == list(range(3, 30))
    table.delete(keys=rows_of([13]).select(["id"]).append_column("ts", named["ts"].slice(0, 1)))
    assert ids_of(table) == [*range(3, 13), *range(14, 30)]
    table.overwrite(rows_of([3], v=2), partitions="dynamic")
    with table.writer("upsert") as writer:
        writer.write(rows_of([40]))
        writer.remove(rows_of([29]))
    left = ids_of(table)
    assert {3, 40} <= set(left)
    assert 29 not in left
    assert not table.check.verify().problems


def test_a_row_that_moves_within_its_day_is_the_same_row(uri: str) -> None:
    table = table_of(uri, "day(ts)")
    row = rows_of([0])
    table.upsert(row)
    later = row.set_column(1, "ts", pc.add(row["ts"], dt.timedelta(hours=1)))
    table.upsert(later)
    assert table.scan().to_arrow()["ts"].to_pylist() == later["ts"].to_pylist()
    with pytest.raises(OptionError, match="part of the partition"):
        table.update({"ts": "ts"})


# --- predicates ------------------------------------------------------------------------------


def read(table: Table, where: str) -> tuple[int, int]:
    plan = table.scan(where=where).plan
    return plan.files_total - plan.pruned_by_partition, plan.files_total


@pytest.mark.parametrize(
    ("fields", "where", "partitions"),
    [
        (["day(ts)"], "ts = TIMESTAMP '2026-01-31T05:00:00Z'", 1),
        (["day(ts)"], "ts < TIMESTAMP '2026-01-31T00:00:00Z'", 1),
        (["day(ts)"], "ts >= TIMESTAMP '2026-02-01T00:00:00Z'", 1),
        (["day(ts)"], "ts IS NULL", 1),
        (
            ["day(ts)"],
            "ts IN (TIMESTAMP '2026-01-31T05:00:00Z', TIMESTAMP '2030-01-01T00:00:00Z')",
            1,
        ),
        (["truncate(5, id)"], "id BETWEEN 4 AND 6", 2),
        (["bucket(64, user)"], "user = 'user 3'", 1),
        (["bucket(64, user)"], "user > 'user 3'", 7),
        (["truncate(6, user)", "day(ts)"], "user LIKE 'user%' AND ts IS NULL", 1),
    ],
)
def test_a_predicate_on_a_source_opens_only_partitions_that_may_match(
    uri: str, fields: list[str], where: str, partitions: int
) -> None:
    table = Table.create(uri, SCHEMA, partition_by=fields)
    table.append(rows_of(range(12)))
    assert read(table, where)[0] == partitions
    plain = Table.create(f"{uri}-plain", SCHEMA)
    plain.append(rows_of(range(12)))
    assert ids_of(table, where) == ids_of(plain, where)
    forget(f"{uri}-plain")


# --- functions of one's own ------------------------------------------------------------------


def test_a_function_of_ones_own_divides_the_table_and_readers_do_not_need_it(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_partition_function("parity", lambda ids, users: pc.bit_wise_and(ids, 1))
    table = table_of(uri, "parity(id, user)")
    table.upsert(rows_of(range(10)))
    assert partitions_of(table) == {'["0"]', '["1"]'}
    monkeypatch.setitem(partition_values._FUNCTIONS, "parity", lambda ids, users: ids)
    assert ids_of(table, "id = 3 AND user = 'user 3'") == [3], "another version of the function"
    monkeypatch.setattr(partition_values, "_FUNCTIONS", {})
    before = table.version
    assert ids_of(table, "id = 3 AND user = 'user 3'") == [3]
    with pytest.raises(UnsupportedFeatureError, match="parity") as caught:
        table.upsert(rows_of([99]))
    assert "register_partition_function" in caught.value.hint
    assert (table.version, ids_of(table)) == (before, list(range(10)))


@pytest.mark.parametrize(
    "given", [lambda ids: ids.cast(pa.float64()), lambda ids: ids.slice(1), lambda _: "same"]
)
def test_a_function_that_gives_no_value_for_each_row_is_refused(uri: str, given: object) -> None:
    register_partition_function("odd", given)  # type: ignore[arg-type]  # wrong on purpose
    table = table_of(uri, "odd(id)")
    with pytest.raises(BadRecordError, match="odd"):
        table.upsert(rows_of(range(3)))
    assert table.scan().count() == 0


@pytest.mark.parametrize("name", ["day", "Bucket", "two words", "", "a.b"])
def test_names_of_transforms_and_no_names_cannot_be_registered(name: str) -> None:
    with pytest.raises(OptionError):
        register_partition_function(name, lambda column: column)


# --- definitions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "error"),
    [
        ("day(nothing)", SchemaMismatchError),
        ("day(user)", SchemaError),
        ("hour(id)", SchemaError),
        ("truncate(3, ts)", SchemaError),
        ("bucket(0, id)", OptionError),
        ("bucket(id)", OptionError),
        ("day()", OptionError),
        ("day(ts, id)", OptionError),
        ("unknown(id)", UnsupportedFeatureError),
    ],
)
def test_fields_that_cannot_be_are_refused_before_anything_is_written(
    uri: str, field: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        table_of(uri, field)
    table = table_of(uri)
    with pytest.raises(error):
        table.layout.repush(partition_by=[field])
    assert table.version == 0


def test_a_column_that_is_called_like_a_transform_is_a_column(uri: str) -> None:
    table = Table.create(uri, pa.schema([("day(ts)", pa.string())]), partition_by="day(ts)")
    table.append(pa.table({"day(ts)": ["a", "b"]}))
    assert table.inspect.describe()["partition_by"] == ["`day(ts)`"]
    assert partitions_of(table) == {'["a"]', '["b"]'}


@pytest.mark.parametrize("text", ["a b", "`x``(y)`", "bucket(3, `a b`)", "own(a, `b,c`, d)"])
def test_a_field_reads_back_from_its_text(text: str) -> None:
    assert parse_field(parse_field(text).text) == parse_field(text)


def test_clients_learn_of_transforms_from_a_feature(uri: str) -> None:
    table = table_of(uri)
    timeline = table._handle.cache.timeline
    assert PARTITION_FIELDS not in timeline.find(0).features
    table.upsert(rows_of([1]))
    table.layout.repush(partition_by="day(ts)")
    table.upsert(rows_of([2]))
    assert PARTITION_FIELDS in timeline.find(table.version).features


# --- repush ----------------------------------------------------------------------------------


def test_a_removal_in_partitions_by_transforms_that_meets_a_swap_is_to_be_run_again(
    uri: str,
) -> None:
    """INV-07: the columns of its partitions were not kept, so nobody can compute other ones."""
    table = table_of(uri, "day(ts)")
    table.upsert(rows_of(range(20)))
    writer = table.writer("upsert", on_conflict="retry").__enter__()
    writer.write(rows_of([50]))
    writer.remove(rows_of([3]))
    Table.open(uri).layout.repush(buckets=1)
    with pytest.raises(RetryableConflictError, match="removes keys of partitions"):
        writer.__exit__(None, None, None)
    assert ids_of(table) == list(range(20))


def test_sinks_are_refused_for_rows_that_only_a_transform_keeps_apart(uri: str) -> None:
    from plait.replicate import Replicas, TableSink

    table = table_of(uri, "day(ts)")
    sink = TableSink("copy", f"{uri}-copy")
    with (
        pytest.raises(OptionError, match="keep rows apart"),
        table.writer("upsert", replicas=Replicas([sink])) as writer,
    ):
        writer.write(rows_of([1]))


def test_verify_finds_rows_that_another_version_of_a_function_put_elsewhere(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-08: one key would be live in two partitions, where no look-up finds both."""
    register_partition_function("tens", lambda ids: pc.divide(ids, 10))
    table = table_of(uri, "tens(id)")
    table.upsert(rows_of(range(30)))
    assert table.check.verify().problems == ()
    monkeypatch.setitem(partition_values._FUNCTIONS, "tens", lambda ids: pc.divide(ids, 7))
    assert {problem.invariant for problem in table.check.verify().problems} == {"INV-08"}


def test_an_unknown_transform_is_refused_with_what_may_be_meant_and_that_of_spark_is_known(
    uri: str,
) -> None:
    for text, hint in (("dya(ts)", "did you mean day"), ("own(id)", "call ")):
        with pytest.raises(UnsupportedFeatureError) as caught:
            table_of(uri, text)
        assert str(caught.value.hint).startswith(hint)
    assert table_of(uri, "days(ts)").inspect.describe()["partition_by"] == ["day(ts)"]


def test_an_error_of_a_function_of_ones_own_names_the_function(uri: str) -> None:
    register_partition_function("breaks", lambda ids: 1 // 0)
    table = table_of(uri, "breaks(id)")
    with pytest.raises(BadRecordError, match=r"breaks.*ZeroDivisionError"):
        table.upsert(rows_of([1]))
    assert table.version == 0


# --- rows that keep what they lack ------------------------------------------------------------


def _kept(table: Table, rows: pa.Table) -> None:
    table.upsert(rows, missing_columns="keep")


def _merged(table: Table, rows: pa.Table) -> None:
    table.merge(rows, matched=Update(), not_matched=Insert())


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize(
    ("fields", "generated"),
    [(("day(ts)", "truncate(4, user)"), {}), (("day", "prefix"), {"day": "day(ts)"})],
)
@pytest.mark.parametrize("write", [_kept, _merged])
def test_a_row_takes_the_columns_that_its_partition_comes_from(
    uri: str,
    *,
    write: Callable[[Table, pa.Table], None],
    fields: tuple[str, ...],
    generated: dict[str, str],
    ordering: str | None,
    table_type: str,
) -> None:
    """They come with the row, and may differ within one partition."""
    made = generated and {**generated, "prefix": "truncate(4, user)", "hour": "hour(ts)"}
    types = {"day": "date", "prefix": "string", "hour": "timestamp"}
    schema = ", ".join([SCHEMA, *(f"{name} {types[name]}" for name in made)])
    how = {"partition_by": fields, "generated": made, "ordering": ordering}
    table = Table.create(uri, schema, record_key="id", table_type=table_type, **how)  # type: ignore[arg-type]  # of several cases
    table.upsert(rows_of([1, 2]))
    rows = rows_of([1, 3])
    later = pc.add(rows["ts"], pa.scalar(dt.timedelta(minutes=30)))
    rows = rows.set_column(1, "ts", later).set_column(2, "user", pa.array(["user a", "user b"]))
    write(table, rows.drop_columns(["v"]))
    found = table.scan(["id", "ts", "user"]).to_arrow().sort_by("id")
    there = rows_of([2]).select(found.column_names)
    expected = pa.concat_tables([rows.select(found.column_names), there]).sort_by("id")
    assert found.to_pylist() == expected.to_pylist()
    assert not table.check.verify(data=True).problems
