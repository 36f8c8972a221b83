"""Count the files and calls of Plait that each of eleven operations passes through.

``python scripts/hops.py`` runs each operation on a table in memory; ``--files`` lists the files in
the order in which they are entered. These are the files that a reader must know to follow the
operation. ``docs/architecture.md`` and the pages of ``docs/internals`` name the most important
ones, and a test compares them. The upsert of a Spark DataFrame needs a session, and is measured
with ``--spark``: there, what the driver does in its thread.

``CEILINGS`` bounds each trip, and a test holds it. A change that adds a capability may not raise
the trip of those who do not use it: lower the number when a trip gets shorter, and never raise it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self
from unittest import mock

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import plait
from plait import Table
from plait.ports import NullObserver
from plait.replicate import Replicas, TableSink
from plait.repush.begin import RepushRequest, begin
from plait.spark.options import WRITING, SourceOptions
from plait.spark.sink import begin_write
from plait.stream.transport import Hub
from plait.table import handle_of
from plait.testing import open_wrapped
from plait.testing.wrapper import WrappedStore

ROOT = Path(plait.__file__).parent
ROWS = pa.table({"id": [1, 2], "value": [10, 20]})
OVERTAKEN_AT = 2
FEW = 3
"""A file that is entered so rarely is one that a reader opens for a line or two."""
OTHER_ROWS = pa.table({"id": [3], "value": [30]})


class Trip(NamedTuple):
    """How long a trip may be."""

    files: int
    calls: int
    few: int
    """Files that are entered ``FEW`` times at most."""


DATAFRAME = "upsert of a DataFrame"
CEILINGS: Mapping[str, Trip] = {
    "append": Trip(53, 660, 10),
    "upsert": Trip(60, 890, 8),
    "scan": Trip(26, 225, 10),
    "conflict": Trip(67, 1_725, 7),
    "stream epoch": Trip(78, 3_900, 10),
    "rollback": Trip(30, 350, 10),
    "clean": Trip(33, 470, 10),
    "compaction": Trip(65, 1_340, 11),
    "dual write": Trip(72, 1_060, 14),
    "repush": Trip(119, 9_800, 17),
    "data source write": Trip(81, 2_200, 12),
    DATAFRAME: Trip(66, 740, 22),
}
"""The most that each trip may be."""


class StoreOfTomorrow(WrappedStore):
    """A store whose clock is a day ahead."""

    def now_ms(self) -> int:
        """Return the time of the inner store, and a day."""
        return self.inner.now_ms() + 24 * 3600 * 1000


class OnlyTask(TaskContext):
    """What Spark tells a task, of the only one."""

    def __new__(cls) -> Self:
        """Return a context of its own: that of a worker is made once."""
        return object.__new__(cls)

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """Return the number of the task."""
        return 0

    def attemptNumber(self) -> int:  # noqa: N802
        """Return the number of the attempt."""
        return 0

    def taskAttemptId(self) -> int:  # noqa: N802
        """Return the number of the attempt among all of them."""
        return 0

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        """Return a setting of the session: none was set."""
        del key
        return None


class Hops:
    """The calls of Plait's own functions in one thread, by file, in the order of first entry."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}

    @property
    def few(self) -> list[str]:
        """The files that are entered ``FEW`` times at most."""
        return [name for name, calls in self.files.items() if calls <= FEW]

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Count one call; a profile function of the interpreter."""
        del argument
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(ROOT)) and frame.f_code.co_name != "<module>":
            name = Path(path).relative_to(ROOT).as_posix()
            if not name.startswith("testing/"):
                self.files[name] = self.files.get(name, 0) + 1

    def count(self, act: Callable[[Table], object], table: Table) -> None:
        """Count what an act calls in this thread."""
        sys.setprofile(self)
        try:
            act(table)
        finally:
            sys.setprofile(None)


@contextmanager
def uncounted() -> Iterator[None]:
    """Leave out what a block does: another client's part, or the set-up."""
    profile = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(profile)


def make(name: str) -> Table:
    """Create a keyed table with two rows."""
    uri = f"memory://hops-{name}"
    table = Table.create(uri, "id bigint, value bigint", record_key=["id"], buckets=1, lock="none")
    table.upsert(ROWS)
    return table


def another_client(table: Table) -> Table:
    """Open the same table as another client."""
    return Table.open(str(table.inspect.describe()["uri"]))


def append(table: Table) -> None:
    """Add two rows to a table without a key, in which nothing optional is switched on."""
    with uncounted():
        uri = f"{table.inspect.describe()['uri']}-plain"
        plain = Table.create(uri, "id bigint, value bigint", lock="none")
    plain.append(ROWS)


def upsert(table: Table) -> None:
    """Change two rows."""
    table.upsert(ROWS)


def data_source(table: Table) -> None:
    """Change two rows as ``df.write.format("plait")`` does: on the driver, and in its one task."""
    with uncounted():
        options = {"path": str(table.inspect.describe()["uri"]), "operation": "upsert"}
    schema = StructType([StructField("id", LongType()), StructField("value", LongType())])
    writer = begin_write(SourceOptions.of(options, WRITING), schema, overwrite=False)
    with mock.patch.object(TaskContext, "get", OnlyTask):  # as in a worker of Spark
        message = writer.write(iter(ROWS.to_batches()))
    writer.commit([message])


def scan(table: Table) -> None:
    """Read all rows."""
    table.scan().to_arrow()


def conflict(table: Table) -> None:
    """Meet a commit of another key in the same bucket, and redo that bucket."""
    with table.writer("upsert") as writer:
        writer.write(ROWS)
        with uncounted():
            another_client(table).upsert(OTHER_ROWS)
    require(writer.result.rebased == 1, "the commit redid no bucket")


