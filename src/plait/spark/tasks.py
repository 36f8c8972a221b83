"""What runs on the executors: the same staging as in plain Python, one a task.

Everything here is handed over frozen and pickled by Spark; what comes back is one row a task:
the status as Arrow streams, or the error as JSON, so that its facts survive the way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

import plait.errors
from plait.errors import StorageError, TableError
from plait.model.bucket import Partition
from plait.model.changes import WriteStatus
from plait.model.instant import Instant
from plait.model.plan import Snapshot, WritePlan
from plait.storage import open_store
from plait.storage.port import Store
from plait.timeline.pending import write_inflight
from plait.write.staging import ArrowStaging, Task

STATUS = "status binary, error string"
_SCHEMA = pa.schema([("status", pa.binary()), ("error", pa.string())])

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Stage:
    """One distributed round of a writer."""

    plan: WritePlan
    snapshot: Snapshot
    label: str
    """Names the round; with the task and its attempt it makes file names unique."""
    dropped: tuple[str, ...] = ()
    """Columns that only routed the rows."""

    def run(self, batches: Batches) -> Batches:
        """Stage the rows of one task; give its status or error."""
        try:
            status = self._stage(batches)
        except StorageError:
            raise  # another attempt may succeed
        except TableError as error:
            yield _row(None, json.dumps(error.to_dict()))
        else:
            yield _row(status.to_bytes(), None)

    def _stage(self, batches: Batches) -> WriteStatus:
        label = f"{self.label}{task_label()}"
        store = open_store(self.plan.store)
        announce = announcer(store, self.plan.instant, label)
        staging = ArrowStaging(self.plan, announce, task=Task(label=label), store=store)
        try:
            for batch in batches:
                staging.write(batch.drop_columns(list(self.dropped)) if self.dropped else batch)
            return staging.stage(self.snapshot, None)
        finally:
            staging.close()


def task_label() -> str:
    """Name this attempt of this task, unlike any other of the job."""
    context = TaskContext.get()
    if context is None:
        return "t0"
    return f"t{context.partitionId()}a{context.taskAttemptId()}"


def announcer(store: Store, instant: Instant, label: str) -> Callable[[Iterable[Partition]], None]:
    """Give a function that writes an inflight record before files appear in new partitions."""
    announced: set[Partition] = set()

    def announce(partitions: Iterable[Partition]) -> None:
        fresh = [p for p in dict.fromkeys(partitions) if p not in announced]
        if not fresh:
            return
        announced.update(fresh)
        attempt = f"{label}-{len(announced)}"
        write_inflight(store, instant, fresh, attempt=attempt)

    return announce


def _row(status: bytes | None, error: str | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array([status], pa.binary()), pa.array([error])], schema=_SCHEMA)


def collected(rows: Iterable[tuple[bytes | None, str | None]]) -> WriteStatus:
    """Put the statuses of all tasks together; raise the first error that one reported."""
    statuses = []
    for status, error in rows:
        if error is not None:
            raise rebuilt(json.loads(error))
        statuses.append(WriteStatus.from_bytes(bytes(status or b"")))
    return WriteStatus.concat(statuses)


def rebuilt(document: dict[str, object]) -> TableError:
    """Make the error again that a task reported."""
    kind = getattr(plait.errors, str(document["type"]), TableError)
    facts = document["facts"]
    if not (isinstance(kind, type) and issubclass(kind, TableError) and isinstance(facts, dict)):
        kind, facts = TableError, {}
    return kind(str(document["message"]), hint=str(document["hint"]), **facts)
