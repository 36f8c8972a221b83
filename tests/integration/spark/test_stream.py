"""Streams from Spark: each batch is there once, whoever dies when and whatever is replayed."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import OptionError, Table
from plait.spark import foreach_batch
from tests.integration.spark.tables import DDL, assert_sound, frame, make, revisions
from tests.integration.spark.test_writer import fails_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Pipe:
    """Files that come one by one, and queries that read them until all are read."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.source = str(directory / "source")

    def feed(self, start: int, stop: int, rev: int) -> None:
        frame(self.spark, start, stop, rev, tasks=1).write.mode("append").parquet(self.source)

    def begin(self, table: Table, checkpoint: str = "c", **options: str) -> StreamingQuery:
        rows = self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return (
            rows.parquet(self.source)
            .writeStream.format("plait")
            .options(**options)
            .option("checkpointLocation", str(self.directory / checkpoint))
            .trigger(availableNow=True)
            .start(str(table.describe()["uri"]))
        )

    def run(self, table: Table, checkpoint: str = "c", **options: str) -> StreamingQuery:
        query = self.begin(table, checkpoint, **options)
        query.awaitTermination()
        return query

    def each(
        self,
        table: Table,
        checkpoint: str = "c",
        operation: str = "upsert",
        name: str | None = None,
    ) -> None:
        rows = self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        write = foreach_batch(table, application="each", operation=operation)
        query = (
            rows.parquet(self.source)
            .writeStream.foreachBatch(pickle.loads(pickle.dumps(write)))
            .option("checkpointLocation", str(self.directory / checkpoint))
            .trigger(availableNow=True)
        )
        (query.queryName(name) if name else query).start().awaitTermination()

    def forget(self, checkpoint: str = "c") -> int:
        """Take the newest batch out of Spark's own log, as if it had died before writing it."""
        log = self.directory / checkpoint / "commits"
        newest = max(int(path.name) for path in log.glob("*") if path.name.isdigit())
        for path in (log / str(newest), log / f".{newest}.crc"):
            path.unlink(missing_ok=True)
        return newest


@pytest.fixture
def pipe(spark: SparkSession, tmp_path: Path) -> Pipe:
    return Pipe(spark, tmp_path)


def ids(table: Table) -> list[int]:
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())


def test_appends_and_upserts_are_there_once_over_restarts_and_replays(
    pipe: Pipe, tmp_path: Path
) -> None:
    """INV-09: between publish and Spark's own log the driver died; the batch comes again."""
    added, changed = make(tmp_path / "added", keyed=False), make(tmp_path / "changed", "mor")
    for rev, (start, stop) in enumerate([(0, 10), (5, 20)]):
        pipe.feed(start, stop, rev)
        query = pipe.run(added)
        pipe.run(changed, "u", operation="upsert", application="orders")
    position = added.stream(str(query.id)).position
    assert position is not None, "by default the id of the query"
    assert (position.epoch, position.end) == (1, f"{query.id}#1")
    for table, checkpoint in ((added, "c"), (changed, "u")):
        assert pipe.forget(checkpoint) == 1
        options = {} if checkpoint == "c" else {"operation": "upsert", "application": "orders"}
        pipe.run(table, checkpoint, **options)
        assert_sound(table)
    pipe.feed(20, 25, 2)
    pipe.run(added)
    assert ids(added) == sorted([*range(10), *range(5, 20), *range(20, 25)])
    assert revisions(changed) == dict.fromkeys(range(5), 0) | dict.fromkeys(range(5, 20), 1)
    audit = added.stream(str(query.id)).audit()
    assert audit.problems == ()
    assert [epoch.rows for epoch in audit.epochs] == [10, 15, 5]


def test_two_queries_write_one_table(pipe: Pipe, tmp_path: Path) -> None:
    table = make(tmp_path / "t", "mor", buckets=1)
    pipe.feed(0, 10, 0)
    pipe.feed(10, 20, 0)
    queries = [
        pipe.begin(table, name, operation="upsert", application=name) for name in ("one", "two")
    ]
    for query in queries:
        query.awaitTermination()
    assert ids(table) == list(range(20))
    for name in ("one", "two"):
        assert [e.epoch for e in table.stream(name).audit().epochs] == [0, 1]
    assert_sound(table)


def test_a_query_that_lost_its_checkpoint_is_refused(pipe: Pipe, tmp_path: Path) -> None:
    """INV-09: batch 0 of another checkpoint is no replay, so it is neither skipped nor applied."""
    table = make(tmp_path / "t")
    pipe.feed(0, 10, 0)
    pipe.run(table, application="orders")
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(Exception, match="EpochRewoundError"):
        pipe.run(table, application="orders")
    assert ids(table) == list(range(10))


def test_foreach_batch_is_exactly_once_too(pipe: Pipe, tmp_path: Path) -> None:
    table = make(tmp_path / "t", partitioned=True)
    pipe.feed(0, 10, 0)
    pipe.feed(5, 15, 1)
    pipe.each(table)
    version = table.version
    pipe.forget()
    pipe.each(table)
    assert table.version == version, "the batch was not even computed"
    assert ids(table) == list(range(15))
    with pytest.raises(Exception, match="EpochRewoundError"):
        pipe.each(table, "other")
    assert_sound(table)
    gone = make(tmp_path / "gone")
    gone.append(frame(pipe.spark, 0, 20, 0).toArrow())
    pipe.each(gone, "d", operation="delete")
    assert ids(gone) == list(range(15, 20)), "rows of keys"


def test_complete_mode_replaces_the_table_each_epoch(pipe: Pipe, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), "part string, many bigint", record_key=["part"])
    for start in (0, 6):
        pipe.feed(start, start + 6, 0)
        counts = pipe.spark.readStream.schema(DDL).parquet(pipe.source).groupBy("part")
        (
            counts.agg({"id": "count"})
            .toDF("part", "many")
            .writeStream.format("plait")
            .outputMode("complete")
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "t"))
            .awaitTermination()
        )
    rows = table.scan().to_arrow().to_pylist()
    assert {row["part"]: row["many"] for row in rows} == {"p0": 4, "p1": 4, "p2": 4}


def test_options_of_a_stream_are_refused_by_name(pipe: Pipe, tmp_path: Path) -> None:
    table = make(tmp_path / "t", keyed=False)
    pipe.feed(0, 3, 0)
    with pytest.raises(Exception, match="did you mean 'application'"):
        pipe.run(table, aplication="x")
    with pytest.raises(Exception, match="needs a record key"):
        pipe.run(table, operation="upsert")
    with pytest.raises(OptionError):
        foreach_batch(table, application="")
    with pytest.raises(OptionError):
        foreach_batch(table, application="x", operation="merge")
    assert_sound(table)


def test_a_task_that_is_tried_again_leaves_its_rows_once(pipe: Pipe, tmp_path: Path) -> None:
    table = make(tmp_path / "t", keyed=False)
    pipe.feed(0, 12_000, 0)
    rows = pipe.spark.readStream.schema(DDL).parquet(pipe.source)
    (
        rows.mapInArrow(fails_once(str(tmp_path / "failed")), rows.schema)
        .writeStream.format("plait")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "t"))
        .awaitTermination()
    )
    assert ids(table) == list(range(12_000))
    assert_sound(table)
