"""What runs on an executor: the Arrow writer, on the rows of one task.

Only the rows that a task returns to the driver name files. So it does no harm when a task runs
twice, or goes on after everybody has stopped waiting for it: what it wrote has names of its own.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from plait.arrow.engine import sum_rows
from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Announcer, Task
from plait.engine import Relay
from plait.errors import InvariantError, Retry, StorageError, TableError
from plait.files.hash import key_hashes
from plait.model.changes import Digest, WriteStatus
from plait.model.plan import Snapshot, TableSpec
from plait.model.request import WritePlan
from plait.spark.route import Route, typed
from plait.spark.transfer import PackedSnapshot, TaskReport, marked
from plait.storage import open_store

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class TaskSetting:
    """Which attempt of which task this is."""

    task: int
    attempt: int
    label: str
    """No other attempt that ever runs in this Spark application has it."""

    @classmethod
    def here(cls) -> TaskSetting:
        """Ask Spark."""
        context = TaskContext.get()
        if context is None:
            raise InvariantError("not in a Spark task")
        _keep_modules()
        number = context.partitionId()
        return cls(number, context.attemptNumber(), f"{number}-{context.taskAttemptId()}")

    def staging_task(self) -> Task:
        """Return the names and the place for temporary files of this attempt."""
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
    """How rows were routed; None if they were not: the task adds files and reads no others."""
    snapshot: PackedSnapshot
    columns: tuple[str, ...] = ()
    """Names of the columns, by position."""
    relay: Relay | None = None
    """Sends the rows to sinks first, in a dual write."""

    def __call__(self, place: TaskSetting, batches: Batches) -> TaskReport | None:
        """Return the report; None if no row came."""
        return self.stage(place, named(batches, self.columns), digests=True)

    def stage(self, place: TaskSetting, batches: Batches, *, digests: bool) -> TaskReport | None:
        """Stage the rows of a task, whose keys are summed up if ``digests`` is on."""
        first = next(batches, None)
        if first is None:
            return None
        counted = _Counted(self.plan.spec, digests=digests)
        counting = counted.pass_on(itertools.chain([first], batches))
        rows = pa.RecordBatchReader.from_batches(first.schema, counting)
        snapshot = self.snapshot.unpack()
        if self.route is not None:
            snapshot = _own(snapshot, self.route, place)
        with _staging(self.plan, place) as staging:
            if self.relay is None:
                staging.write(rows)
                status, ledger = staging.stage(snapshot, None), None
            else:
                label = place.label
                status, ledger = self.relay.stage(staging, self.plan, label, rows, snapshot)
        return TaskReport(
            place.task, place.attempt, counted.rows, counted.digest, place.label, status, ledger
        )


@dataclass(frozen=True, slots=True)
class SumRows:
    """Sums the rows of a task up, and writes nothing."""

    plan: WritePlan
    columns: tuple[str, ...]
    """Names of the columns, by position."""

    def __call__(self, place: TaskSetting, batches: Batches) -> TaskReport | None:
        """Return the report, whose status holds the digest."""
        filled = named(batches, self.columns)
        digest = sum((sum_rows(rows, self.plan) for rows in filled), Digest())
        return TaskReport(place.task, place.attempt, status=WriteStatus(digest=digest))


@dataclass(frozen=True, slots=True)
class StageRest:
    """Stages what an operation does to buckets that no row came for; Spark's rows only count."""

    plan: WritePlan
    route: Route
    snapshot: PackedSnapshot

    def __call__(self, place: TaskSetting, batches: Batches) -> TaskReport | None:
        """Return the report; None if no bucket is this task's."""
        for _ in batches:
            pass
        snapshot = _own(self.snapshot.unpack(), self.route, place)
        if not snapshot.files.num_rows:
            return None
        with _staging(self.plan, place) as staging:
            status = staging.stage(snapshot, None)
        return TaskReport(place.task, place.attempt, status=status)


def named(batches: Batches, columns: Sequence[str]) -> Batches:
    """Return the batches with rows, their columns, which came by position, named again."""
    return (batch.rename_columns(columns) for batch in batches if batch.num_rows)


def _own(snapshot: Snapshot, route: Route, place: TaskSetting) -> Snapshot:
    mine = route.tasks_of(snapshot.files) == place.task
    return replace(snapshot, files=snapshot.files.filter(pa.array(mine)))


def _staging(plan: WritePlan, place: TaskSetting) -> AbstractContextManager[ArrowStaging]:
    store = open_store(plan.store)
    announcer = Announcer(store, plan, place.label)
    return closing(ArrowStaging(plan, announcer, task=place.staging_task(), store=store))


def on_executor(
    work: Callable[[TaskSetting, Batches], TaskReport | None], secret: str
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the function that ``mapInArrow`` runs: rows in, at most one report out.

    An error that would come again is reported, so that its facts reach the caller and Spark does
    not try four times. One of storage is raised, and Spark tries again; the job's secret tells it
    from what somebody else raises.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        place = TaskSetting.here()
        try:
            report = work(place, batches)
        except TableError as error:
            if error.retry is Retry.SAME:
                raise StorageError(marked(error, secret), hint="", task=place.task) from error
            report = TaskReport(place.task, place.attempt, error=error)
        if report is not None:
            yield report.to_batch()

    return run


@dataclass(slots=True)
class _Counted:
    """Counts rows on their way, and sums up the hashes of their keys."""

    spec: TableSpec
    digests: bool
    rows: int = 0
    _sum: np.uint64 = field(default_factory=lambda: np.uint64(0))

    @property
    def digest(self) -> int:
        """The sum modulo 2**64, signed."""
        return int(self._sum.view(np.int64))

    def pass_on(self, batches: Batches) -> Batches:
        """Return every batch, counted."""
        key = self.spec.key
        for batch in batches:
            self.rows += batch.num_rows
            if key and self.digests:
                hashes = key_hashes(typed(batch, self.spec, key), key)
                with np.errstate(over="ignore"):
                    self._sum += hashes.sum(dtype=np.uint64)
            yield batch
