"""A database as a sink whose calls run a hook first; executors import it by its name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from plait.errors import StorageError
from plait.replicate import SinkSchema, SinkSession, SqlSink


@dataclass(frozen=True)
class Watched:
    """Notes each session and batch in a directory, and does there what it is told to do.

    A file ``fail``, ``linger`` or ``kill`` of the directory has the number of a task. The first
    attempt of it to send its third batch takes the file, and fails, stops until a file ``go``
    is there, or kills its executor.
    """

    name: str
    database: str
    directory: str
    removes: bool = True

    @property
    def plain(self) -> SqlSink:
        return SqlSink(self.name, f"sqlite:///{self.database}?timeout=120", "t")

    def open(self, schema: SinkSchema) -> WatchedSession:
        self.note("open")
        return WatchedSession(self, self.plain.open(schema))

    def note(self, what: str) -> None:
        with Path(self.directory, f"{self.name}.notes").open("a", encoding="utf-8") as notes:
            notes.write(f"{what} {attempt()}\n")

    def notes(self) -> list[list[str]]:
        """Return what happened, with the attempt: its task, and its number in all of Spark."""
        lines = Path(self.directory, f"{self.name}.notes").read_text(encoding="utf-8")
        return [line.split() for line in lines.splitlines()]


def attempt() -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return "driver driver"
    return f"{context.partitionId()} {context.taskAttemptId()}"


@dataclass
class WatchedSession:
    sink: Watched
    inner: SinkSession
    batches: int = 0

    def batch_put(self, records: pa.RecordBatch) -> None:
        self.sink.note(f"put-{records.num_rows}")
        self.batches += 1
        if self.batches == 3:
            self._trouble()
        self.inner.batch_put(records)

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        self.inner.batch_remove(keys)

    def flush(self) -> None:
        self.inner.flush()

    def held(self) -> Iterator[pa.RecordBatch]:
        return self.inner.held()

    def close(self) -> None:
        self.inner.close()

    def _trouble(self) -> None:
        place = Path(self.sink.directory)
        if self._take(place / "fail"):
            message = "the store is down"
            raise StorageError(message, path="there")
        if self._take(place / "linger"):
            self.sink.note("lingers")
            while not (place / "go").exists():
                time.sleep(0.05)
            self.sink.note("goes-on")
        if self._take(place / "kill"):
            self.sink.note("kills")
            os.kill(executor(), signal.SIGKILL)
            time.sleep(600)

    @staticmethod
    def _take(told: Path) -> bool:
        """Tell whether it is this task's turn; of two attempts one gets the file."""
        try:
            if told.read_text(encoding="utf-8") not in ("any", attempt().split()[0]):
                return False
            told.rename(told.with_suffix(".done"))
        except FileNotFoundError:
            return False
        return True


def executor() -> int:
    """Return the process of this worker's executor, the JVM above it."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() != "java":
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        pid = int(status.split("PPid:")[1].split()[0])
    return pid
