"""Batch writes through the data source: correct whatever rows a task is given.

A data source cannot ask Spark for a distribution, so that any number of tasks may meet any
bucket. Tasks therefore stage their rows as run files, which no reader ever sees; the commit, in
Spark's Python process on the driver, merges them bucket by bucket in bounded memory, and names
them as garbage in the decision. Rows for a table without keys are final files at once.

The writer lives in several processes one after the other. What they share is the pending record;
tasks and the commit keep its heartbeat.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import datasource as ds

from plait.errors import OptionError, RolledBackError
from plait.expr import parse_where, to_json
from plait.files.data import DataFileWriter, Place
from plait.files.names import RUN, data_path
from plait.model.bucket import UNKEYED, BucketId, Partition, partition_parse
from plait.model.changes import PATHS, WriteStatus
from plait.model.instant import Action
from plait.model.plan import Snapshot, WritePlan
from plait.ports import Ports
from plait.spark.tasks import announcer, task_label
from plait.storage import open_store
from plait.storage.port import Store
from plait.table import Table
from plait.timeline import paths
from plait.txn.transaction import Request, Transaction
from plait.write.check import prepare
from plait.write.engine import ArrowEngine
from plait.write.staging import ArrowStaging, Task
from plait.write.writer import Order

_OPERATIONS = ("append", "insert", "upsert", "overwrite")
_HOME: Partition = ()
"""Runs lie in the place of unpartitioned files: their rows may be of any partition."""


@dataclass(frozen=True)
class Message(ds.WriterCommitMessage):
    """What one task did: its runs, or the status of its final files."""

    runs: tuple[str, ...]
    status: bytes | None


def begin_write(table: Table, options: Mapping[str, str], *, overwrite: bool) -> PlaitWriter:
    """Write the pending record of a write, and leave the rest to tasks and commit.

    Raises:
        OptionError: an option is unknown, or does not fit the table.
    """
    order = _order(table, options, overwrite=overwrite)
    site = table.site
    request = Request(order.operation, Action.COMMIT, commit_id=order.commit_id)
    instant = Transaction.begin(site, request).detach()
    state = site.cache.known()
    plan = WritePlan(
        store=site.store.spec,
        instant=instant,
        operation=order.operation,
        spec=state.table.spec,
        options=state.table.options,
        on_duplicate=order.on_duplicate,
        overwrite=order.overwrite,
        predicate=None if order.predicate is None else dict(order.predicate),
    )
    return PlaitWriter(plan, order)


def _order(table: Table, options: Mapping[str, str], *, overwrite: bool) -> Order:
    given = {key.lower(): value for key, value in options.items()}
    operation = given.get("operation", "overwrite" if overwrite else "append")
    if operation not in _OPERATIONS or (overwrite and operation != "overwrite"):
        message = f"operation={operation!r} cannot be done by this write"
        hint = "append, insert or upsert with mode('append'); overwrite with mode('overwrite')"
        raise OptionError(message, hint=hint, key="operation", value=operation)
    where = given.get("replacewhere")
    dynamic = given.get("partitionoverwritemode", "static").lower() == "dynamic"
    schema = table.schema
    return Order.of(
        operation,
        table.site.cache.known().table.spec,
        commit_id=given.get("commit_id"),
        on_conflict=given.get("on_conflict", "raise"),
        on_duplicate=given.get("on_duplicate", "raise"),
        predicate=None if where is None else to_json(parse_where(where, schema)),
        partitions="dynamic" if dynamic else None,
    )


class PlaitWriter(ds.DataSourceArrowWriter):
    """One write. Pickled by Spark to its tasks, and to the process that commits."""

    def __init__(self, plan: WritePlan, order: Order) -> None:
        self._plan = plan
        self._order = order

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Stage the rows of one task."""
        plan = self._plan
        store = open_store(plan.store)
        label = task_label()
        announce = announcer(store, plan.instant, label)
        beat = Ports().background.every(
            plan.options.seconds("heartbeat.interval"),
            lambda: store.put(paths.heartbeat(plan.instant), label.encode()),
        )
        try:
            if plan.spec.keyed:
                return Message(_write_runs(plan, store, announce, (label, iterator)), None)
            return Message((), _write_files(plan, store, announce, (label, iterator)))
        finally:
            beat()

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Merge what the tasks staged, and publish it in one decision."""
        table = Table.open(self._plan.store.uri, storage_options=dict(self._plan.store.options))
        staged = [message for message in messages if isinstance(message, Message)]
        engine = _RunEngine(table.site.store, staged)
        with table.resume(self._order, self._plan.instant, engine) as writer:
            runs = [run for message in staged for run in message.runs]
            if runs:
                writer.write(_rows(table.site.store, runs, self._plan))

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Roll back what the tasks staged, unless a commit that failed did so already."""
        table = Table.open(self._plan.store.uri, storage_options=dict(self._plan.store.options))
        request = Request(self._order.operation, Action.COMMIT)
        with contextlib.suppress(RolledBackError):
            txn = Transaction.resume(table.site, request, self._plan.instant)
            txn.abort("Spark aborted the write")