def epoch(table: Table) -> None:
    """Decide one epoch of a stream with a coordinator and one writer."""
    hub = Hub()
    stream = table.stream("hops")
    with stream.coordinator(hub.coordinator(), "append") as coordinator:
        writer = stream.participant(hub.writer(), "writer")
        while not writer.ready:
            writer.poll()
            coordinator.poll()
        writer.write(OTHER_ROWS, start="", end="1")
        coordinator.checkpoint(wait_s=0)
        writer.poll()
        writer.settle()
        require(coordinator.complete() is not None, "no epoch was decided")
        writer.close()


def rollback(table: Table) -> None:
    """Roll back the instant of a writer that has been silent for a day."""
    with uncounted():
        silent = table.writer("upsert")
        silent.__enter__().write(ROWS)
        tomorrow, _ = open_wrapped(str(table.inspect.describe()["uri"]), StoreOfTomorrow)
    require(len(tomorrow.maintenance.rollback().ended) == 1, "no instant was rolled back")


def clean(table: Table) -> None:
    """Delete the files that no version needs any more."""
    with uncounted():
        table.alter.set(
            {"clean.retain.time": "0s", "clean.grace": "0s", "clean.retain.versions": 1}
        )
        table.upsert(ROWS)
    require(bool(table.maintenance.clean().deleted), "no file was deleted")


def compaction(table: Table) -> None:
    """Compact, and meet an upsert on the way."""
    with uncounted():
        merged = Table.create(
            f"{table.inspect.describe()['uri']}-logs",
            "id bigint, value bigint",
            record_key=["id"],
            buckets=1,
            table_type="mor",
            lock="none",
        )
        merged.upsert(ROWS)
        merged.upsert(OTHER_ROWS)
        other = another_client(merged)

    class Overtaken(NullObserver):
        """Lets an upsert be first."""

        def phase(self, name: str, **facts: object) -> None:
            """Write once, before the compaction publishes."""
            del facts
            with uncounted():
                if name == "publish" and merged.version == OVERTAKEN_AT:
                    another_client(merged).upsert(ROWS)

    with uncounted():
        ports = replace(handle_of(other).ports, observer=Overtaken())
        compacted = Table(replace(handle_of(other), ports=ports))
    report = compacted.maintenance.compact(full=True)
    require(report.commits[0].attempts > 1, "the compaction met nobody")


def dual_write(table: Table) -> None:
    """Change two rows, in another table first."""
    with uncounted():
        uri = f"{table.inspect.describe()['uri']}-replica"
        Table.create(uri, "id bigint, value bigint", record_key=["id"], lock="none")
    with table.writer("upsert", replicas=Replicas([TableSink("replica", uri)])) as writer:
        writer.write(ROWS)


def repush(table: Table) -> None:
    """Follow an upsert, swap, and stage the rows of a writer again."""
    with table.writer("upsert") as writer:
        writer.write(ROWS)
        other = another_client(table)
        begin(handle_of(other), RepushRequest(buckets=2))
        with uncounted():
            another_client(table).upsert(OTHER_ROWS)
        report = other.layout.repush(buckets=2)
    require(report.rows_followed == 1, "the repush followed nothing")
    require(
        table.inspect.describe()["bucket_spec"] == other.inspect.describe()["bucket_spec"],
        "no swap",
    )


def require(true: bool, message: str) -> None:  # noqa: FBT001 - as assert, but kept under -O
    """Stop when an operation did not do what it is to show."""
    if not true:
        raise AssertionError(message)


OPERATIONS: Mapping[str, Callable[[Table], None]] = {
    "append": append,
    "upsert": upsert,
    "scan": scan,
    "conflict": conflict,
    "stream epoch": epoch,
    "rollback": rollback,
    "clean": clean,
    "compaction": compaction,
    "dual write": dual_write,
    "repush": repush,
    "data source write": data_source,
}


def measure(*names: str) -> dict[str, Hops]:
    """Run each operation twice, and count the second time: the first one loads modules."""
    measured = {}
    for name in names or OPERATIONS:
        act = OPERATIONS[name]
        act(make(f"{name}-first"))
        table = make(name)
        measured[name] = Hops()
        measured[name].count(act, table)
    return measured


def measure_dataframe(spark: SparkSession, uri: str) -> Hops:
    """Upsert a DataFrame twice into a table at a place that executors reach; count the second."""
    table = Table.create(uri, "id bigint, value bigint", record_key=["id"], buckets=1, lock="none")
    frame = spark.createDataFrame([(1, 10), (2, 20)], "id bigint, value bigint")
    table.upsert(frame)
    hops = Hops()
    hops.count(lambda table: table.upsert(frame), table)
    return hops


def main() -> None:
    """Print one line for each operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files too")
    parser.add_argument("--spark", action="store_true", help="the upsert of a DataFrame too")
    asked = parser.parse_args()
    listed, measured = asked.files, measure()
    if asked.spark:
        with tempfile.TemporaryDirectory() as place:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            spark = SparkSession.builder.master("local[1]").getOrCreate()
            measured[DATAFRAME] = measure_dataframe(spark, f"{place}/table")
            spark.stop()
    for name, hops in measured.items():
        few = len(hops.few)
        calls = sum(hops.files.values())
        print(f"{name:<22}{len(hops.files):4} files {calls:6} calls {few:4} files of few calls")
        if listed:
            for file, calls in hops.files.items():
                print(f"    {calls:5}  {file}")


if __name__ == "__main__":
    main()
