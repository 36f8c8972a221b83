"""Signs of life of a task that Spark runs for the data source, and what it hears by them.

Nothing else of ours is alive while a query runs. So tasks send the heartbeat of the write while
they have rows, and look whether its instant was rolled back: then the task must end, although Spark
may read no error while it feeds rows to the process.
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from plait.errors import TableError
from plait.model.request import WritePlan
from plait.ports import Ports
from plait.storage.port import Store
from plait.timeline import paths
from plait.txn.heartbeat import Watch

_HOLD_S = 1.0
"""Seconds that a task takes no rows before it raises, and that its process may live after it.
While a process takes rows, Spark goes on with the query and reads no error, and after an error
Spark's worker takes rows and drops them. Full buffers make it read; the end of the process does."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Pulse:
    """Signs of life of one task, which hears by them that its instant was rolled back."""

    plan: WritePlan
    watch: Watch
    label: str

    @contextlib.contextmanager
    def beating(self, store: Store) -> Iterator[None]:
        """Beat while a task works.

        Where the write is older than an interval, look at once: a short task has no beat.
        """
        interval_s, instant = self.plan.options.seconds("heartbeat.interval"), self.plan.instant

        def beat() -> None:
            store.put(paths.heartbeat(instant), self.label.encode())
            self.watch.look()

        # Clocks that disagree make it look too often, or only with the beats.
        if Ports().clock.now_ms() - instant.time_ms >= interval_s * 1000:
            self.look()
        stop = Ports().background.every(interval_s, beat)
        try:
            yield
        finally:
            stop()

    def look(self) -> None:
        """Look for the rollback, and raise RolledBackError; the commit looks again in any case."""
        with contextlib.suppress(TableError):
            self.watch.look()
        self.check()

    def between(self, batches: Batches) -> Batches:
        """Pass rows on until the beat has come upon the rollback; raise RolledBackError."""
        for batch in batches:
            self.check()
            yield batch

    def check(self) -> None:
        """Raise RolledBackError if somebody looked, and found the rollback."""
        ports = Ports()
        ports.background.tend()
        error = self.watch.find_error()
        if error is not None:
            ports.clock.sleep(_HOLD_S)
            _end_process_soon(error)
            raise error


def _end_process_soon(error: TableError) -> None:
    """End this worker process if Spark, which ends it when it reads the error, does not.

    Spark fails the task then. Its error has the text that the process leaves where Spark looks for
    the last words of one that crashed, if the session asks for them.
    """

    def end() -> None:
        if home := os.environ.get("PYTHON_FAULTHANDLER_DIR"):
            words = "".join(traceback.format_exception_only(error))
            Path(home, str(os.getpid())).write_text(words, encoding="utf-8")
        os._exit(1)

    last = threading.Timer(_HOLD_S, end)
    last.daemon = True
    last.start()
