"""What runs on an executor: the Arrow writer, on the rows of one task.

Only the rows that a task returns to the driver name files. So it does no harm when a task runs
twice, or goes on after everybody has stopped waiting for it: what it wrote has names of its own.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from plait.errors import InvariantError, Retry, StorageError, TableError
from plait.files.hash import key_hashes
from plait.model.changes import WriteStatus
from plait.model.plan import Snapshot, TableSpec, WritePlan
from plait.spark.packed import PackedSnapshot
from plait.spark.pieces import Pieces
from plait.spark.report import Report, marked
from plait.spark.route import Route, typed
from plait.storage import open_store
from plait.write.announce import Announcer
from plait.write.staging import ArrowStaging, Task

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Place:
    """Which attempt of which task this is."""

    task: int
    attempt: int
    label: str
    """No other attempt that ever runs in this Spark application has it."""

    @classmethod
    def here(cls) -> Place:
        """Ask Spark."""
        context = TaskContext.get()
        if context is None:
            message = "not inside of a Spark task"
            raise InvariantError(message)
        _keep_modules()
        number = context.partitionId()
        return cls(number, context.attemptNumber(), f"{number}-{context.taskAttemptId()}")

    def staging_task(self) -> Task:
        """Give the names and the place for temporary files of this attempt."""
        spill = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        return Task(self.label, spill if spill and Path(spill).is_dir() else None)


@cache
def _keep_modules() -> None:
    """Take what is loaded by now out of the collection that Spark's worker makes after each task.

    It goes through the objects of every module, 30 ms each time, and finds nothing.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stages the rows of a task in the buckets that are its own."""

    plan: WritePlan
    route: Route | None
    """None: rows come as they are, and the task adds files without looking at others."""
    snapshot: PackedSnapshot
    columns: tuple[str, ...] = ()
    """Names of the columns, by position."""
    pieces: Pieces | None = None
    """Where the rows lie, if they do not come from Spark."""

    def __call__(self, place: Place, batches: Batches) -> Report | None:
        """Give the report; None if no row came."""
        if self.pieces is not None:
            for _ in batches:  # or Spark would take this worker for a broken one, and start another
                pass
            place = replace(place, task=self.pieces.tasks[place.task])
            batches = self.pieces.read(place.task)
        else:
            batches = (b.rename_columns(self.columns) for b in batches if b.num_rows)
        first = next(batches, None)
        if first is None:
            return None
        counted = _Counted(self.plan.spec, digests=self.pieces is None)
        rows = pa.RecordBatchReader.from_batches(first.schema, counted.pass_on(first, batches))
        snapshot = self.snapshot.unpack()
        if self.route is not None:
            snapshot = _own(snapshot, self.route, place)
        status = _stage(self.plan, place, snapshot, rows)
        return Report(place.task, place.attempt, counted.rows, counted.digest, place.label, status)


@dataclass(frozen=True, slots=True)
class StageRest:
    """Stages what an operation does to buckets that no row came for; Spark's rows only count."""

    plan: WritePlan
    route: Route
    snapshot: PackedSnapshot

    def __call__(self, place: Place, batches: Batches) -> Report | None:
        """Give the report; None if no bucket is this task's."""
        for _ in batches:
            pass
        snapshot = _own(self.snapshot.unpack(), self.route, place)
        if not snapshot.files.num_rows:
            return None
        status = _stage(self.plan, place, snapshot, None)
        return Report(place.task, place.attempt, status=status)


def _own(snapshot: Snapshot, route: Route, place: Place) -> Snapshot:
    mine = route.tasks_of(snapshot.files) == place.task
    return replace(snapshot, files=snapshot.files.filter(pa.array(mine)))


def _stage(
    plan: WritePlan, place: Place, snapshot: Snapshot, rows: pa.RecordBatchReader | None
) -> WriteStatus:
    store = open_store(plan.store)
    announcer = Announcer(store, plan, place.label)
    staging = ArrowStaging(plan, announcer, task=place.staging_task(), store=store)
    try:
        if rows is not None:
            staging.write(rows)
        return staging.stage(snapshot, None)
    finally:
        staging.close()


def on_executor(
    work: Callable[[Place, Batches], Report | None],
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the function that ``mapInArrow`` runs: rows in, at most one report out.

    An error that would come again is reported, so that its facts reach the caller and Spark does
    not try four times. One of storage is raised, and Spark tries again.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        place = Place.here()
        try:
            report = work(place, batches)
        except TableError as error:
            if error.retry is Retry.SAME:
                raise StorageError(marked(error), hint="", task=place.task) from error
            report = Report(place.task, place.attempt, error=error)
        if report is not None:
            yield report.to_batch()

    return run


@dataclass(slots=True)
class _Counted:
    """Counts rows on their way, and sums up the hashes of their keys.

    Rows in files are the same each time that they are read, so there it is enough to count.
    """

    spec: TableSpec
    digests: bool
    rows: int = 0
    _sum: np.uint64 = field(default_factory=lambda: np.uint64(0))

    @property
    def digest(self) -> int:
        """The sum modulo 2**64, signed."""
        return int(self._sum.view(np.int64))

    def pass_on(self, first: pa.RecordBatch, rest: Batches) -> Batches:
        """Give every batch, counted."""
        yield self._count(first)
        for batch in rest:
            yield self._count(batch)

    def _count(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.rows += batch.num_rows
        key = self.spec.key
        if key and self.digests:
            hashes = key_hashes(typed(batch, self.spec, key), key)
            with np.errstate(over="ignore"):
                self._sum += hashes.sum(dtype=np.uint64)
        return batch
