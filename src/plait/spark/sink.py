"""Batch writes through the data source: correct whatever rows a task is given.

A data source cannot ask Spark for a distribution, so any number of tasks may meet any bucket.
Tasks therefore stage their rows as run files, which no reader ever sees; the commit, in a Python
process beside the driver, divides and merges them in bounded memory with the Arrow writer, and
names them as garbage in the decision. Rows of a table without a key are final files at once.

The writer lives in several processes one after the other: ``writer()``, a task on each executor,
``commit()`` or ``abort()``. What they share is the instant and its pending records. The first
record is written by the first task that has a row, not by ``writer()``, since hours of query may
lie between the two, in which nothing of ours is alive to send a heartbeat. Tasks send them while
they run. The base is the head that the commit finds.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import datasource as ds

from plait.errors import OptionError, RetryableConflictError, RolledBackError, StorageError
from plait.files.data import DataFileWriter
from plait.files.data import Place as FilePlace
from plait.files.names import RUN, data_path
from plait.model.bucket import UNKEYED, BucketId, Partition
from plait.model.changes import WriteStatus
from plait.model.instant import Action, State
from plait.model.plan import Snapshot, WritePlan
from plait.ports import Ports
from plait.spark.frame import arrow_schema, check_frame
from plait.spark.options import SourceOptions
from plait.spark.staged import files_of, named, places_of, together, with_garbage
from plait.spark.task import Announcer, Place
from plait.storage import open_store
from plait.storage.port import Store
from plait.table import Table
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, load_pending, write_requested
from plait.txn.site import client
from plait.txn.transaction import AlreadyCommitted, Request, Transaction
from plait.write.check import prepare
from plait.write.found import find_result
from plait.write.order import Order
from plait.write.staging import ArrowStaging, Task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_APPENDING = ("append", "insert", "upsert")
_HOME: Partition = ()
"""Runs lie in the place of unpartitioned files: their rows may be of any partition."""
_PATIENCE = 10
"""A write counts as dead after so many heartbeat time-outs: between tasks nothing sends beats."""

Batches = Iterator[pa.RecordBatch]
Announce = Callable[[Iterable[Partition]], None]


@dataclass(frozen=True)
class Message(ds.WriterCommitMessage):
    """What one task did: its run, or the status of its final files."""

    attempt: int = 0
    run: str | None = None
    status: bytes | None = None


def begin_write(options: SourceOptions, schema: StructType, *, overwrite: bool) -> PlaitWriter:
    """Check a write and choose its instant; nothing is written yet.

    Raises:
        OptionError: an option is not known, or does not fit the table.
        SchemaMismatchError: columns do not fit the table.
    """
    table = options.table()
    site = table.site
    state = site.cache.refresh()
    order = _order(options, table, overwrite=overwrite)
    spec = state.table.spec
    check_frame(arrow_schema(schema), spec, order.operation)
    done = order.commit_id is not None and find_result(site, order.commit_id) is not None
    plan = WritePlan(
        store=site.store.spec,
        instant=site.new_instant(state),
        operation=order.operation,
        spec=spec,
        options=state.table.options,
        on_duplicate=order.on_duplicate,
        overwrite=order.overwrite,
        predicate=None if order.predicate is None else dict(order.predicate),
    )
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
    return PlaitWriter(plan, order, pending, done=done)


def _order(options: SourceOptions, table: Table, *, overwrite: bool) -> Order:
    operation = options.find("operation") or ("overwrite" if overwrite else "append")
    if overwrite != (operation == "overwrite") or operation not in (*_APPENDING, "overwrite"):
        message = f"operation={operation!r} does not go with this mode"
        hint = "append, insert and upsert with mode('append'); overwrite with mode('overwrite')"
        raise OptionError(message, hint=hint, key="operation", value=operation)
    return Order.of(
        operation,
        table.site.cache.known().table.spec,
        commit_id=options.find("commit_id"),
        on_conflict=options.find("on_conflict") or "raise",
        on_duplicate=options.find("on_duplicate") or "raise",
        where=options.find("where"),
        partitions=options.find("partitions"),
    )


class PlaitWriter(ds.DataSourceArrowWriter):
    """One write. Pickled by Spark to its tasks, and to the process that commits."""

    def __init__(
        self, plan: WritePlan, order: Order, pending: PendingInstant, *, done: bool
    ) -> None:
        self._plan, self._order, self._pending = plan, order, pending
        self._done = done
        """Its commit id was applied before."""

    def write(self, iterator: Batches) -> Message:
        """Stage the rows of one task."""
        plan, place = self._plan, Place.here()
        first = None if self._done else next((b for b in iterator if b.num_rows), None)
        if first is None:
            return Message(place.attempt)
        store = open_store(plan.store)
        write_requested(store, self._pending)
        beat = Ports().background.every(
            plan.options.seconds("heartbeat.interval"),
            lambda: store.put(paths.heartbeat(plan.instant), place.label.encode()),
        )
        announcer = Announcer(store, plan, place.label)
        rows = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], iterator))
        try:
            if plan.spec.keyed:
                announcer([_HOME])
                return Message(place.attempt, run=_write_run(plan, store, place, rows))
            return Message(place.attempt, status=_write_files(plan, announcer, place, rows))
        finally:
            beat()

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Merge what the tasks staged, and publish it in one decision."""
        if self._done:
            return
        table = self._table()
        staged = [message for message in messages if isinstance(message, Message)]
        store = table.site.store
        write_requested(store, self._pending)  # no task may have had a row
        engine = _Engine(store, staged)
        with (
            _heartbeat_removed(store, self._plan),
            table.resume(self._order, self._plan.instant, engine) as writer,
        ):
            if table.site.cache.known().table.spec != self._plan.spec:
                message = "the table's layout changed while rows were staged for it"
                hint = "run the write again"
                raise RetryableConflictError(message, hint=hint, ours=str(self._plan.instant))
            runs = [message.run for message in staged if message.run is not None]
            if runs:
                writer.write(_rows(store, runs, self._plan))

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's
        """Roll back what the tasks staged; nothing to do if a commit that failed did so."""
        table = self._table()
        request = Request(self._order.operation, Action.COMMIT)
        ended = contextlib.suppress(RolledBackError, AlreadyCommitted)
        with _heartbeat_removed(table.site.store, self._plan), ended:
            Transaction.resume(table.site, request, self._plan.instant).abort("Spark gave it up")

    def _table(self) -> Table:
        store = self._plan.store
        return Table.open(store.uri, storage_options=dict(store.options) or None)


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
    path = data_path(_HOME, UNKEYED, plan.instant, f"{place.label}-0000", RUN)
    with DataFileWriter(store, FilePlace(path, _HOME, UNKEYED, RUN), plan.spec) as writer:
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


