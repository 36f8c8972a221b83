"""Rows that lack columns or share keys: Spark loses no value without being told to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import plait.spark
from plait import DuplicateKeyError, SchemaMismatchError, Table
from tests.integration.spark.tables import arrow_rows, assert_sound, frame, make

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
EVERY = pytest.mark.parametrize("kind", ["cow", "mor"])
WAYS = [("facade", "mor"), ("source", "cow"), ("stream", "mor"), ("batches", "cow")]
"""Each way in; what a partial upsert does to a table of each type is the Arrow engine's in all."""
PARTIAL = {"operation": "upsert", "missing_columns": "keep"}


def shown(table: Table) -> list[tuple[object, ...]]:
    rows = table.scan(columns=["id", "part", "rev", "name"]).to_arrow().sort_by("id")
    return [tuple(row.values()) for row in rows.to_pylist()]


def write(way: str, rows: DataFrame, table: Table, home: Path, options: dict[str, str]) -> None:
    """Write rows in one of the ways that Spark has."""
    spark, path = rows.sparkSession, table._handle.store.address.uri
    if way == "facade":
        with table.writer(**options) as writer:
            writer.write(rows)
        return
    if way == "source":
        rows.write.format("plait").options(**options).mode("append").save(path)
        return
    rows.write.parquet(str(home / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(home / "rows")).writeStream
    stream = stream.option("checkpointLocation", str(home / "checkpoint"))
    if way == "stream":
        stream = stream.format("plait").options(**options).option("path", path)
    else:
        stream = stream.foreachBatch(plait.spark.foreach_batch(table, application="a", **options))
    stream.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(("way", "kind"), WAYS)
def test_partial_upsert_keeps_what_its_rows_lack(
    spark: SparkSession, tmp_path: Path, kind: str, way: str
) -> None:
    table = make(tmp_path / "t", kind, partitioned=True)
    table.upsert(arrow_rows(0, 3, 1))
    partial = frame(spark, 1, 4, 2).drop("name")
    with pytest.raises(Exception, match=r"lack column 'name'"):
        write(way, partial, table, tmp_path / "refused", {"operation": "upsert"})
    write(way, partial, table, tmp_path / "done", PARTIAL)
    assert shown(table) == [
        (0, "p0", 1, "name 0"),
        (1, "p1", 2, "name 1"),
        (2, "p2", 2, "name 2"),
        (3, "p0", 2, None),
    ]
    assert_sound(table)


def test_partial_upsert_of_frames_with_other_columns_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path)
    writer = table.writer("upsert", missing_columns="keep")
    with writer:
        writer.write(frame(spark, 0, 3, 1))
        with pytest.raises(SchemaMismatchError, match="'name' is in some"):
            writer.write(frame(spark, 3, 6, 1).drop("name"))
    assert table.scan().count() == 3


@EVERY
def test_adding_one_key_several_times_is_refused(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = make(tmp_path, kind)
    rows = frame(spark, 0, 4, 1).union(frame(spark, 3, 5, 2))
    for operation in ("insert", "append", "overwrite"):
        with pytest.raises(DuplicateKeyError) as error, table.writer(operation) as writer:
            writer.write(rows)
        assert error.value.keys == [{"id": 3}]
    with pytest.raises(Exception, match="DuplicateKeyError"):
        rows.write.format("plait").mode("append").save(str(tmp_path))
    assert table.scan().count() == 0
