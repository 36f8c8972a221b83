"""A DataFrame written to sinks by the executors that stage it (RFC 0022)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import ReplicationError, RetryableConflictError, Table
from plait.errors import SchemaError
from plait.files.digest import digest_of
from plait.model.changes import Digest
from plait.model.sink_ledger import SinkLedger
from plait.replicate import Replicas, Retries, repair, status
from plait.spark.exchange import SETTING
from plait.timeline.replica_records import load_attempts
from tests.integration.spark.tables import arrow_rows, assert_sound, frame, make
from tests.integration.spark.watched_sink import Watched
from tests.services.local_spark import wait_idle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Content = list[tuple[object, ...]]


@pytest.fixture(params=["auto", "shuffle"])
def exchange(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set(SETTING, request.param)
    yield request.param
    spark.conf.unset(SETTING)


def watched(path: Path, name: str = "eu") -> Watched:
    return Watched(name, str(path / f"{name}.db"), str(path))


def held(sink: Watched) -> Content:
    with closing(sqlite3.connect(sink.database)) as connection:
        return connection.execute("SELECT id, part, rev, name FROM t ORDER BY id").fetchall()


def content(table: Table) -> Content:
    rows = table.scan(["id", "part", "rev", "name"]).to_arrow().sort_by("id").to_pylist()
    return [tuple(row.values()) for row in rows]


def ledger_of(table: Table, version: int) -> SinkLedger:
    (decision,) = table._handle.cache.timeline.load_after(version - 1, limit=1)
    assert decision.replicas is not None
    return decision.replicas


def replicas(*sinks: Watched, attempts: int = 1) -> Replicas:
    return Replicas(sinks, batch_size=100, retries=Retries(attempts=attempts))


@pytest.mark.usefixtures("exchange")
@pytest.mark.parametrize("ordering", [None, "rev"])
def test_every_sink_holds_the_rows_of_a_data_frame_and_the_ledger_tells_each_task(
    spark: SparkSession, tmp_path: Path, ordering: str | None
) -> None:
    """Connections are made a task, and the driver opens each sink once."""
    table = make(tmp_path / "t", partitioned=True, ordering=ordering)
    sinks = [watched(tmp_path, "eu"), watched(tmp_path, "us")]
    rows = frame(spark, 0, 2_000, 1)
    with table.writer("upsert", replicas=replicas(*sinks)) as writer:
        writer.write(rows)
    assert len(content(table)) == 2_000
    assert content(table) == held(sinks[0]) == held(sinks[1])
    ledger = ledger_of(table, writer.result.version)
    assert ledger.sinks == ("eu", "us")
    told = sum((each.digest for each in ledger.tasks), Digest())
    assert told == digest_of(arrow_rows(0, 2_000, 1).to_batches())
    notes = sinks[0].notes()
    opened = Counter(tuple(each[1:]) for each in notes if each[0] == "open")
    assert set(opened.values()) == {1}
    assert len(opened) == 1 + len(ledger.tasks) > 2
    assert {each.task for each in ledger.tasks} == {"-".join(o) for o in opened} - {"driver-driver"}
    assert sum(each.batches for each in ledger.tasks) == len(notes) - len(opened)
    assert load_attempts(table._handle.store) == []
    assert [each.in_step for each in status(table)] == [True, True]
    assert_sound(table)


def test_a_delete_by_keys_reaches_the_sinks(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = make(tmp_path / "t", "mor", partitioned=True), watched(tmp_path)
    with table.writer("upsert", replicas=replicas(sink)) as writer:
        writer.write(frame(spark, 0, 500, 1))
    with table.writer("delete", replicas=replicas(sink)) as writer:
        writer.write(frame(spark, 100, 200, 1).select("id", "part"))
    assert len(content(table)) == 400
    assert content(table) == held(sink)
    assert status(table)[0].in_step


def test_sinks_of_the_definition_get_the_rows_of_writers_and_blocks_from_the_executors(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, eu = (make(tmp_path / name, partitioned=True, ordering="rev") for name in ("t", "eu"))
    table.alter.set({"replicas.batch.size": 100_000})
    table.replicas.add(f"eu={tmp_path / 'eu'}")
    table.upsert(frame(spark, 0, 500, 1))
    with table.transaction() as tx:
        tx.delete(keys=frame(spark, 0, 50, 1).select("id", "part"))
        tx.upsert(frame(spark, 500, 600, 1))
    assert content(table) == content(eu)
    assert len(content(eu)) == 550
    told = ledger_of(table, tx.result.version)
    assert {each.task[:3] for each in told.tasks} == {"s1-", "s2-"}
    assert load_attempts(table._handle.store) == []
    assert status(table)[0].behind == ()


def test_writers_of_spark_itself_refuse_a_table_with_sinks_before_a_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t")
    table.replicas.add(f"eu={tmp_path / 'absent'}")
    rows = frame(spark, 0, 5, 1).write.format("plait").option("operation", "upsert").mode("append")
    with pytest.raises(Exception, match="sinks"):
        rows.save(str(tmp_path / "t"))
    assert table.version == 1


def test_keys_of_a_delete_without_their_partitions_are_refused_before_a_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, sink = make(tmp_path / "t", partitioned=True), watched(tmp_path)
    with (
        pytest.raises(SchemaError),
        table.writer("delete", replicas=replicas(sink)) as writer,
    ):
        writer.write(frame(spark, 0, 10, 1).select("id"))
    assert not Path(sink.database).exists()
    assert load_attempts(table._handle.store) == []


@pytest.mark.usefixtures("exchange")
def test_a_task_whose_batch_fails_is_run_again_with_all_its_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The attempt that failed keeps the sink ahead until it was compared."""
    table, sink = make(tmp_path / "t"), watched(tmp_path)
    (tmp_path / "fail").write_text("any")
    with table.writer("upsert", replicas=replicas(sink)) as writer:
        writer.write(frame(spark, 0, 2_000, 1))
    assert (tmp_path / "fail.done").exists()
    assert len(content(table)) == 2_000
    assert content(table) == held(sink)
    (found,) = status(table)
    (ahead,) = found.ahead
    assert ahead.instant == writer.result.instant
    ledger = ledger_of(table, writer.result.version)
    assert ahead.task not in {each.task for each in ledger.tasks}
    assert repair(table, sink.plain).equal
    assert status(table)[0].in_step
    assert load_attempts(table._handle.store) == []


