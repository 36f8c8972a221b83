"""What a SQL sink refuses, and how it says so; what it holds is the subject of its kit."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from plait import (
    BadRecordError,
    MissingDependencyError,
    OptionError,
    SchemaMismatchError,
    StorageError,
)
from plait.replicate import SinkSchema, SqlSink

PLAIN = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64())])
SINK_SCHEMA = SinkSchema(PLAIN, ("id",))


@pytest.fixture
def sink(tmp_path: Path) -> SqlSink:
    return SqlSink("serving", f"sqlite:///{tmp_path}/s.db", "t")


def put(sink: SqlSink, schema: SinkSchema, **columns: list[object]) -> None:
    with closing(sink.open(schema)) as session:
        session.batch_put(pa.RecordBatch.from_pydict(columns, schema.arrow))


def held(sink: SqlSink, schema: SinkSchema = SINK_SCHEMA) -> list[dict[str, object]]:
    with closing(sink.open(schema)) as session:
        return [row for batch in session.held() for row in batch.to_pylist()]


def test_infinity_is_held_and_nan_is_refused_by_sqlite(sink) -> None:
    """SQLite stores NaN as null, so a reader could not tell them apart."""
    put(sink, SINK_SCHEMA, id=[1, 2], x=[float("inf"), float("-inf")])
    with pytest.raises(BadRecordError) as caught:
        put(sink, SINK_SCHEMA, id=[3, 4], x=[1.0, float("nan")])
    assert caught.value.column == "x"
    assert [row["id"] for row in held(sink)] == [1, 2]


def test_a_batch_is_taken_whole_or_not_at_all(sink, tmp_path) -> None:
    put(sink, SINK_SCHEMA, id=[1], x=[1.0])
    with closing(sqlite3.connect(tmp_path / "s.db")) as database:
        database.execute("CREATE TRIGGER no BEFORE INSERT ON t WHEN NEW.id = 3"
                         " BEGIN SELECT RAISE(ABORT, 'no threes'); END")  # fmt: skip
    with pytest.raises(BadRecordError, match="no threes"):
        put(sink, SINK_SCHEMA, id=[2, 3], x=[2.0, 3.0])
    assert [row["id"] for row in held(sink)] == [1]


@pytest.mark.parametrize(
    ("key", "day"), [(("day", "id"), None), (("id",), 3_000_000)], ids=["null in the key", "a year"]
)
def test_a_value_that_the_database_cannot_tell_from_others_is_refused(sink, key, day) -> None:
    """A null in the primary key, and a year that does not sort as a text."""
    schema = pa.schema([("day", pa.date32()), ("id", pa.int64())])
    with pytest.raises(BadRecordError) as caught:
        put(sink, SinkSchema(schema, key), day=[day], id=[1])
    assert day is not None or caught.value.column == "day"


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())]
)
def test_nested_columns_are_refused(sink, kind) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        sink.open(SinkSchema(pa.schema([("id", pa.int64()), ("deep", kind)]), ("id",)))
    assert caught.value.column == "deep"


def test_rows_are_not_ordered_by_decimals_that_are_texts(sink) -> None:
    schema = pa.schema([("id", pa.int64()), ("rev", pa.decimal128(5, 2))])
    put(sink, SinkSchema(schema, ("id",)), id=[1], rev=[Decimal("9.00")])
    with pytest.raises(OptionError):
        sink.open(SinkSchema(schema, ("id",), "rev"))


def test_rows_of_a_key_alone_are_put_again_without_harm(sink) -> None:
    schema = SinkSchema(pa.schema([("id", pa.int64())]), ("id",))
    for _ in range(2):
        put(sink, schema, id=[1, 2])
    assert held(sink, schema) == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE t (id BIGINT PRIMARY KEY)",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE, y DOUBLE)",
        "CREATE TABLE t (id BIGINT, x DOUBLE PRIMARY KEY)",
        "CREATE TABLE t (id BIGINT, x DOUBLE)",
    ],
)
def test_a_table_with_other_columns_or_another_key_is_refused(sink, tmp_path, made) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db")) as database:
        database.execute(made)
    with pytest.raises(SchemaMismatchError):
        sink.open(SINK_SCHEMA)


@pytest.mark.parametrize(
    "url",
    ["nonsense", "mysql-of-nobody://host/db", "sqlite+none:///x.db", "sqlite:////no/dir/s.db"],
)
def test_an_address_that_is_no_database_is_refused(url) -> None:
    with pytest.raises((OptionError, MissingDependencyError, StorageError)) as caught:
        SqlSink("s", url, "t").open(SINK_SCHEMA)
    assert isinstance(caught.value, StorageError) == url.endswith("/s.db")


def test_an_address_and_rows_are_not_shown(sink) -> None:
    secret = SqlSink("s", "postgresql://me:secret@host/db", "t")
    assert "secret" not in repr(secret)
    with pytest.raises(Exception) as caught:
        SqlSink("s", "postgresql:me:secret@host/db", "t").open(SINK_SCHEMA)
    assert "secret" not in str(caught.value)


def test_a_missing_library_is_named(sink, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingDependencyError) as caught:
        sink.open(SINK_SCHEMA)
    assert (caught.value.library, caught.value.extra) == ("sqlalchemy", "sql")
