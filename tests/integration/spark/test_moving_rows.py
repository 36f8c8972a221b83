"""Spark writers that move rows of tables with unique keys beside each other (RFC 0030)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from plait import RetryableConflictError, Table
from tests.support.protocol import beside

pytestmark = pytest.mark.spark
each_type = pytest.mark.parametrize("kind", ["cow", "mor"])
Content = dict[int, tuple[str, int]]


def made(place: Path, kind: str, **given: object) -> Table:
    return Table.create(
        str(place / "t"),
        "id bigint, at timestamp, v bigint",
        record_key="id",
        partition_by="day(at)",
        buckets=3,
        table_type=kind,
        unique="table",
        **given,  # type: ignore[arg-type]  # by name
    )


def frame(spark: SparkSession, start: int, stop: int, day: int, value: int) -> DataFrame:
    time = f"make_timestamp(2026, 1, {day} + cast(id % 3 as int), 12, 0, 0)"
    return spark.range(start, stop).selectExpr("id", f"{time} AS at", f"{value}L AS v")


def rows(ids: range, day: int, value: int) -> pa.Table:
    noon = pa.scalar(f"2026-01-{day:02} 12:00:00").cast(pa.timestamp("us"))
    times = pa.array([noon.as_py()] * len(ids), pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array(ids), "at": times, "v": pa.array([value] * len(ids))})


def content(table: Table, **version: int) -> Content:
    found = table.scan(**version).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), f"INV-08: {found}"
    return {row["id"]: (row["at"].day, row["v"]) for row in found}


@each_type
def test_dataframes_and_arrow_rows_that_move_keys_at_once_leave_each_once(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """INV-07, INV-08: by a transform of a time, and a redo of some tasks only."""
    table = made(tmp_path, kind)
    table.upsert(frame(spark, 0, 60, 1, 1))
    others = (
        lambda: table.upsert(rows(range(3), 20, 2)),
        lambda: table.delete(keys=pa.table({"id": pa.array([30, 31])})),
        lambda: table.upsert(rows(range(100, 103), 21, 2)),
    )
    client = beside(table, "publish", *others)
    client.upsert(frame(spark, 1, 40, 10, 3), on_conflict="retry")
    model = {n: (1 + n % 3, 1) for n in range(60)} | {0: (20, 2)}
    model |= {n: (10 + n % 3, 3) for n in range(1, 40)} | dict.fromkeys(range(100, 103), (21, 2))
    assert content(table) == model
    for version in range(1, table.version + 1):
        content(table, version=version)
    report = table.check.verify()
    assert not report.problems


@each_type
def test_one_key_that_comes_from_spark_and_from_arrow_at_once_is_a_conflict(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """INV-07, INV-08: nobody had it."""
    table = made(tmp_path, kind)
    client = beside(table, "publish", lambda: table.insert(rows(range(1), 20, 2)))
    with pytest.raises(RetryableConflictError):
        client.insert(frame(spark, 0, 4, 1, 1))
    other = beside(table, "publish", lambda: table.insert(frame(spark, 7, 9, 1, 5)))
    with pytest.raises(RetryableConflictError):
        other.upsert(rows(range(8, 10), 20, 6))
    assert content(table) == {0: (20, 2), 7: (2, 5), 8: (3, 5)}


@each_type
def test_changes_read_by_spark_show_each_move_as_one_update(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a number are one task's, however small the shares are."""
    table = made(tmp_path, kind)
    table.upsert(frame(spark, 0, 60, 1, 1))
    table.upsert(frame(spark, 0, 30, 10, 2))
    monkeypatch.setattr("plait.spark.change_shares.SHARE_BYTES", 1)
    found = table.changes(since=1).to_spark(spark)
    kinds = [row["_change_type"] for row in found.collect()]
    assert sorted(set(kinds)) == ["update_postimage", "update_preimage"]
    assert len(kinds) == 60


def stream(
    spark: SparkSession, table: Table, place: Path, frames: list[Callable[[], DataFrame]]
) -> None:
    source = place / "source"
    for each in frames:
        each().coalesce(1).write.mode("append").parquet(str(source))
        query = (
            spark.readStream.schema("id bigint, at timestamp, v bigint")
            .parquet(str(source))
            .writeStream.format("plait")
            .option("operation", "upsert")
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(table.inspect.describe()["uri"]))
        )
        query.awaitTermination()


@each_type
def test_a_spark_stream_moves_rows(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """INV-08, INV-09: each epoch moves what the one before brought."""
    table = made(tmp_path, kind)
    table.index.create()
    frames = [lambda day=day: frame(spark, 0, 20, day, day) for day in (1, 5, 9)]  # type: ignore[misc]  # bound now
    stream(spark, table, tmp_path, frames)
    assert content(table) == {n: (9 + n % 3, 9) for n in range(20)}
    kinds = table.changes(since=0).count()
    assert (kinds["insert"], kinds["update_postimage"], kinds["delete"]) == (20, 40, 0)
    assert not table.check.verify().problems
