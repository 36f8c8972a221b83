"""A writer that is rolled back while its Spark job runs: the job is cancelled, and it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException

from plait import RolledBackError, Table
from plait.timeline import paths
from tests.integration.spark.tables import DDL, arrow_rows, assert_sound_in_the_end, frame
from tests.integration.spark.test_source import save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ASLEEP_S = 600
"""So long the job would run; the tests end long before, or fail."""
BEGUN_S = 300


def make(place: Path, *, interval: str = "300ms") -> Table:
    return Table.create(
        str(place),
        DDL,
        record_key=["id"],
        buckets=2,
        properties={"heartbeat.interval": interval},
    )


def begun_of(table: Table) -> Path:
    return Path(f"{table._handle.store.address.uri}.begun")


def slow(
    spark: SparkSession, table: Table, *, pause_s: float = ASLEEP_S, name: str = "name"
) -> DataFrame:
    """Give rows that do not come to an end in time, and say beside the table when they begin.

    Args:
        table: where they go.
        pause_s: between two batches of a task.
        name: an expression; long names fill the buffers between Spark and its processes.
    """
    count, begun = int(ASLEEP_S / pause_s), str(begun_of(table))

    def dawdle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(begun).touch()
        for batch in batches:
            for _ in range(count):
                yield batch
                time.sleep(pause_s)

    rows = frame(spark, 0, 40, 1, tasks=2).selectExpr("id", "part", "rev", f"{name} AS name")
    return rows.mapInArrow(dawdle, DDL)


def wait_for(here: Callable[[], bool]) -> None:
    until = time.monotonic() + BEGUN_S
    while not here() and time.monotonic() < until:
        time.sleep(0.1)
    assert here()


def ended_while_it_runs(
    table: Table,
    write: Callable[[], object],
    kinds: tuple[type[Exception], ...] = (RolledBackError,),
) -> tuple[Exception, float]:
    """Roll a write back once it is under way; give what it raised, and how long after that."""
    other = Table.open(table._handle.store.address.uri)
    ended: list[float] = []

    def end() -> None:
        wait_for(begun_of(table).exists)
        wait_for(lambda: other.inspect.timeline().pending != ())
        instant = other.inspect.timeline().pending[0].instant
        wait_for((Path(other._handle.store.address.uri) / paths.heartbeat(instant)).exists)
        other.maintenance.rollback(instant)
        ended.append(time.monotonic())

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(kinds) as caught:
        write()
    told = time.monotonic()
    thread.join()
    return caught.value, told - ended[0]


def test_the_job_of_a_writer_is_cancelled_and_the_writer_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-03: within a heartbeat interval, not when the job is done; other jobs go on."""
    table = make(tmp_path / "t")
    table.append(arrow_rows(0, 40, 0))
    error, after_s = ended_while_it_runs(table, lambda: table.upsert(slow(spark, table)))
    assert isinstance(error, RolledBackError)
    assert after_s < ASLEEP_S / 2
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
    assert table.upsert(frame(spark, 0, 40, 2)).stats.rows_updated == 40
    assert_sound_in_the_end(table, 4)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Have Spark hand rows to a sink as they come, not 10,000 at a time."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "20")
    yield
    spark.conf.set(name, before)


@pytest.mark.long(1)
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("length", [300, 10_000])
def test_tasks_of_the_data_source_are_told_at_their_next_batch(
    spark: SparkSession, tmp_path: Path, length: int
) -> None:
    """INV-03: the sink heard of it at its commit, hours later maybe.

    Long rows fill Spark's buffers, and it reads the error; short ones never fill them.
    """
    table = make(tmp_path / "t")
    rows = slow(spark, table, pause_s=0.2, name=f"repeat('x', {length})")
    kinds = (PySparkException, Py4JJavaError)  # a process that ended is no exception of Python's
    error, after_s = ended_while_it_runs(table, lambda: save(rows, table), kinds)
    assert "RolledBackError" in str(error)
    assert after_s < ASLEEP_S / 2
    table.append(arrow_rows(0, 40, 2))
    assert_sound_in_the_end(table, 2)
    assert table.scan().count() == 40


def test_tasks_that_begin_after_the_rollback_are_told_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each is over before its first heartbeat is due."""
    table = make(tmp_path / "t", interval="1s")
    begun, tasks = tmp_path / "begun", 200
    begun.mkdir()
    uri, name = str(tmp_path / "t"), str(begun)

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = TaskContext.get().partitionId()
        (Path(name) / str(number)).touch()
        if number == 10:
            for entry in (
                Table.open(uri).inspect.timeline().pending
            ):  # none, where Spark tries it again
                Table.open(uri).maintenance.rollback(entry.instant)
        time.sleep(0.2)
        yield from batches

    rows = frame(spark, 0, 1000, 1, tasks=tasks).mapInArrow(note, DDL)
    with pytest.raises(PySparkException, match="RolledBackError"):
        save(rows, table)
    assert len(list(begun.iterdir())) < tasks / 2
    assert_sound_in_the_end(table, 0)
