"""Files that carry rows to the tasks that stage them, on one machine (RFC 0010).

Each attempt of a source task leaves two, under its own label: its rows as an Arrow file, ordered by
the task that is to have them, and an index of the stretches, which are the file's record batches.
Nobody reads those of an attempt whose report did not come.
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
    sources: tuple[str, ...]
    """Labels of the attempts that wrote files."""
    tasks: tuple[int, ...]
    """Whose rows the first task of the job is to have, the second, and so on."""

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
            except (OSError, ValueError) as error:
                raise failed(self.directory, error) from error


def files_at(directory: str, source: str) -> tuple[Path, Path]:
    """Name the file of an attempt, and its index: a row of tasks, and a row of counts."""
    return Path(directory) / f"{source}.arrow", Path(directory) / f"{source}.npy"


def failed(directory: str, error: Exception) -> StorageError:
    """Say what the local disk refused, and what to do."""
    message = f"cannot store rows on their way to a task: {error}"
    hint = (
        f"free space in {Path(directory).parent}, set spark.local.dir to a larger disk, or set "
        f"{SETTING} to shuffle"
    )
    return StorageError(message, hint=hint, path=directory)
