"""Load: the rows of the base version, in tasks that a kill does not undo."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plait.errors import DuplicateKeyError, RepushRefusedError
from plait.model.plan import Snapshot
from plait.read.scan import Scan
from plait.repush.shadow import Shadow, ShadowProgress
from plait.txn.table_handle import TableHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IN_ORDER = [("partition", "ascending"), ("bucket", "ascending"), ("path", "ascending")]


@dataclass(frozen=True, slots=True)
class Load:
    """The base version of a table, cut into tasks, always alike."""

    handle: TableHandle
    snapshot: Snapshot
    tasks: tuple[pa.Table, ...]
    """Files (LIVE); at least one task, maybe without files."""
    spark: SparkSession | None = None
    """Whose executors do the work; None: this process."""

    @classmethod
    def of(
        cls, handle: TableHandle, base: int, rows_per_task: int, spark: SparkSession | None
    ) -> Load:
        """Cut a version into tasks of about so many rows; no file is divided."""
        snapshot = handle.cache.refresh().snapshot(handle.store, version=base)
        tasks = _cut(snapshot.files.sort_by(_IN_ORDER), rows_per_task)
        return cls(handle, snapshot, tuple(tasks), spark)

    def run(self, shadow: Shadow, progress: ShadowProgress) -> int:
        """Load the next task; return how many rows it had.

        Raises:
            RepushRefusedError: a key comes twice under the new layout.
            StreamError: another process loaded this task.
        """
        task = progress.task
        files = self.tasks[task]
        snapshot = replace(self.snapshot, files=files, total=None)
        scan = Scan(self.handle.store, snapshot, columns=shadow.columns)
        # Executors take no rows with the version that wrote them.
        far = None if shadow.dated else self.spark
        data = scan.to_reader() if far is None else scan.to_spark(far)
        last = task == len(self.tasks) - 1
        try:
            with shadow.load_writer(progress, task, last=last) as writer:
                writer.write(data)
        except DuplicateKeyError as error:
            if shadow.progress() != progress:
                return 0  # they are the rows of another process, which loaded this task
            raise repeated_keys(shadow) from error
        return writer.result.stats.rows_in


def repeated_keys(shadow: Shadow) -> RepushRefusedError:
    """Return the error for a layout under which keys would not be unique."""
    places = list(shadow.repush.layout.partition_by)
    names = ", ".join(places) or "no column"
    message = f"the table has rows that share a key once it is partitioned by {names}"
    hint = "cancel the repush; remove one of the rows, or keep the column in partition_by"
    return RepushRefusedError(message, hint=hint, partition_by=places)


def _cut(files: pa.Table, rows: int) -> Iterator[pa.Table]:
    ends = np.cumsum(files["rows"].to_numpy())
    number = np.maximum(0, ends - 1) // rows
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), files.num_rows]
    for low, high in itertools.pairwise(edges):
        if high > low or files.num_rows == 0:
            yield files.slice(low, high - low)
