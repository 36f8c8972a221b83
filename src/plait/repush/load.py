"""Load: the rows of the base version, in tasks that a kill does not undo."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from plait.errors import DuplicateKeyError, RepushRefusedError
from plait.model.plan import Snapshot
from plait.read.scan import Scan
from plait.repush.shadow import Progress, Shadow
from plait.txn.table_handle import TableHandle

_IN_ORDER = [("partition", "ascending"), ("bucket", "ascending"), ("path", "ascending")]


@dataclass(frozen=True, slots=True)
class Load:
    """The base version of a table, cut into tasks, always alike."""

    handle: TableHandle
    snapshot: Snapshot
    tasks: tuple[pa.Table, ...]
    """Files (LIVE); at least one task, maybe without files."""

    @classmethod
    def of(cls, handle: TableHandle, base: int, rows_per_task: int) -> Load:
        """Cut a version into tasks of about so many rows; no file is divided."""
        snapshot = handle.cache.refresh().snapshot(handle.store, version=base)
        return cls(handle, snapshot, tuple(_cut(snapshot.files.sort_by(_IN_ORDER), rows_per_task)))

    def run(self, shadow: Shadow, progress: Progress) -> int:
        """Load the next task; return how many rows it had.

        Raises:
            RepushRefusedError: a key comes twice under the new layout.
            StreamError: another process loaded this task.
        """
        task = progress.task
        files = self.tasks[task]
        scan = Scan(self.handle.store, replace(self.snapshot, files=files, total=None))
        rows, last = 0, task == len(self.tasks) - 1
        try:
            with shadow.load_writer(progress, task, last=last) as writer:
                for batch in scan.to_reader():
                    writer.write(batch)
                    rows += batch.num_rows
        except DuplicateKeyError as error:
            raise repeated_keys(shadow) from error
        return rows


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
