"""Spark and tables: distributed writes, native scans, the data source."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import LongType, StructType

from plait import Table
from plait.errors import (
    BadRecordError,
    DuplicateKeyError,
    SchemaMismatchError,
)

pytestmark = pytest.mark.spark

EVERYTHING = (
    "id bigint, b boolean, i8 tinyint, i16 smallint, i32 int, f float, d double, s string, "
    "x binary, day date, ts timestamp, tn timestamp_ntz, dec decimal(20,4), arr array<int>, "
    "m map<string,bigint>, st struct<a:int,n:struct<z:string>>"
)
MOMENT = dt.datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=dt.UTC)
FULL = {
    "id": 1,
    "b": True,
    "i8": -128,
    "i16": 32767,
    "i32": -1,
    "f": 1.5,
    "d": -0.25,
    "s": "ü 'q' \\ \n",
    "x": b"\x00\xff",
    "day": dt.date(1969, 12, 31),
    "ts": MOMENT,
    "tn": MOMENT.replace(tzinfo=None),
    "dec": Decimal("1234567890123456.7890"),
    "arr": [1, None],
    "m": [("k", 2), ("l", None)],
    "st": {"a": None, "n": {"z": "deep"}},
}
EMPTY = {**dict.fromkeys(FULL), "id": 2}
KEYED = "id bigint, place string, value double, rev int"
Kind = pytest.mark.parametrize("table_type", ["cow", "mor"])


def make(path: Path, table_type: str, *, buckets: int = 4) -> Table:
    return Table.create(
        str(path / "t"),
        KEYED,
        record_key=["id"],
        partition_by=["place"],
        ordering="rev",
        table_type=table_type,
        buckets=buckets,
    )


def rows(spark: SparkSession, first: int, last: int, rev: int, tasks: int = 8) -> DataFrame:
    columns = ("id", "concat('p', id % 3) place", f"id * 1.0D + {rev} value", f"{rev} rev")
    return spark.range(first, last, 1, tasks).selectExpr(*columns)


def contents(table: Table) -> dict[tuple[str, int], tuple[float, int]]:
    found = table.scan().to_arrow().to_pylist()
    by_key = {(r["place"], r["id"]): (r["value"], r["rev"]) for r in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key


def expected(*parts: tuple[int, int, int]) -> dict[tuple[str, int], tuple[float, int]]:
    return {(f"p{i % 3}", i): (float(i + rev), rev) for a, b, rev in parts for i in range(a, b)}


def save(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("plait").options(**options).mode(mode).save(str(path / "t"))


def test_every_shared_type_comes_back_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Writer, native scan and data source agree with Arrow on every value, nulls too."""
    table = Table.create(str(tmp_path / "t"), EVERYTHING, record_key=["id"], buckets=2)
    schema = pa.schema([field.remove_metadata() for field in table.schema])
    data = pa.Table.from_pylist([FULL, EMPTY], schema=schema)
    table.insert(data)
    frame = table.scan().to_spark(spark)
    copied = Table.create(str(tmp_path / "c"), frame.schema, record_key=["id"], buckets=2)
    copied.upsert(frame)
    sourced = spark.read.format("plait").load(str(tmp_path / "c"))
    again = Table.create(str(tmp_path / "d"), EVERYTHING, record_key=["id"], buckets=3)
    sourced.write.format("plait").mode("append").save(str(tmp_path / "d"))
    for found in (table, copied, again):
        assert found.scan().to_arrow().sort_by("id").to_pylist() == data.to_pylist()


