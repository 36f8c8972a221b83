"""Writes through the data source: correct whatever rows a task is given.

A data source cannot ask Spark for a distribution, so any number of tasks may meet any bucket.
Tasks therefore stage their rows as run files, which no reader ever sees; the commit, in a Python
process beside the driver, divides and merges them in bounded memory with the Arrow writer, and
names them as garbage in the decision. Rows of a table without a key are final files at once.

The writer lives in several processes one after the other: ``writer()``, a task on each executor,
``commit()`` or ``abort()``. What they share is a ``Job``: the instant and its pending records. The
first record is written by the first task that has a row, not by ``writer()``, since hours of query
may lie between the two, in which nothing of ours is alive to send a heartbeat. Tasks send them
while they run. The base is the head that the commit finds.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource as ds

from plait.errors import OptionError, RolledBackError, StorageError
from plait.files.data import DataFileWriter
from plait.files.data import Place as FilePlace
from plait.files.names import RUN, data_path
from plait.model.bucket import UNKEYED
from plait.model.changes import WriteStatus
from plait.model.instant import Action, State
from plait.model.plan import Snapshot, WritePlan
from plait.ports import Ports
from plait.services.upkeep import after_commit
from plait.spark.frame import arrow_schema, check_frame
from plait.spark.options import SourceOptions
from plait.spark.task import Place
from plait.storage import open_store
from plait.storage.port import Store
from plait.table import Table
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, write_requested
from plait.txn.site import client
from plait.txn.transaction import AlreadyCommitted, Request, Transaction
from plait.write.announce import Announcer
from plait.write.check import prepare
from plait.write.found import find_result
from plait.write.gather import RUN_HOME, Gathered, decide
from plait.write.order import Order, plan_of
from plait.write.staging import ArrowStaging

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_APPENDING = ("append", "insert", "upsert")
_PATIENCE = 10
"""A write counts as dead after so many heartbeat time-outs: between tasks nothing sends beats."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Message(ds.WriterCommitMessage):
    """What one task did: its run, or the status of its final files."""

    attempt: int = 0
    run: str | None = None
    status: bytes | None = None


def order_of(
    options: SourceOptions, table: Table, *, overwrite: bool, on_conflict: str = "raise"
) -> Order:
    """Take what is asked of a write from its options; raise OptionError for what makes no sense."""
    operation = options.find("operation") or ("overwrite" if overwrite else "append")
    if overwrite != (operation == "overwrite") or operation not in (*_APPENDING, "overwrite"):
        message = f"operation={operation!r} does not go with this mode"
        hint = "append, insert and upsert with mode('append'); overwrite with mode('overwrite')"
        raise OptionError(message, hint=hint, key="operation", value=operation)
    return Order.of(
        operation,
        table.site.cache.known().table.spec,
        commit_id=options.find("commit_id"),
        on_conflict=options.find("on_conflict") or on_conflict,
        on_duplicate=options.find("on_duplicate") or "raise",
        where=options.find("where"),
        partitions=options.find("partitions"),
    )