_Rows = tuple[str, Iterator[pa.RecordBatch]]
_Announce = Callable[[Iterable[Partition]], None]


def _write_runs(plan: WritePlan, store: Store, announce: _Announce, rows: _Rows) -> tuple[str, ...]:
    """Write the rows of a task to one run, checked and in the table's types."""
    label, batches = rows
    path = data_path(_HOME, UNKEYED, plan.instant, f"{label}-0000", RUN)
    writer: DataFileWriter | None = None
    for batch in batches:
        for checked in prepare(batch, plan.spec, plan.operation):
            if writer is None:
                announce([_HOME])
                writer = DataFileWriter(store, Place(path, _HOME, UNKEYED, RUN), plan.spec)
            writer.write(checked)
    if writer is None:
        return ()
    writer.close()
    return (path,)


def _write_files(plan: WritePlan, store: Store, announce: _Announce, rows: _Rows) -> bytes:
    """Write the rows of a task to final files: nothing in the table can be in their way."""
    label, batches = rows
    staging = ArrowStaging(plan, announce, task=Task(label=label), store=store)
    try:
        for batch in batches:
            staging.write(batch)
        blank = Snapshot(0, plan.spec, {plan.spec.schema.id: plan.spec.schema})
        return staging.stage(blank, None).to_bytes()
    finally:
        staging.close()


def _rows(store: Store, runs: list[str], plan: WritePlan) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for run in runs:
            with store.filesystem().open_input_file(run) as file:
                yield from pq.ParquetFile(file).iter_batches()

    schema = pa.schema([field.remove_metadata() for field in plan.spec.schema.arrow])
    plain = (pa.record_batch(batch.columns, schema=schema) for batch in batches())
    return pa.RecordBatchReader.from_batches(schema, plain)


class _RunEngine(ArrowEngine):
    """The Arrow engine, with what the tasks staged already."""

    def __init__(self, store: Store, staged: list[Message]) -> None:
        super().__init__(store=store)
        self._opened, self._messages = store, staged

    def staging(self, plan: WritePlan, announce: _Announce) -> _RunStaging:
        """Begin; files of tasks come first."""
        statuses = [WriteStatus.from_bytes(m.status) for m in self._messages if m.status]
        done = WriteStatus.concat(statuses)
        runs = [run for message in self._messages for run in message.runs]
        return _RunStaging(plan, announce, self._opened, done, runs)


class _RunStaging:
    """Adds final files and runs of the tasks to what is staged at commit."""

    def __init__(
        self,
        plan: WritePlan,
        announce: _Announce,
        store: Store,
        done: WriteStatus,
        runs: list[str],
    ) -> None:
        texts = sorted(set(done.changes.added["partition"].to_pylist()))
        task = Task(label="commit", partitions=[partition_parse(text) for text in texts])
        self._inner = ArrowStaging(plan, announce, task=task, store=store)
        self._done, self._runs = done, runs

    def write(self, data: object) -> None:
        """Take rows."""
        self._inner.write(data)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Stage on a snapshot; the runs are garbage from the start."""
        status = WriteStatus.concat([self._done, self._inner.stage(snapshot, buckets)])
        garbage = pa.table([pa.array(self._runs, pa.string())], schema=PATHS)
        changes = replace(
            status.changes, garbage=pa.concat_tables([status.changes.garbage, garbage])
        )
        return WriteStatus(changes, status.stats)

    def close(self) -> None:
        """Drop what is held locally."""
        self._inner.close()
