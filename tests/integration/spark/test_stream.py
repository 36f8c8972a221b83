"""Streams from Spark: each batch is there once, whoever dies when and whatever is replayed."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plait import Table
from plait.files.digest import digest_of
from plait.model.decision import Span
from plait.spark import foreach_batch
from tests.integration.spark.tables import (
    DDL,
    arrow_rows,
    assert_sound,
    begun,
    frame,
    make,
    revisions,
)
from tests.integration.spark.test_writer import fails_once
from tests.processes import stream_kills

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark


class Pipe:
    """Files that come one by one, and queries that read them until all are read."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.source = str(directory / "source")

    def feed(self, start: int, stop: int, rev: int) -> None:
        frame(self.spark, start, stop, rev, tasks=1).write.mode("append").parquet(self.source)

    def rows(self, files: int = 1) -> DataFrame:
        rows = self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", files)
        return rows.parquet(self.source)

    def begin(
        self,
        table: Table,
        checkpoint: str = "c",
        *,
        files: int = 1,
        name: str | None = None,
        **options: str,
    ) -> StreamingQuery:
        query = self.rows(files).writeStream.format("plait").options(**options)
        return (
            (query.queryName(name) if name else query)
            .option("checkpointLocation", str(self.directory / checkpoint))
            .trigger(availableNow=True)
            .start(str(table.inspect.describe()["uri"]))
        )

    def run(self, table: Table, checkpoint: str = "c", **options: Any) -> StreamingQuery:
        query = self.begin(table, checkpoint, **options)
        query.awaitTermination()
        return query

    def each(
        self,
        table: Table,
        checkpoint: str = "c",
        operation: str = "upsert",
        *,
        files: int = 1,
        name: str | None = None,
        told: bool = True,
    ) -> None:
        place = str(self.directory / checkpoint)
        write = foreach_batch(
            table,
            application="each",
            operation=operation,
            checkpoint=place if told else None,
        )
        query = (
            self.rows(files)
            .writeStream.foreachBatch(pickle.loads(pickle.dumps(write)))
            .option("checkpointLocation", place)
            .trigger(availableNow=True)
        )
        begun((query.queryName(name) if name else query).start).awaitTermination()

    def forget(self, checkpoint: str = "c") -> int:
        """Take the newest batch out of Spark's own log, as if it had died before writing it."""
        newest = max(self._batches(checkpoint, "commits"))
        self._remove(checkpoint, "commits", newest)
        return newest

    def rewind(self, last: int, checkpoint: str = "c") -> None:
        """Take every batch after one out of all logs: Spark plans them anew, from what is there."""
        for log in ("commits", "offsets", "sources/0"):
            for batch in self._batches(checkpoint, log):
                if batch > last:
                    self._remove(checkpoint, log, batch)

    def _batches(self, checkpoint: str, log: str) -> list[int]:
        found = (self.directory / checkpoint / log).glob("*")
        return [int(path.name) for path in found if path.name.isdigit()]

    def _remove(self, checkpoint: str, log: str, batch: int) -> None:
        place = self.directory / checkpoint / log
        for path in (place / str(batch), place / f".{batch}.crc"):
            path.unlink(missing_ok=True)


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
    application = str(tmp_path / "c")
    position = added.stream(application).position
    assert position is not None, "by default the location of the checkpoint"
    assert (position.epoch, position.end) == (1, f"{query.id}#1")
    assert position.token.offsets == (Span("0", '{"logOffset":0}', '{"logOffset":1}'),)
    for table, checkpoint in ((added, "c"), (changed, "u")):
        assert pipe.forget(checkpoint) == 1
        options = {} if checkpoint == "c" else {"operation": "upsert", "application": "orders"}
        pipe.run(table, checkpoint, **options)
        assert_sound(table)
    pipe.feed(20, 25, 2)
    pipe.run(added)
    assert ids(added) == sorted([*range(10), *range(5, 20), *range(20, 25)])
    assert revisions(changed) == dict.fromkeys(range(5), 0) | dict.fromkeys(range(5, 20), 1)
    audit = added.stream(application).audit()
    assert audit.problems == ()
    assert [epoch.rows for epoch in audit.epochs] == [10, 15, 5]
    assert audit.proven == 3


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


@pytest.mark.parametrize("named", ["application", "query", "checkpoint"])
def test_a_query_that_lost_its_checkpoint_is_refused(
    pipe: Pipe, tmp_path: Path, named: str
) -> None:
    """INV-09: batch 0 of another checkpoint is no replay, so it is neither skipped nor applied.

    Whatever names the stream: none of the names goes with the checkpoint.
    """
    table = make(tmp_path / "t", keyed=False)
    options: dict[str, Any] = {"application": {"application": "a"}, "query": {"name": "q"}}.get(
        named, {}
    )
    pipe.feed(0, 10, 0)
    pipe.run(table, **options)
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(Exception, match="EpochRewoundError") as refusal:
        pipe.run(table, **options)
    assert "option('application', ...)" in str(refusal.value), "how to start anew on purpose"
    assert ids(table) == list(range(10))
    pipe.run(table, "new", application="anew")
    assert ids(table) == sorted([*range(10)] * 2), "on purpose"


def test_a_stream_that_nothing_names_is_refused(pipe: Pipe, tmp_path: Path) -> None:
    """Spark makes up a checkpoint of its own then, another one at each start."""
    table = make(tmp_path / "t", keyed=False)
    pipe.feed(0, 10, 0)
    pipe.spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        query = pipe.rows().writeStream.format("plait").trigger(availableNow=True)
        with pytest.raises(Exception, match="this stream has no name"):
            query.start(str(tmp_path / "t")).awaitTermination()
        query.queryName("named").start(str(tmp_path / "t")).awaitTermination()
    finally:
        pipe.spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert ids(table) == list(range(10))


