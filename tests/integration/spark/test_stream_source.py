"""``spark.readStream.format("plait")``: every commit once, whole, in order; never a silent gap."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from plait import Table
from plait.read.change_scan import TYPE, VERSION
from plait.storage.local import LocalStore
from tests.integration.spark.tables import arrow_rows, make
from tests.support.forge import forge_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Rows = list[dict[str, Any]]


@dataclass
class Consumer:
    """A stream with a checkpoint, that runs until it has what is there."""

    spark: SparkSession
    place: Path
    batches: list[Rows]

    def drain(self, *, broken: bool = False, **options: object) -> list[Rows]:
        """Run the stream, give its new batches; ``broken``: the sink fails after the first."""
        new: list[Rows] = []

        def take(batch: DataFrame, number: int) -> None:
            rows = batch.toArrow().to_pylist()
            if broken:
                raise RuntimeError(number)
            new.append(rows)

        given = {key: str(value) for key, value in options.items()}
        source = self.spark.readStream.format("plait").options(**given).load(str(self.place / "t"))
        query = (
            source.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.place / "check"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        self.batches += new
        return new


@pytest.fixture
def consumer(spark: SparkSession, tmp_path: Path) -> Consumer:
    return Consumer(spark, tmp_path, [])


def some(spark: SparkSession, start: int, stop: int, rev: int) -> pa.Table:
    return arrow_rows(start, stop, rev)


def counted(batches: list[Rows]) -> Counter[tuple[int, int]]:
    return Counter((row["id"], row["rev"]) for rows in batches for row in rows)


def test_a_stream_gives_the_rows_first_and_then_every_commit_once(
    spark: SparkSession, tmp_path: Path, consumer: Consumer
) -> None:
    """Rows that a rewrite carries along do not come again."""
    table = make(tmp_path / "t")
    table.append(some(spark, 0, 30, 1))
    slow = table.writer("upsert")
    slow.__enter__()
    slow.write(some(spark, 100, 105, 7))
    with pytest.raises(Exception, match="RuntimeError"):
        consumer.drain(broken=True)
    table.upsert(some(spark, 20, 40, 2))
    first = consumer.drain()
    assert counted(first[:1]) == {(i, 1): 1 for i in range(30)}, "the batch that failed, again"
    assert counted(first[1:]) == {(i, 2): 1 for i in range(20, 40)}
    slow.__exit__(None, None, None)
    table.upsert(some(spark, 35, 36, 2))
    assert counted(consumer.drain()) == {(i, 7): 1 for i in range(100, 105)}, (
        "an instant that began first and was completed last; equal rows are no news"
    )


def test_a_batch_holds_whole_commits_as_many_as_are_allowed(
    spark: SparkSession, tmp_path: Path, consumer: Consumer
) -> None:
    table = make(tmp_path / "t", "mor", buckets=1)
    for at in range(4):
        table.upsert(some(spark, at, at + 10, at + 1))
    table.delete(where="id = 0")
    batches = consumer.drain(start=2, changes="true", max_versions=2)
    versions = [sorted({row[VERSION] for row in rows}) for rows in batches]
    assert versions == [[2, 3], [4, 5]]
    assert [row["id"] for rows in batches for row in rows if row[TYPE] == "delete"] == [0]
    kinds = Counter(row[TYPE] for rows in batches for row in rows)
    assert kinds == {"insert": 3, "update_preimage": 27, "update_postimage": 27, "delete": 1}


def test_deleted_rows_are_an_error_unless_the_stream_was_told(
    spark: SparkSession, tmp_path: Path, consumer: Consumer
) -> None:
    table = make(tmp_path / "t")
    table.append(some(spark, 0, 10, 1))
    table.overwrite(some(spark, 0, 10, 2))
    first = consumer.drain(start=1)
    assert counted(first) == {(i, rev): 1 for i in range(10) for rev in (1, 2)}, "all came back"
    table.delete(where="id = 3")
    with pytest.raises(Exception, match="DeletedRowsError: version 3 deleted rows"):
        consumer.drain()
    table.append(some(spark, 50, 51, 3))
    assert counted(consumer.drain(deletes="skip")) == {(50, 3): 1}


def test_a_stream_survives_cleans_within_retention_and_tells_what_is_gone(
    spark: SparkSession, tmp_path: Path, consumer: Consumer
) -> None:
    """INV-05; never a silent gap."""
    table = make(tmp_path / "t")
    table.alter.set({"clean.retain.time": "0s", "clean.grace": "0s", "clean.retain.versions": "3"})
    table.append(some(spark, 0, 10, 1))
    assert consumer.drain(start="latest") == [[]], "the first batch says where it began"
    for rev in (2, 3):
        table.upsert(some(spark, 0, 10, rev))
    table.maintenance.clean()
    assert counted(consumer.drain(start="latest")) == {
        (i, rev): 1 for i in range(10) for rev in (2, 3)
    }
    for rev in range(4, 9):
        table.upsert(some(spark, 0, 10, rev))
    table.maintenance.clean()
    with pytest.raises(Exception, match=r"(?s)InstantExpiredError.*start again with a new checkpo"):
        consumer.drain()


def test_newer_columns_end_a_stream_after_what_came_before(
    spark: SparkSession, tmp_path: Path, consumer: Consumer
) -> None:
    table = make(tmp_path / "t")
    table.append(some(spark, 0, 5, 1))
    source = spark.readStream.format("plait").option("start", "1").load(str(tmp_path / "t"))
    table.upsert(some(spark, 4, 6, 2))
    forge_column(LocalStore(str(tmp_path / "t")), "more")
    query = (
        source.writeStream.format("memory")
        .queryName("before_columns")
        .option("checkpointLocation", str(tmp_path / "check"))
        .start()
    )
    with pytest.raises(Exception, match="the columns of the table changed at version 3"):
        query.awaitTermination()
    assert spark.sql("SELECT id, rev FROM before_columns").count() == 7
    rows = some(spark, 8, 9, 3).append_column("more", pa.array([5]))
    Table.open(str(tmp_path / "t")).append(rows)
    assert [(r["id"], r["more"]) for rows in consumer.drain() for r in rows] == [(8, 5)]