def _rows(store: Store, runs: Iterable[str], plan: WritePlan) -> pa.RecordBatchReader:
    schema = pa.schema([field.remove_metadata() for field in plan.spec.schema.arrow])

    def batches() -> Batches:
        for run in runs:
            with store.filesystem().open_input_file(run) as file:
                for batch in pq.ParquetFile(file).iter_batches():
                    yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


@dataclass(frozen=True)
class _Engine:
    """The Arrow engine, with what the tasks have staged already."""

    store: Store
    messages: list[Message]

    @property
    def name(self) -> str:
        """Its name."""
        return "spark-source"

    def accepts(self, data: object) -> bool:
        """Tell whether these are rows of runs."""
        return isinstance(data, pa.RecordBatchReader)

    def staging(self, plan: WritePlan, announce: Announce) -> _Staging:
        """Begin."""
        return _Staging(plan, announce, self.store, self.messages)


class _Staging:
    """Stages runs through the Arrow writer, beside the final files of the tasks."""

    def __init__(
        self, plan: WritePlan, announce: Announce, store: Store, messages: list[Message]
    ) -> None:
        self._plan, self._announce, self._store, self._messages = plan, announce, store, messages
        statuses = [WriteStatus.from_bytes(m.status) for m in messages if m.status is not None]
        self._done = together(statuses, keyed=False)
        self._runs = [message.run for message in messages if message.run is not None]
        task = Task("commit", partitions=tuple(places_of(self._done)))
        self._inner = ArrowStaging(plan, announce, task=task, store=store)

    def write(self, data: object) -> None:
        """Take the rows of the runs."""
        self._inner.write(data)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Stage on a snapshot. The runs are garbage from the start."""
        staged = self._inner.stage(snapshot, buckets)
        status = together([self._done, staged], keyed=self._plan.spec.keyed)
        self._announce(places_of(status))
        return with_garbage(status, [*self._runs, *self._strays(status)])

    def close(self) -> None:
        """Drop what is held locally."""
        self._inner.close()

    def _strays(self, status: WriteStatus) -> set[str]:
        """Find what attempts left that did not bring their task to its end."""
        if not any(message.attempt for message in self._messages):
            return set()
        nonce = self._plan.instant.nonce
        pending = (p for p in load_pending(self._store) if p.instant.nonce == nonce)
        places = {place for entry in pending for place in entry.partitions}
        places |= places_of(status) | {_HOME}
        return files_of(self._store, self._plan.instant, places) - named(status.changes)