@pytest.mark.long(1)
@pytest.mark.parametrize("way", ["append", "upsert", "each"])
def test_a_rewound_checkpoint_loses_no_row_and_writes_none_twice(
    pipe: Pipe, tmp_path: Path, way: str
) -> None:
    """INV-09: four batches; the checkpoint of the first comes back, and batches are cut otherwise.

    Then the offsets of the file source are the same (it counts), and only the rows differ. With the
    old cut they are replays, and the stream goes on.
    """
    table = make(tmp_path / "t", "mor", keyed=way != "append")

    def run(files: int = 1) -> None:
        if way == "each":
            pipe.each(table, files=files)
        else:
            pipe.run(table, files=files, operation=way)

    pipe.feed(0, 10, 0)
    run()
    shutil.copytree(tmp_path / "c", tmp_path / "older")
    for start in (10, 20, 30):
        pipe.feed(start, start + 10, 0)
    run()
    for rewound in (lambda: pipe.rewind(0), lambda: _put_back(tmp_path)):
        version = table.version
        rewound()
        with pytest.raises(Exception, match="EpochRewoundError"):
            run(files=2)
        table.maintenance.rollback()
        assert ids(table) == list(range(40))
        rewound()
        run()
        assert ids(table) == list(range(40))
        assert len(table.inspect.history(limit=100)) >= version
    pipe.feed(40, 45, 0)
    run(files=2)
    assert ids(table) == list(range(45))
    (application,) = table._handle.cache.refresh().streams
    audit = table.stream(application).audit()
    assert [entry.epoch for entry in audit.epochs] == [0, 1, 2, 3, 4]
    assert (audit.problems, audit.proven) == ((), 5)
    assert_sound(table)


def _put_back(directory: Path) -> None:
    shutil.rmtree(directory / "c")
    shutil.copytree(directory / "older", directory / "c")


def test_another_source_under_the_same_checkpoint_is_refused(pipe: Pipe, tmp_path: Path) -> None:
    """The number of rows is the same, and so are Spark's offsets: what is in them is not."""
    table = make(tmp_path / "t", keyed=False)
    pipe.feed(0, 10, 0)
    pipe.run(table)
    pipe.rewind(-1)
    pipe.source = str(tmp_path / "elsewhere")
    pipe.feed(100, 110, 0)
    with pytest.raises(Exception, match="EpochRewoundError"):
        pipe.run(table)
    assert ids(table) == list(range(10))


def test_a_source_that_gives_other_rows_when_asked_again_is_refused(
    pipe: Pipe, tmp_path: Path
) -> None:
    """Its batch is in the table already: no row is lost, and none is there twice."""
    table = make(tmp_path / "t", keyed=False)
    pipe.feed(0, 10, 0)

    def run() -> None:
        rows = pipe.rows().selectExpr("id", "part", "rev", "uuid() AS name")
        query = rows.writeStream.format("plait").option("checkpointLocation", str(tmp_path / "c"))
        query.trigger(availableNow=True).start(str(tmp_path / "t")).awaitTermination()

    run()
    before = table.scan().to_arrow()
    pipe.forget()
    with pytest.raises(Exception, match="other rows"):
        run()
    assert table.scan().to_arrow().equals(before)


def test_foreach_batch_is_exactly_once_too(pipe: Pipe, tmp_path: Path) -> None:
    table = make(tmp_path / "t", partitioned=True)
    pipe.feed(0, 10, 0)
    pipe.feed(5, 15, 1)
    pipe.each(table)
    version = table.version
    pipe.forget()
    pipe.each(table)
    assert table.version == version, "its rows were compared, and nothing was written"
    assert ids(table) == list(range(15))
    with pytest.raises(Exception, match="EpochRewoundError"):
        pipe.each(table, "other")
    assert_sound(table)
    gone = make(tmp_path / "gone")
    gone.append(arrow_rows(0, 20, 0))
    pipe.each(gone, "d", operation="delete")
    assert ids(gone) == list(range(15, 20)), "rows of keys"


def test_complete_mode_replaces_the_table_each_epoch(pipe: Pipe, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), "part string, many bigint", record_key=["part"])
    pipe.feed(0, 6, 0)
    pipe.feed(6, 12, 0)
    (
        pipe.rows()
        .groupBy("part")
        .agg({"id": "count"})
        .toDF("part", "many")
        .writeStream.format("plait")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "t"))
        .awaitTermination()
    )
    for version, many in ((1, 2), (2, 4)):
        rows = table.scan(version=version).to_arrow().to_pylist()
        assert {row["part"]: row["many"] for row in rows} == {"p0": many, "p1": many, "p2": many}


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
    (epoch,) = table.stream(str(tmp_path / "c")).audit().epochs
    schema = table._handle.cache.known().table.spec.schema.arrow
    found = table.scan().to_arrow().cast(schema).to_batches()
    assert epoch.digest == digest_of(found), "the attempt that failed does not count"
    assert_sound(table)


@pytest.mark.timeout(1200)
@pytest.mark.long(1)
@pytest.mark.parametrize(("epochs", "kills"), [(4, 1), (6, 2)])
def test_every_row_is_there_once_though_the_driver_is_killed(
    tmp_path: Path, epochs: int, kills: int
) -> None:
    """INV-09: append and upsert beside each other; a kill before Spark's own log has an epoch.

    So that epoch comes again. The second kill strikes while rows are staged.
    """
    done = stream_kills.run(tmp_path, epochs=epochs, kills=kills, seed=3)
    assert done.epochs >= epochs
    assert done.drivers == kills + 1
    assert done.replayed >= 1
    assert done.mid_epoch >= kills - 1
