"""Files that carry rows to the tasks that stage them, on one machine (RFC 0010).

Each source task leaves two: its rows as an Arrow file, ordered by the task that is to have them,
and an index of the stretches, which are the record batches of that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait.errors import StorageError

SETTING = "spark.plait.exchange"
"""The session's setting: ``auto``, or ``shuffle`` for Spark's own shuffle always."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Where the rows of some tasks lie; goes to the tasks."""

    directory: str
    sources: tuple[int, ...]
    """The tasks that wrote a file."""
    tasks: tuple[int, ...]
    """Whose rows the first task of the job is to have, the second, and so on."""

    def read(self, task: int) -> Iterator[pa.RecordBatch]:
        """Give the rows of a task.

        Raises:
            StorageError: a file is gone or cannot be read.
        """
        for source in self.sources:
            rows, index = places_of(self.directory, source)
            try:
                wanted = np.flatnonzero(np.load(index)[0] == task)
                with pa.memory_map(str(rows)) as file:
                    reader = pa.ipc.open_file(file)
                    yield from (reader.get_batch(at) for at in wanted.tolist())
            except OSError as error:
                raise failed(self.directory, error) from error


def places_of(directory: str, source: int) -> tuple[Path, Path]:
    """Name the file that a task writes, and its index: a row of tasks, and a row of counts."""
    return Path(directory) / f"{source}.arrow", Path(directory) / f"{source}.npy"


def failed(directory: str, error: OSError) -> StorageError:
    """Say what the local disk refused, and what to do."""
    message = f"cannot keep rows on their way to a task: {error}"
    hint = f"make room in {directory}, point spark.local.dir at a larger disk, or set {SETTING}"
    return StorageError(message, hint=f"{hint} to shuffle", path=directory)
