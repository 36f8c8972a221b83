"""Bring rows to their tasks through files, where all of Spark runs on one machine (RFC 0010).

Spark's shuffle takes columns apart into rows, packs them, and puts columns together again for
Python. Here they stay Arrow's columns. Each attempt of a task of the DataFrame leaves two files
under its own label: its rows as an Arrow file, ordered by the task that is to have them, and an
index of the stretches, which are the file's record batches. Each task that stages maps the files
and reads what is its own. Nobody reads those of an attempt whose report did not come.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plait.arrow.ingest import Intake, narrow
from plait.arrow.memory import MemoryLimits, taken
from plait.errors import InvariantError, OptionError, StorageError, TableError
from plait.model.request import WritePlan
from plait.spark.frame import numbered
from plait.spark.job import counting, run, speculates
from plait.spark.route import Numbers, Route
from plait.spark.session import local_cores
from plait.spark.task import Batches, StageRows, TaskSetting, named
from plait.spark.transfer import TaskReport
from plait.spark.values import is_connect
from plait.storage.scratch import explained, refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTING = "spark.plait.exchange"
"""The session's setting: ``auto``, or ``shuffle`` for Spark's own shuffle always."""
_HINT = (
    f"free space there, set spark.local.dir to a directory on a larger disk, or set {SETTING} "
    "to shuffle"
)


def goes_through_files(spark: SparkSession) -> bool:
    """Tell whether rows go through files of this machine.

    Raises:
        OptionError: the session's setting is neither ``auto`` nor ``shuffle``.
    """
    asked = str(spark.conf.get(SETTING, "auto"))
    if asked not in ("auto", "shuffle"):
        message = f"{SETTING} is {asked!r}"
        raise OptionError(message, hint="set it to auto or shuffle", key=SETTING, value=asked)
    here = local_cores(str(spark.conf.get("spark.master", ""))) is not None
    return asked == "auto" and here and not is_connect(spark) and not speculates(spark)


class Exchange:
    """The rows of one writer, divided among tasks; on the driver."""

    def __init__(
        self, frame: DataFrame, plan: WritePlan, route: Route, before: Exchange | None = None
    ) -> None:
        """Run the query, and divide what it gives.

        Args:
            frame: the query.
            plan: what is done with its rows.
            route: which task has which rows.
            before: the same rows, divided by another route: they are divided anew, without the
                query; it is closed.

        Raises:
            StorageError: the local disk is full or not there.
        """
        self._spark = frame.sparkSession
        scratch = _scratch(self._spark)
        with _disk_errors_explained(scratch):
            # Spark's other tasks may still write after one has failed, and workers may hold files.
            self._place = tempfile.TemporaryDirectory(
                prefix="plait-exchange-", dir=scratch, ignore_cleanup_errors=True
            )
        work = Split(plan, route, tuple(frame.columns), self._place.name)
        try:
            reports = run(numbered(frame), work) if before is None else before.divided_again(work)
            self._sources = tuple(report.label for report in reports)
            with _disk_errors_explained(self._place.name):
                self._rows = self._count()
        except BaseException:
            self.close()
            raise

    def stage(self, work: StageRows, only: Collection[int] | None) -> list[TaskReport]:
        """Run the tasks that have rows, of all or of these, the largest first.

        Raises:
            InvariantError: a task did not get what was divided to it.
            TableError: of ours, as a task met it.
        """
        largest = np.argsort(-self._rows, kind="stable").tolist()
        tasks = [t for t in largest if self._rows[t] and (only is None or t in only)]
        pieces = Pieces(self._place.name, self._sources, tuple(tasks))
        reports = run(counting(self._spark, len(tasks)), StagePieces(work, pieces))
        received = {report.task: report.rows for report in reports}
        for task in tasks:
            if received.get(task) != self._rows[task]:
                message = f"task {task} had {received.get(task)} rows of {self._rows[task]}"
                raise InvariantError(message)
        return reports

    def close(self) -> None:
        """Remove the files."""
        self._place.cleanup()

    def divided_again(self, work: Split) -> list[TaskReport]:
        """Divide the rows by another route, and remove the files; sources stay in their order."""
        sources = self._sources
        again = SplitAgain(work, self._place.name, sources)
        reports = run(counting(self._spark, len(sources)), again) if sources else []
        self.close()
        return reports

    def _count(self) -> Numbers:
        indexes = [np.load(files_at(self._place.name, source)[1]) for source in self._sources]
        tasks, counts = np.concatenate([np.zeros((2, 0), np.int64), *indexes], axis=1)
        rows: Numbers = np.zeros(int(tasks.max(initial=-1)) + 1, np.int64)
        np.add.at(rows, tasks, counts)
        return rows


@dataclass(frozen=True, slots=True)
class Split:
    """What a task of the DataFrame does: it divides its rows among the tasks that stage."""

    plan: WritePlan
    route: Route
    columns: tuple[str, ...]
    """Names of the columns, by position."""
    directory: str

    def __call__(self, place: TaskSetting, batches: Batches) -> TaskReport | None:
        """Write the file and its index; None if no row came."""
        filled = named(batches, self.columns)
        first = next(filled, None)
        if first is None:
            return None
        rows, index = files_at(self.directory, place.label)
        with _disk_errors_explained(self.directory):
            with pa.OSFile(str(rows), "wb") as file, pa.ipc.new_file(file, first.schema) as sink:
                stretches = list(self._write(sink, itertools.chain([first], filled)))
            tasks_and_counts = np.array(stretches, np.int64).T
            np.save(index, tasks_and_counts)
        count = int(tasks_and_counts[1].sum())
        return TaskReport(place.task, place.attempt, count, label=place.label)

    def _write(self, sink: pa.RecordBatchWriter, batches: Batches) -> Iterator[tuple[int, int]]:
        """Write all rows; give the task and the rows of each stretch."""
        intake = Intake(MemoryLimits.of(self.plan.options), self.plan.spec)
        for batch in batches:
            for came in intake.add(batch):
                yield from self._write_chunk(sink, came.rows)
        for came in intake.rest():
            yield from self._write_chunk(sink, came.rows)

    def _write_chunk(
        self, sink: pa.RecordBatchWriter, rows: pa.RecordBatch
    ) -> Iterator[tuple[int, int]]:
        tasks = self.route.tasks_of_rows(rows)
        counts = np.bincount(tasks)
        ordered = taken(rows, np.argsort(narrow(tasks, len(counts)), kind="stable"))
        at = 0
        for task in np.flatnonzero(counts).tolist():
            count = int(counts[task])
            sink.write_batch(ordered.slice(at, count))
            yield task, count
            at += count


@dataclass(frozen=True, slots=True)
class SplitAgain:
    """What a task does where rows are in files already: it divides one file anew."""

    split: Split
    directory: str
    sources: tuple[str, ...]

    def __call__(self, place: TaskSetting, batches: Batches) -> TaskReport | None:
        """Write the file and its index."""
        for _ in batches:  # or Spark would take this worker for a broken one, and start another
            pass
        rows, _ = files_at(self.directory, self.sources[place.task])
        with _disk_errors_explained(self.directory), pa.memory_map(str(rows)) as file:
            reader = pa.ipc.open_file(file)
            every = (reader.get_batch(at) for at in range(reader.num_record_batches))
            return self.split(place, every)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Where the rows of some tasks lie; goes to the tasks."""

    directory: str
    sources: tuple[str, ...]
    """Labels of the attempts that wrote files."""
    tasks: tuple[int, ...]
    """For each task of the job, the number of the task whose rows it gets."""

    def read(self, task: int) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task, in the order of the sources.

        Raises:
            StorageError: a file is gone or cannot be read.
        """
        for source in self.sources:
            rows, index = files_at(self.directory, source)
            try:
                wanted = np.flatnonzero(np.load(index)[0] == task)
                with pa.memory_map(str(rows)) as file:
                    reader = pa.ipc.open_file(file)
                    yield from (reader.get_batch(at) for at in wanted.tolist())
            except TableError:
                raise
            except (OSError, ValueError) as error:
                raise disk_error(self.directory, error) from error


@dataclass(frozen=True, slots=True)
class StagePieces:
    """What a task that stages does: it reads its rows from the files; Spark's rows only count."""

    work: StageRows
    pieces: Pieces

    def __call__(self, place: TaskSetting, batches: Batches) -> TaskReport | None:
        """Return the report; None if there are no rows."""
        for _ in batches:  # or Spark would take this worker for a broken one, and start another
            pass
        place = replace(place, task=self.pieces.tasks[place.task])
        # Rows in files are the same each time that they are read: it is enough to count them.
        return self.work.stage(place, self.pieces.read(place.task), digests=False)


def files_at(directory: str, source: str) -> tuple[Path, Path]:
    """Name the file of an attempt, and its index: a row of tasks, and a row of counts."""
    return Path(directory) / f"{source}.arrow", Path(directory) / f"{source}.npy"


def disk_error(directory: str, error: Exception) -> StorageError:
    """Say what the local disk refused, and what to do."""
    return refused(directory, error, _HINT)


def _disk_errors_explained(place: str | None) -> AbstractContextManager[None]:
    """Say of what the disk refuses where it was, and what to do."""
    return explained(place, _HINT)


def _scratch(spark: SparkSession) -> str | None:
    """Return the directory for files that Spark was told; None for the system's."""
    configured = os.environ.get("SPARK_LOCAL_DIRS") or str(spark.conf.get("spark.local.dir", ""))
    first = configured.split(",")[0]
    return first if first and Path(first).is_dir() else None
