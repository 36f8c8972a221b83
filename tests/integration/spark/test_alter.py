"""Columns that change, as Spark reads and writes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from plait import ConstraintError, RetryableConflictError, Table
from plait.services.definition.alter import Alteration

SCHEMA = "id bigint, city string, fare int, day date"
ROWS = pa.table(
    {
        "id": range(20),
        "city": ["x", "y"] * 10,
        "fare": pa.array(range(20), pa.int32()),
        "day": pa.array([20_000] * 20, pa.int32()).cast(pa.date32()),
    }
)
DEFAULTS = {
    "b": ("boolean", True),
    "n": ("int", -5),
    "x": ("double", 0.1),
    "m": ("decimal(9,3)", "1.5"),
    "s": ("string", "it's `${a}` \\ ü"),
    "at": ("timestamp", "2026-01-31T01:02:03.000004Z"),
    "d": ("date", "2026-01-31"),
    "raw": ("binary", b"\x00\xff"),
}


def made(place: Path, kind: str = "cow") -> Table:
    table = Table.create(str(place / "t"), SCHEMA, record_key="id", buckets=2, table_type=kind)
    table.append(ROWS)
    return table


def by_id(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: int(str(row["id"])))


@pytest.mark.long(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_spark_reads_what_arrow_reads_at_every_version(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """INV-04: renamed, wider, dropped and new columns, with the default of each type."""
    table = made(tmp_path, kind)
    change = table.alter.columns().rename("city", "place").widen("fare", "bigint")
    change.widen("day", "timestamp_ntz").commit()
    table.delete(where="id = 3")
    fresh = table.alter.columns().drop("place")
    for name, (type_name, value) in DEFAULTS.items():
        fresh = fresh.add(name, type_name, default=value)
    fresh.commit()
    table.append(ROWS.slice(0, 1).select(["id"]).set_column(0, "id", pa.array([99])))
    for version in range(1, table.version + 1):
        scan = table.scan(version=version)
        assert by_id(scan.to_spark(spark).toArrow()) == by_id(scan.to_arrow()), version
    found = table.scan(where="n = -5 AND m = 1.5").to_spark(spark)
    assert found.count() == 20


@pytest.mark.parametrize("operation", ["append", "upsert", "overwrite"])
def test_a_spark_writer_that_meets_new_columns_commits(
    spark: SparkSession, tmp_path: Path, operation: str
) -> None:
    """INV-07: rows that Spark computed under the old columns are there under the new ones."""
    table = made(tmp_path)
    new = ROWS.set_column(0, "id", pa.array(range(100, 120)))
    data = spark.createDataFrame(new)
    writer = Table.open(str(tmp_path / "t")).writer(operation).__enter__()
    writer.write(data)
    change = table.alter.columns().widen("fare", "bigint").rename("city", "place").drop("day")
    change.move("fare", after="").add("note", "string", default="it's new").commit()
    writer.__exit__(None, None, None)
    found = by_id(Table.open(str(tmp_path / "t")).scan().to_arrow())
    numbers = [*([] if operation == "overwrite" else range(20)), *range(100, 120)]
    assert found == [
        {"fare": number % 100, "id": number, "place": "xy"[number % 2], "note": "it's new"}
        for number in numbers
    ]


def test_a_spark_merge_that_meets_new_columns_is_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No name stands for another column than the one that was meant."""
    table = made(tmp_path)
    writer = Table.open(str(tmp_path / "t")).writer("upsert", missing_columns="keep").__enter__()
    given = ROWS.select(["id", "fare"]).set_column(1, "fare", pa.array([7] * 20, pa.int32()))
    writer.write(spark.createDataFrame(given))
    table.alter.columns().rename("fare", "price").commit()
    with pytest.raises(RetryableConflictError):
        writer.__exit__(None, None, None)
    found = by_id(Table.open(str(tmp_path / "t")).scan().to_arrow())
    assert [row["price"] for row in found] == list(range(20))


MEMBERS = pa.struct([("a", pa.int32()), ("b", pa.int32())])
INSIDE: dict[str, Callable[[Alteration], Alteration]] = {
    "move": lambda change: change.move("s.b", after=""),
    "swap": lambda change: change.rename("s.a", "c").rename("s.b", "a").rename("s.c", "b"),
    "drop": lambda change: change.drop("s.a"),
    "add": lambda change: change.add("s.c", "int", after=""),
    "widen": lambda change: change.widen("s.a", "bigint").widen("l.element.a", "bigint"),
    "move in a list": lambda change: change.move("l.element.b", after=""),
}


KEPT: dict[str, dict[str, object]] = {
    "swap": {"s": {"a": 2, "b": 1}},
    "drop": {"s": {"b": 2}},
    "add": {"s": {"c": None, "a": 1, "b": 2}},
}
"""What is other than it was given: a member is known by its id, and not by its name or place."""