@Kind
def test_buckets_are_the_same_in_spark_and_arrow(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-08: rows that Arrow wrote are found and replaced by Spark, and the other way round."""
    table = make(tmp_path, table_type, buckets=7)
    table.insert(rows(spark, 0, 300, 0))
    table.upsert(rows(spark, 100, 400, 1).toArrow())
    table.upsert(rows(spark, 300, 500, 2))
    assert contents(table) == expected((0, 100, 0), (100, 300, 1), (300, 500, 2))
    assert table.verify().problems == ()


@Kind
def test_the_native_scan_gives_what_arrow_gives(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-04: masks, predicates, projection and time travel."""
    table = make(tmp_path, table_type)
    table.insert(rows(spark, 0, 300, 0))
    table.upsert(rows(spark, 100, 400, 1))
    table.delete(where="id < 50")
    for where in (None, "id >= 120 AND place = 'p1'", "value < 60 OR rev = 1", "id = -1"):
        for version in (1, 2, 3):
            scan = table.scan(["value", "id"], where, version=version)
            found = sorted(tuple(row) for row in scan.to_spark(spark).collect())
            assert found == sorted(tuple(r.values()) for r in scan.to_arrow().to_pylist())


def test_no_row_of_a_frame_passes_through_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever brings rows to the driver is forbidden; the statuses are small."""
    table = make(tmp_path, "cow")
    frame = rows(spark, 0, 20_000, 0)
    kind = type(frame)
    collect: Callable[[DataFrame], list[object]] = kind.collect
    sizes: list[int] = []

    def counted(self: DataFrame) -> list[object]:
        found = collect(self)
        sizes.append(sum(sys.getsizeof(value) for row in found for value in row))
        return found

    def forbidden(self: DataFrame, *_: object, **__: object) -> None:
        pytest.fail("rows of a DataFrame came to the driver")

    monkeypatch.setattr(kind, "collect", counted)
    for name in ("toPandas", "toLocalIterator", "take", "head", "__arrow_c_stream__"):
        monkeypatch.setattr(kind, name, forbidden, raising=False)
    table.upsert(frame)
    assert table.scan().count() == 20_000
    data_bytes = sum(table.files()["bytes"].to_pylist())
    assert sum(sizes) < data_bytes / 2


@Kind
def test_bad_rows_on_executors_are_refused_with_their_facts(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """The error names the column; nothing is visible, and the instant is rolled back."""
    table = make(tmp_path, table_type)
    table.insert(rows(spark, 0, 30, 0))
    with pytest.raises(BadRecordError) as bad:
        table.upsert(rows(spark, 0, 90, 1).withColumn("id", F.expr("nullif(id, 77)")))
    assert bad.value.facts["column"] == "id"
    with pytest.raises(SchemaMismatchError):
        table.upsert(rows(spark, 0, 9, 1).withColumn("value", F.lit("text")))
    with pytest.raises(SchemaMismatchError):
        table.upsert(rows(spark, 0, 9, 1).withColumn("other", F.lit(1)))
    with pytest.raises(DuplicateKeyError):
        table.append(rows(spark, 29, 60, 1))
    assert contents(table) == expected((0, 30, 0))
    assert table.timeline.pending == ()
    assert table.verify().problems == ()


@Kind
def test_a_task_that_is_tried_again_leaves_its_rows_once(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-04: files of the failed attempt are in no decision."""
    table = make(tmp_path, table_type)
    marker = tmp_path / "failed-once"

    def flaky(batches: object) -> object:
        import os

        for batch in batches:  # type: ignore[attr-defined]  # an iterator of batches
            yield batch
        if not os.path.exists(str(marker)):
            open(str(marker), "w").close()
            os._exit(1)  # the worker dies: Spark runs the task again

    frame = rows(spark, 0, 200, 0, tasks=2)
    table.upsert(frame.mapInArrow(flaky, frame.schema))
    assert marker.exists()
    assert contents(table) == expected((0, 200, 0))


@Kind
def test_the_data_source_is_right_when_every_task_meets_every_bucket(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-08: 8 tasks, for append, insert, upsert and overwrite."""
    table = make(tmp_path, table_type)
    save(rows(spark, 0, 300, 0), tmp_path)
    save(rows(spark, 100, 400, 1), tmp_path, operation="upsert")
    save(rows(spark, 400, 500, 0), tmp_path, operation="insert")
    everything = expected((0, 100, 0), (100, 400, 1), (400, 500, 0))
    assert contents(table) == everything
    one = rows(spark, 600, 700, 2).filter("place = 'p1'")
    save(one, tmp_path, "overwrite", partitions="dynamic")
    rest = {key: value for key, value in everything.items() if key[0] != "p1"}
    added = {key: value for key, value in expected((600, 700, 2)).items() if key[0] == "p1"}
    assert contents(table) == {**rest, **added}
    save(rows(spark, 0, 40, 3), tmp_path, "overwrite")
    assert contents(table) == expected((0, 40, 3))
    assert table.timeline.pending == ()
    assert table.verify().problems == ()


def test_the_data_source_refuses_a_duplicate_key_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-10: the message names what was wrong; the instant is rolled back."""
    table = make(tmp_path, "cow")
    save(rows(spark, 0, 30, 0), tmp_path)
    with pytest.raises(Exception, match="DuplicateKeyError"):
        save(rows(spark, 20, 50, 0), tmp_path)
    assert contents(table) == expected((0, 30, 0))
    assert table.timeline.pending == ()


def test_the_data_source_reads_versions_and_keeps_queries_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A frame that was filtered once still has all its rows."""
    table = make(tmp_path, "mor")
    save(rows(spark, 0, 90, 0), tmp_path)
    save(rows(spark, 30, 120, 1), tmp_path, operation="upsert")
    frame = spark.read.format("plait").load(str(tmp_path / "t"))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert frame.filter("id = 7").count() == 1
        assert frame.count() == 120
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    old = spark.read.format("plait").option("version", "1").load(str(tmp_path / "t"))
    assert old.count() == 90
    assert isinstance(frame.schema, StructType)
    assert frame.schema["id"].dataType == LongType()
    assert table.version == 2


def test_a_table_without_a_key_takes_appends_from_every_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of all tasks, by the writer and by the data source; overwrite replaces them."""
    table = Table.create(str(tmp_path / "t"), "id bigint, place string", partition_by=["place"])
    frame = rows(spark, 0, 100, 0).select("id", "place")
    table.append(frame)
    save(frame, tmp_path)
    assert table.scan().count() == 200
    table.overwrite(frame.filter("id < 10"))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(10))
    save(frame, tmp_path, "overwrite")
    assert table.scan().count() == 100
    assert table.verify().problems == ()
