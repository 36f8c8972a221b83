"""Rows that were computed from a read, through Spark's own interface: no update is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import Table
from tests.integration.spark.tables import arrow_rows, assert_sound, frame, make, revisions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def serializable(path: Path) -> Table:
    ddl = "id bigint, part string, rev bigint, name string"
    return Table.create(str(path), ddl, record_key="id", buckets=1, isolation="serializable")


def save(rows: DataFrame, path: Path, **options: object) -> None:
    given = {key: str(value) for key, value in options.items()}
    rows.write.format("plait").options(operation="upsert", **given).mode("append").save(str(path))


def bumped(spark: SparkSession, path: Path, version: int) -> DataFrame:
    read = spark.read.format("plait").option("version", version).load(str(path))
    return read.selectExpr("id", "part", "rev + 1 AS rev", "name")


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_update_computed_from_a_read_is_not_lost(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """INV-07: another commit of the same keys lies between the read and the write."""
    table = make(tmp_path, kind)
    table.upsert(arrow_rows(0, 4, 10))
    version = table.version
    rows = bumped(spark, tmp_path, version)
    table.update({"rev": "100"}, where="id = 2")
    with pytest.raises(Exception, match="RetryableConflictError"):
        save(rows, tmp_path, readFrom=version)
    assert revisions(table) == {0: 10, 1: 10, 2: 100, 3: 10}
    save(bumped(spark, tmp_path, table.version), tmp_path, read_from=table.version)
    assert revisions(table) == {0: 11, 1: 11, 2: 101, 3: 11}
    save(frame(spark, 2, 3, 0), tmp_path, readFrom="none")
    assert revisions(table)[2] == 0
    assert_sound(table)


def test_serializable_table_takes_no_write_that_does_not_say_what_it_rests_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = serializable(tmp_path)
    rows = frame(spark, 0, 4, 1)
    with pytest.raises(Exception, match="must name the version") as error:
        save(rows, tmp_path)
    assert "option('readFrom', version)" in str(error.value)
    assert "option('readFrom', 'none')" in str(error.value)
    save(rows, tmp_path, readFrom="none")
    save(bumped(spark, tmp_path, 1), tmp_path, readFrom=1)
    assert revisions(table) == dict.fromkeys(range(4), 2)
    with pytest.raises(Exception, match="RetryableConflictError"):
        save(bumped(spark, tmp_path, 1), tmp_path, readFrom=1)


def test_stream_into_a_serializable_table_says_that_it_read_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = serializable(tmp_path / "t")
    frame(spark, 0, 4, 1).write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema(frame(spark, 0, 1, 1).schema).parquet(str(tmp_path / "rows"))
    for number, (said, refusal) in enumerate(
        [(None, "must name the version"), ("0", "do not depend on one version"), ("none", "")]
    ):
        sink = rows.writeStream.format("plait").option("operation", "upsert")
        sink = sink.option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
        sink = sink if said is None else sink.option("readFrom", said)
        sink = sink.trigger(availableNow=True)
        if refusal:
            with pytest.raises(Exception, match=refusal):
                sink.start(str(tmp_path / "t")).awaitTermination()
        else:
            sink.start(str(tmp_path / "t")).awaitTermination()
    assert revisions(table) == dict.fromkeys(range(4), 1)
