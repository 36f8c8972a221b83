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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.errors import OptionError
from plait.model.plan import WritePlan
from plait.spark.frame import is_connect, numbered
from plait.spark.job import run, speculates
from plait.spark.pieces import SETTING, Pieces, failed, places_of
from plait.spark.report import Report
from plait.spark.route import Route
from plait.spark.task import Batches, Place
from plait.write.blocks import taken
from plait.write.intake import Intake
from plait.write.limits import Limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOCAL = "local"

Numbers = npt.NDArray[np.int64]


def goes_through_files(spark: SparkSession) -> bool:
    """Tell whether rows go through files of this machine.

    Raises:
        OptionError: the session's setting is neither ``auto`` nor ``shuffle``.
    """
    asked = str(spark.conf.get(SETTING, "auto"))
    if asked not in ("auto", "shuffle"):
        message = f"{SETTING} is {asked!r}"
        raise OptionError(message, hint="set it to auto or shuffle", key=SETTING, value=asked)
    master = str(spark.conf.get("spark.master", ""))
    here = master == _LOCAL or master.startswith(f"{_LOCAL}[")
    return asked == "auto" and here and not is_connect(spark) and not speculates(spark)


class Exchange:
    """The rows of one writer, divided among tasks; on the driver."""

    def __init__(self, place: tempfile.TemporaryDirectory[str], sources: Sequence[int]) -> None:
        """Know what lies in a directory, which goes with it."""
        self._place = place
        self._sources = tuple(sources)
        indexes = [np.load(places_of(place.name, source)[1]) for source in sources]
        found = np.concatenate([np.zeros((2, 0), np.int64), *indexes], axis=1)
        self._rows = np.bincount(found[0], found[1])

    @classmethod
    def fill(cls, frame: DataFrame, plan: WritePlan, route: Route) -> Exchange:
        """Run the query, and divide what it gives.

        Raises:
            StorageError: the local disk is full or not there.
        """
        place = tempfile.TemporaryDirectory(prefix="plait-", dir=_scratch(frame.sparkSession))
        work = Split(plan, route, tuple(frame.columns), place.name)
        try:
            return cls(place, [report.task for report in run(numbered(frame), work)])
        except BaseException:
            place.cleanup()
            raise

    def pieces(self, only: Collection[int] | None) -> Pieces:
        """Give the tasks that have rows, of all or of these, the largest first."""
        largest = np.argsort(-self._rows, kind="stable").tolist()
        tasks = [t for t in largest if self._rows[t] and (only is None or t in only)]
        return Pieces(self._place.name, self._sources, tuple(tasks))

    def close(self) -> None:
        """Remove the files."""
        self._place.cleanup()


@dataclass(frozen=True, slots=True)
class Split:
    """What a task of the DataFrame does: it divides its rows among the tasks that stage."""

    plan: WritePlan
    route: Route
    columns: tuple[str, ...]
    """Names of the columns, by position."""
    directory: str

    def __call__(self, place: Place, batches: Batches) -> Report | None:
        """Write the file and its index; None if no row came."""
        batches = (b.rename_columns(self.columns) for b in batches if b.num_rows)
        first = next(batches, None)
        if first is None:
            return None
        rows, index = places_of(self.directory, place.task)
        part = rows.with_name(f"{place.label}.part")
        try:
            with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, first.schema) as sink:
                found = np.array(list(self._write(sink, first, batches)), np.int64).T
            np.save(index, found)
            part.replace(rows)
        except OSError as error:
            raise failed(self.directory, error) from error
        return Report(place.task, place.attempt, int(found[1].sum()))

    def _write(
        self, sink: pa.RecordBatchWriter, first: pa.RecordBatch, rest: Batches
    ) -> Iterator[tuple[int, int]]:
        """Write all rows; give the task and the rows of each stretch."""
        intake = Intake(Limits.of(self.plan.options))
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
        # By radix, as numpy does it up to 16 bits.
        small = tasks.astype(np.uint16) if len(counts) <= 1 << 16 else tasks
        ordered = taken(rows, np.argsort(small, kind="stable"))
        at = 0
        for task in np.flatnonzero(counts).tolist():
            count = int(counts[task])
            sink.write_batch(ordered.slice(at, count))
            yield task, count
            at += count


def _scratch(spark: SparkSession) -> str | None:
    """Give the directory for files that Spark was told; None for the system's."""
    told = os.environ.get("SPARK_LOCAL_DIRS") or str(spark.conf.get("spark.local.dir", ""))
    first = told.split(",")[0]
    return first if first and Path(first).is_dir() else None