@pytest.mark.long(2)
@pytest.mark.parametrize("name", INSIDE)
def test_members_of_structs_that_spark_wrote_keep_their_values_when_members_change(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """INV-07: Spark casts structs by place; no value may end in another member."""
    schema = pa.schema([("id", pa.int64()), ("s", MEMBERS), ("l", pa.list_(MEMBERS))])
    table = Table.create(str(tmp_path / "t"), schema, record_key="id", buckets=1)
    one = {"a": 1, "b": 2}
    data = spark.createDataFrame(pa.table({"id": [1], "s": [one], "l": [[one]]}, schema=schema))
    work = ExitStack()
    work.enter_context(Table.open(str(tmp_path / "t")).writer("append")).write(data)
    INSIDE[name](table.alter.columns()).commit()
    work.close()
    scan, expected = table.scan(), {"id": 1, "s": one, "l": [one], **KEPT.get(name, {})}
    assert scan.to_arrow().to_pylist() == [expected]
    assert scan.to_spark(spark).toArrow().to_pylist() == [expected]


def test_spark_reads_changes_across_new_columns_as_arrow_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = made(tmp_path)
    table.alter.columns().add("note", "string", default="none").commit()
    table.upsert(ROWS.slice(0, 2).append_column("note", pa.array(["a", "b"])))
    window = table.changes(0)
    found, expected = window.to_spark(spark).toArrow().to_pylist(), window.to_arrow().to_pylist()
    assert len(expected) == 24
    assert sorted(map(str, found)) == sorted(map(str, expected))


@pytest.mark.long(1)
@pytest.mark.parametrize("key", ["id", ()])
def test_columns_come_with_the_rows_of_spark_if_that_was_asked(
    spark: SparkSession, tmp_path: Path, key: object
) -> None:
    """INV-05: ``mergeSchema``, and ``evolve`` of a writer that meets another one."""
    place = str(tmp_path / "t")
    table = Table.create(place, SCHEMA, record_key=key)  # type: ignore[arg-type]  # of several tests
    table.append(ROWS)
    more = ROWS.set_column(0, "id", pa.array(range(20, 40)))
    noted = spark.createDataFrame(more.append_column("note", pa.array(["new"] * 20)))
    with pytest.raises(Exception, match="note"):
        noted.write.format("plait").mode("append").save(place)
    asked = noted.write.format("plait").option("mergeSchema", "true").mode("append")
    asked.save(place)
    assert table.version == 2
    third = ROWS.set_column(0, "id", pa.array(range(40, 60)))
    with Table.open(place).writer("append", evolve="add") as writer:
        writer.write(spark.createDataFrame(third.append_column("tip", pa.array([0.5] * 20))))
        fourth = ROWS.slice(0, 1).set_column(0, "id", pa.array([99]))
        given = fourth.append_column("other", pa.array(["it"])).append_column("note", [["n"]])
        Table.open(place).append(given, evolve="add")
    found = by_id(Table.open(place).scan().to_arrow())
    assert found == by_id(Table.open(place).scan().to_spark(spark).toArrow())
    told = [(row["note"], row["other"], row["tip"]) for row in found]
    assert told[:20] == [(None, None, None)] * 20
    assert told[20:40] == [("new", None, None)] * 20
    assert told[40:60] == [(None, None, 0.5)] * 20
    assert told[60:] == [("n", "it", None)]
    assert not table.check.verify(data=True).problems


def test_rows_of_spark_hold_the_checks_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """INV-03: in tasks, in Spark's own writer, and for a writer that meets a new check."""
    place, table = str(tmp_path / "t"), made(tmp_path)
    table.alter.columns().add_check("cheap", "fare < 20 AND id >= 0").commit()
    bad = ROWS.set_column(0, "id", pa.array(range(20, 40)))
    bad = bad.set_column(2, "fare", pa.array(range(1, 21), pa.int32()))
    frame = spark.createDataFrame(bad)
    with pytest.raises(ConstraintError) as caught:
        table.upsert(frame)
    assert caught.value.facts["constraint"] == "cheap"
    assert caught.value.facts["sample"]["fare"] == "20"
    with pytest.raises(Exception, match="cheap"):
        frame.write.format("plait").mode("append").save(place)
    with pytest.raises(ConstraintError):
        table.update({"fare": "fare + 1"}, spark=spark)
    writer = Table.open(place).writer("upsert").__enter__()
    writer.write(frame.where("fare < 20"))
    table.alter.columns().add_check("cheaper", "id < 25").commit()
    with pytest.raises(ConstraintError):
        writer.__exit__(None, None, None)
    found = by_id(Table.open(place).scan().to_arrow())
    assert [row["fare"] for row in found] == list(range(20))
