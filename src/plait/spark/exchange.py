"""Bring rows to their tasks through files, where all of Spark runs on one machine (RFC 0010).

Spark's shuffle takes columns apart into rows, packs them, and puts columns together again for
Python. Here they stay Arrow's columns: each task of the DataFrame orders its rows by the task that
is to have them, and writes one file with an index beside it; each task that stages maps the files
and reads what is its own.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plait.arrow.ingest import Intake, narrow
from plait.arrow.memory import MemoryLimits, taken
from plait.errors import InvariantError, OptionError
from plait.model.request import WritePlan
from plait.spark.frame import is_connect, numbered
from plait.spark.job import counting, run, speculates
from plait.spark.master import local_cores
from plait.spark.report import TaskReport
from plait.spark.route import Numbers, Route
from plait.spark.shuffle_files import SETTING, Pieces, failed, files_at
from plait.spark.task import Batches, StageRows, TaskSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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

    def __init__(self, frame: DataFrame, plan: WritePlan, route: Route) -> None:
        """Run the query, and divide what it gives.

        Raises:
            StorageError: the local disk is full or not there.
        """
        self._spark = frame.sparkSession
        scratch = _scratch(self._spark)
        with _told(scratch):
            # Spark's other tasks may still write after one has failed, and workers may hold files.
            self._place = tempfile.TemporaryDirectory(
                prefix="plait-exchange-", dir=scratch, ignore_cleanup_errors=True
            )
        work = Split(plan, route, tuple(frame.columns), self._place.name)
        try:
            self._sources = tuple(report.label for report in run(numbered(frame), work))
            with _told(self._place.name):
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
        reports = run(counting(self._spark, len(tasks)), replace(work, pieces=pieces))
        received = {report.task: report.rows for report in reports}
        for task in tasks:
            if received.get(task) != self._rows[task]:
                message = f"task {task} had {received.get(task)} rows of {self._rows[task]}"
                raise InvariantError(message)
        return reports

    def close(self) -> None:
        """Remove the files."""
        self._place.cleanup()

    def _count(self) -> Numbers:
        indexes = [np.load(files_at(self._place.name, source)[1]) for source in self._sources]
        found = np.concatenate([np.zeros((2, 0), np.int64), *indexes], axis=1)
        rows: Numbers = np.zeros(int(found[0].max(initial=-1)) + 1, np.int64)
        np.add.at(rows, found[0], found[1])
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
        named = (b.rename_columns(self.columns) for b in batches if b.num_rows)
        first = next(named, None)
        if first is None:
            return None
        rows, index = files_at(self.directory, place.label)
        with _told(self.directory):
            with pa.OSFile(str(rows), "wb") as file, pa.ipc.new_file(file, first.schema) as sink:
                found = np.array(list(self._write(sink, first, named)), np.int64).T
            np.save(index, found)
        return TaskReport(place.task, place.attempt, int(found[1].sum()), label=place.label)

    def _write(
        self, sink: pa.RecordBatchWriter, first: pa.RecordBatch, rest: Batches
    ) -> Iterator[tuple[int, int]]:
        """Write all rows; give the task and the rows of each stretch."""
        intake = Intake(MemoryLimits.of(self.plan.options))
        for batch in itertools.chain([first], rest):
            for rows in intake.add(batch):
                yield from self._write_chunk(sink, rows)
        for rows in intake.rest():
            yield from self._write_chunk(sink, rows)

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


@contextmanager
def _told(place: str | None) -> Iterator[None]:
    """Say of what the disk refuses where it was, and what to do."""
    try:
        yield
    except OSError as error:
        raise failed(str(place or tempfile.gettempdir()), error) from error


def _scratch(spark: SparkSession) -> str | None:
    """Return the directory for files that Spark was told; None for the system's."""
    told = os.environ.get("SPARK_LOCAL_DIRS") or str(spark.conf.get("spark.local.dir", ""))
    first = told.split(",")[0]
    return first if first and Path(first).is_dir() else None