@dataclass(frozen=True)
class Job:
    """One instant's work, as its tasks and the process that decides share it."""

    plan: WritePlan
    order: Order
    pending: PendingInstant

    @classmethod
    def prepare(cls, table: Table, order: Order, schema: StructType) -> Job:
        """Check the columns and choose the instant; nothing is written yet.

        Raises:
            SchemaMismatchError: columns do not fit the table.
        """
        site = table.site
        state = site.cache.known()
        check_frame(arrow_schema(schema), state.table.spec, order.operation)
        plan = plan_of(order, state.table, site.store.spec, site.new_instant(state))
        pending = PendingInstant(
            plan.instant,
            State.REQUESTED,
            order.operation,
            state.version,
            (),
            host=str(client()["host"]),
            pid=int(str(client()["pid"])),
            started_ms=site.store.now_ms(),
            timeout_s=_PATIENCE * plan.options.seconds("heartbeat.timeout"),
        )
        return cls(plan, order, pending)

    def stage(self, rows: Batches) -> Message:
        """Stage the rows of one task."""
        plan, place = self.plan, Place.here()
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return Message(place.attempt)
        store = open_store(plan.store)
        write_requested(store, self.pending)
        beat = Ports().background.every(
            plan.options.seconds("heartbeat.interval"),
            lambda: store.put(paths.heartbeat(plan.instant), place.label.encode()),
        )
        announcer = Announcer(store, plan, place.label)
        reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], rows))
        try:
            if plan.spec.keyed:
                announcer([RUN_HOME])
                return Message(place.attempt, run=_write_run(plan, store, place, reader))
            return Message(place.attempt, status=_write_files(plan, announcer, place, reader))
        finally:
            beat()

    def commit(self, messages: Sequence[ds.WriterCommitMessage | None]) -> None:
        """Merge what the tasks staged, and publish it in one decision."""
        table = self._table()
        staged = [message for message in messages if isinstance(message, Message)]
        write_requested(table.site.store, self.pending)  # no task may have had a row
        statuses = (m.status for m in staged if m.status is not None)
        gathered = Gathered(
            self.plan.spec,
            tuple(map(WriteStatus.from_bytes, statuses)),
            tuple(message.run for message in staged if message.run is not None),
            retried=any(message.attempt for message in staged),
        )
        site = table.site
        with _heartbeat_removed(site.store, self.plan):
            decide(site, self.order, self.plan.instant, gathered, after=lambda: after_commit(site))

    def abort(self) -> None:
        """Roll back what the tasks staged; nothing to do if a commit that failed did so."""
        table = self._table()
        request = Request(self.order.operation, Action.COMMIT)
        ended = contextlib.suppress(RolledBackError, AlreadyCommitted)
        with _heartbeat_removed(table.site.store, self.plan), ended:
            Transaction.resume(table.site, request, self.plan.instant).abort("Spark gave it up")

    def _table(self) -> Table:
        store = self.plan.store
        return Table.open(store.uri, storage_options=dict(store.options) or None)


def begin_write(options: SourceOptions, schema: StructType, *, overwrite: bool) -> PlaitWriter:
    """Check a write and choose its instant; nothing is written yet.

    Raises:
        OptionError: an option is not known, or does not fit the table.
        SchemaMismatchError: columns do not fit the table.
    """
    table = options.table()
    order = order_of(options, table, overwrite=overwrite)
    job = Job.prepare(table, order, schema)
    done = order.commit_id is not None and find_result(table.site, order.commit_id) is not None
    return PlaitWriter(job, done=done)


class PlaitWriter(ds.DataSourceArrowWriter):
    """One write. Pickled by Spark to its tasks, and to the process that commits."""

    def __init__(self, job: Job, *, done: bool) -> None:
        self._job = job
        self._done = done
        """Its commit id was applied before."""

    def write(self, iterator: Batches) -> Message:
        """Stage the rows of one task."""
        return Message() if self._done else self._job.stage(iterator)

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Merge what the tasks staged, and publish it in one decision."""
        if not self._done:
            self._job.commit(messages)

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's
        """Roll back what the tasks staged."""
        self._job.abort()


@contextlib.contextmanager
def _heartbeat_removed(store: Store, plan: WritePlan) -> Iterator[None]:
    """Remove what the tasks' heartbeat left, however the write ends."""
    try:
        yield
    finally:
        with contextlib.suppress(StorageError):
            store.delete([paths.heartbeat(plan.instant)])


def _write_run(plan: WritePlan, store: Store, place: Place, rows: pa.RecordBatchReader) -> str:
    """Write the rows of a task as they come, checked and in the table's types."""
    path = data_path(RUN_HOME, UNKEYED, plan.instant, f"{place.label}-0000", RUN)
    with DataFileWriter(store, FilePlace(path, RUN_HOME, UNKEYED, RUN), plan.spec) as writer:
        for batch in prepare(rows, plan.spec, plan.operation):
            writer.write(batch)
        writer.close()
    return path


def _write_files(
    plan: WritePlan, announcer: Announcer, place: Place, rows: pa.RecordBatchReader
) -> bytes:
    """Write the rows of a task to final files: without keys nothing can be in their way."""
    staging = ArrowStaging(plan, announcer, task=place.staging_task(), store=announcer.store)
    try:
        staging.write(rows)
        schema = plan.spec.schema
        return staging.stage(Snapshot(0, plan.spec, {schema.id: schema}), None).to_bytes()
    finally:
        staging.close()