def test_a_sink_that_fails_for_good_fails_the_write_with_every_outcome(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, good, bad = make(tmp_path / "t"), watched(tmp_path), watched(tmp_path, "us")
    table.upsert(arrow_rows(0, 10, 0))
    with closing(sqlite3.connect(bad.database)) as connection:
        columns = "id bigint primary key, part text, rev bigint, name text not null CHECK (id < 90)"
        connection.execute(f"CREATE TABLE t ({columns})")
    with (
        pytest.raises(ReplicationError) as caught,
        table.writer("upsert", replicas=replicas(good, bad)) as writer,
    ):
        writer.write(frame(spark, 0, 100, 1, tasks=1))
    states = {each["sink"]: each["state"] for each in caught.value.outcomes}
    assert states == {"eu": "held", "us": "failed"}
    assert len(content(table)) == 10
    assert {each.sink: bool(each.ahead) for each in status(table)} == {"eu": True, "us": True}
    assert {len(each.ahead) for each in status(table)} == {1}, "the writer tells of its tasks"
    wait_idle(spark)  # one may still send
    repair(table, good.plain)
    assert held(good) == content(table)


@pytest.mark.usefixtures("exchange")
def test_what_a_redo_stages_again_is_sent_again_and_the_ledger_tells_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-07: another commit to the same bucket was first, of other keys."""
    table, sink = make(tmp_path / "t", buckets=1), watched(tmp_path)
    with table.writer("upsert", replicas=replicas(sink)) as writer:
        writer.write(frame(spark, 0, 300, 1))
        table.upsert(arrow_rows(1_000, 1_010, 0))
    assert writer.result.rebased > 0
    ledger = ledger_of(table, writer.result.version)
    sent = {"-".join(each[1:]) for each in sink.notes() if each[0].startswith("put")}
    assert {each.task for each in ledger.tasks} < sent, "those of the first round do not count"
    assert load_attempts(table._handle.store) == []
    assert (status(table)[0].ahead, status(table)[0].behind) == ((), (1,))
    assert repair(table, sink.plain).missing == 10


@pytest.mark.usefixtures("exchange")
@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_a_data_frame_sent_before_a_swap_is_sent_and_staged_again(
    spark: SparkSession, tmp_path: Path, operation: str
) -> None:
    table, sink = make(tmp_path / "t", buckets=2), watched(tmp_path)
    with table.writer("upsert", replicas=replicas(sink)) as writer:
        writer.write(arrow_rows(0, 100, 0))
    rows = frame(spark, 50, 350, 1)
    with table.writer(operation, replicas=replicas(sink)) as writer:
        writer.write(rows if operation == "upsert" else rows.select("id"))
        Table.open(str(tmp_path / "t")).layout.repush(buckets=5)
    assert len(content(table)) == (350 if operation == "upsert" else 50)
    assert content(table) == held(sink)
    ledger = ledger_of(table, writer.result.version)
    assert sum(each.digest.rows for each in ledger.tasks) == 300
    assert load_attempts(table._handle.store) == []
    assert status(table)[0].in_step
    assert_sound(table)


def test_other_rows_after_a_swap_than_sinks_got_before_it_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set(SETTING, "shuffle")
    table, sink = make(tmp_path / "t"), watched(tmp_path)
    rows = frame(spark, 0, 300, 1)
    moving = rows.mapInArrow(renamed, rows.schema)

    def race() -> None:
        with table.writer("upsert", replicas=replicas(sink)) as writer:
            writer.write(moving)
            Table.open(str(tmp_path / "t")).layout.repush(buckets=5)

    with pytest.raises(RetryableConflictError):
        race()
    spark.conf.unset(SETTING)
    assert content(table) == []
    assert status(table)[0].ahead
    assert repair(table, sink.plain).extra == 300


def renamed(batches):
    """Give each row another name each time that it is computed."""
    import secrets

    import pyarrow as pa

    for batch in batches:
        names = pa.array([secrets.token_hex(8) for _ in range(batch.num_rows)])
        yield batch.set_column(3, "name", names)


def test_a_redo_is_refused_if_the_rows_come_out_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What the first evaluation sent would be in the sinks, and nothing would tell of it."""
    spark.conf.set(SETTING, "shuffle")
    table, sink = make(tmp_path / "t", ordering="rev"), watched(tmp_path)
    rows = frame(spark, 0, 300, 1)
    moving = rows.mapInArrow(renamed, rows.schema)
    writer = table.writer("upsert", replicas=replicas(sink))
    with pytest.raises(RetryableConflictError), writer:
        _ = writer.write(moving), table.upsert(arrow_rows(1_000, 1_010, 0))
    spark.conf.unset(SETTING)
    (found,) = status(table)
    assert (len(found.ahead), found.behind) == (1, (1,))
    assert repair(table, sink.plain).extra == 300
