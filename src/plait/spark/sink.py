"""Writes through the data source: correct whatever rows a task is given.

A data source cannot ask Spark for a distribution, so any number of tasks may meet any bucket.
Tasks therefore stage their rows as run files, which no reader ever sees; the commit, in a Python
process beside the driver, divides and merges them in bounded memory with the Arrow writer, and
names them as garbage in the decision. Rows of a table without a key are final files at once.

The writer lives in several processes one after the other: ``writer()``, a task on each executor,
``commit()`` or ``abort()``. What they share is a ``Job``: the instant and its pending records. The
first record is written by the first task that has a row, not by ``writer()``, since hours of query
may lie between the two, in which nothing of ours is alive to send a heartbeat. Tasks send them
while they run, and look whether the instant was rolled back. The base is the head that the commit
finds.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as ds

from plait.arrow.check import prepare
from plait.arrow.clauses import rows_spec
from plait.arrow.merge_into import Merging
from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Announcer
from plait.definition.evolving import with_added_columns, with_columns_of
from plait.definition.replicated_table import require_no_replicas
from plait.errors import OptionError, StorageError
from plait.files.data_file import RUN, data_path
from plait.files.data_file import Place as FilePlace
from plait.files.digest import Digester
from plait.files.writer import DataFileWriter
from plait.model.bucket import UNKEYED
from plait.model.changes import Digest, WriteStatus
from plait.model.clauses import Clauses
from plait.model.consent import Consent
from plait.model.contract import Contract
from plait.model.decision import ReadSet
from plait.model.instant import Instant, Operation
from plait.model.plan import Snapshot, TableSpec
from plait.model.request import WritePlan, WriteRequest
from plait.ports import Ports
from plait.spark.frame import arrow_schema, check_frame
from plait.spark.options import SourceOptions
from plait.spark.pulse import Pulse
from plait.spark.task import TaskSetting
from plait.storage import open_store
from plait.storage.port import Store
from plait.table import Table, handle_of
from plait.timeline import paths
from plait.timeline.pending import PendingInstant
from plait.txn.heartbeat import Watch
from plait.txn.recovery import abandon
from plait.txn.table_handle import make_handle
from plait.txn.tokens import find_result
from plait.txn.transaction import pending_record, request_instant
from plait.write.group_commit import RUN_HOME, Gathered, decide
from plait.write.request import plan_of, read_set_of, write_request

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_APPENDING = ("append", "insert", "upsert")
_PATIENCE = 10
"""A write counts as dead after so many heartbeat time-outs: between tasks nothing sends beats."""
_MODE = "spark.sql.sources.partitionOverwriteMode"
_MODE_OPTION = "partition_overwrite_mode"
_STATIC, _DYNAMIC = "static", "dynamic"
_WATCHES_MAX = 4
_WATCHES: dict[Instant, Watch] = {}
"""By instant, the last jobs of which this process ran tasks."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Message(ds.WriterCommitMessage):
    """What one task did: its run, or the status of its final files."""

    attempt: int = 0
    run: str | None = None
    status: bytes | None = None
    digest: Digest = field(default_factory=Digest)
    """Digest of its rows, if the plan asks for one."""
    dynamic: bool = False
    """Whether its session has an overwrite replace just the partitions of the rows."""


def request_of(
    options: SourceOptions, table: Table, *, overwrite: bool, on_conflict: str = "raise"
) -> WriteRequest:
    """Take what is asked of a write from its options; raise OptionError for what makes no sense."""
    operation = options.find("operation") or ("overwrite" if overwrite else "append")
    if overwrite != (operation == "overwrite") or operation not in (*_APPENDING, "overwrite"):
        message = f"operation={operation!r} does not work with this mode"
        hint = "append, insert and upsert with mode('append'); overwrite with mode('overwrite')"
        raise OptionError(message, hint=hint, key="operation", value=operation)
    return write_request(
        operation,
        handle_of(table).cache.known().table.spec,
        commit_id=options.find("commit_id"),
        on_conflict=options.find("on_conflict") or on_conflict,
        on_duplicate=options.find("on_duplicate") or "raise",
        where=options.find("where"),
        missing_columns=options.find("missing_columns") or "raise",
        evolve=options.evolve,
        read_set=_read_set(options, table),
        partitions=_partitions(options, table, overwrite=overwrite),
    )


def _partitions(options: SourceOptions, table: Table, *, overwrite: bool) -> str | None:
    """Return which partitions go, as Spark's own option and ours say it together.

    Raises:
        OptionError: there is no such mode, the two contradict, or nothing is overwritten.
    """
    partitions, mode = options.find("partitions"), options.find(_MODE_OPTION)
    if mode is None:
        return partitions
    mode = mode.lower()
    if mode not in (_STATIC, _DYNAMIC) or not overwrite:
        message = f"partitionOverwriteMode={mode!r} does not work here"
        hint = "use static or dynamic, with mode('overwrite')"
        raise OptionError(message, hint=hint, key=_MODE_OPTION, value=mode)
    if mode == _STATIC and partitions == _DYNAMIC:
        message = "partitionOverwriteMode=static contradicts partitions=dynamic"
        raise OptionError(message, hint="keep one of them", key=_MODE_OPTION, value=mode)
    # As everywhere in Spark, a table without partitions is replaced as a whole.
    divided = handle_of(table).cache.known().table.spec.layout.partition_by
    return _DYNAMIC if mode == _DYNAMIC and divided else partitions


def follows_session(options: SourceOptions, request: WriteRequest, spec: TableSpec) -> bool:
    """Tell whether the session decides which partitions of a table an overwrite replaces."""
    asked = options.find(_MODE_OPTION) is None and request.overwrite == "table"
    return asked and request.operation is Operation.OVERWRITE and bool(spec.layout.partition_by)


def _read_set(options: SourceOptions, table: Table) -> ReadSet | None:
    """Take what the rows were computed from; on a serializable table it must be said.

    Spark tells a data source nothing of the query that makes the rows.
    """
    said = options.find("read_from")
    if said is None:
        if handle_of(table).cache.known().table.isolation != "serializable":
            return None
        message = (
            "this table is serializable, so a write must name the version that its rows were "
            "computed from"
        )
        hint = (
            "option('readFrom', version) if you read the rows with option('version', version); "
            "option('readFrom', 'none') if they are not from this table"
        )
        raise OptionError(message, hint=hint, key="read_from", value="")
    if said.lower() == "none":
        return None
    if not (said.isascii() and said.isdigit()):
        message = f"readFrom={said!r} is not a version"
        hint = "use a version, such as 3, or none"
        raise OptionError(message, hint=hint, key="read_from", value=said)
    return read_set_of(handle_of(table), int(said))


@dataclass(frozen=True)
class Job:
    """One instant's work, as its tasks and the process that decides share it."""

    plan: WritePlan
    request: WriteRequest
    pending: PendingInstant
    contract: Contract
    """What it was begun under: each process of it writes under that, or not at all (INV-12)."""
    runs_spec: TableSpec
    """What the rows of the runs are like: those of the table, or fewer columns."""
    consent: Consent
    """What its caller allows."""
    by_session: bool = False
    """Whether the setting ``partitionOverwriteMode`` of the session decides what goes.

    Only tasks see the settings of a session: the processes of a data source beside the driver do
    not. So each task tells what it saw, and the commit follows that."""

    @classmethod
    def prepare(
        cls, table: Table, request: WriteRequest, schema: StructType, *, digests: bool = False
    ) -> Job:
        """Check the columns and choose the instant; nothing is written yet.

        Args:
            table: what is written.
            request: what is asked.
            schema: the columns that come.
            digests: whether tasks tell digests of their rows.

        Raises:
            SchemaMismatchError: columns do not fit the table.
            OptionError: the table's definition names sinks.
            ConsentError: the table names servers of a lock that the caller did not allow.
            UnsupportedFeatureError: the table's conflict policy is not installed here.
        """
        handle, state = handle_of(table), handle_of(table).cache.known()
        require_no_replicas(state.table, "Spark's own writer")
        handle.require_lock_consent()
        found = arrow_schema(schema)
        request = with_added_columns(request, state.table, found)
        spec = runs_spec = with_columns_of(state.table, request).spec
        if request.joins:
            runs_spec = rows_spec(request.operation, spec, found)
            Merging.bind(request.clauses or Clauses(), spec, runs_spec)
        check_frame(found, runs_spec, request.operation)
        pending = pending_record(handle, request, state)
        timeout_s = _PATIENCE * state.table.options.seconds("heartbeat.timeout")
        pending = replace(pending, process="", timeout_s=timeout_s)  # its processes come and go
        plan = plan_of(request, state.table, handle.store.address, pending.instant)
        plan = replace(plan, digests=digests)
        return cls(plan, request, pending, state.table.contract, runs_spec, handle.consent)

    def stage(self, rows: Batches) -> Message:
        """Stage the rows of one task."""
        plan, place = self.plan, TaskSetting.here()
        pulse = Pulse(plan, self._watch(), place.label)
        if place.attempt:
            pulse.look()  # before the query of a write that was ended is computed again
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return Message(place.attempt)
        store = open_store(plan.store)
        self._request(store)
        announcer = Announcer(store, plan, place.label)
        batches = pulse.between(itertools.chain([first], rows))
        reader = pa.RecordBatchReader.from_batches(first.schema, batches)
        with pulse.beating(store):
            if plan.spec.keyed:
                announcer([RUN_HOME])
                run, digest = self._write_run(store, place, reader)
                return Message(place.attempt, run=run, digest=digest)
            status = _write_files(plan, announcer, place, reader)
            digest = status.digest or Digest()
            return Message(place.attempt, status=status.to_bytes(), digest=digest)

    def commit(self, messages: Sequence[ds.WriterCommitMessage | None]) -> None:
        """Merge what the tasks staged, and publish it in one decision.

        Raises:
            ContractError: the contract changed since the write began, or allows one writer and
                another is live.
        """
        table = self._bound()
        staged = [message for message in messages if isinstance(message, Message)]
        request = self.request
        if self.by_session and any(message.dynamic for message in staged):
            request = replace(request, overwrite="partitions")
        self._request(handle_of(table).store)  # no task may have had a row
        statuses = (m.status for m in staged if m.status is not None)
        gathered = Gathered(
            self.plan.spec,
            tuple(map(WriteStatus.from_bytes, statuses)),
            tuple(message.run for message in staged if message.run is not None),
            runs_spec=self.runs_spec,
            retried=any(message.attempt for message in staged),
        )
        handle = handle_of(table)
        with _heartbeat_removed(handle.store, self.plan):
            decide(handle, request, self.plan.instant, gathered)

    def abort(self) -> None:
        """Roll back what the tasks staged; nothing to do if a commit that failed did so."""
        table = self._table()
        with _heartbeat_removed(handle_of(table).store, self.plan):
            abandon(handle_of(table), self.plan.instant, "Spark gave it up")

    def _write_run(
        self, store: Store, place: TaskSetting, rows: pa.RecordBatchReader
    ) -> tuple[str, Digest]:
        """Write the rows of a task as they come, checked and in the table's types."""
        plan, runs_spec, digester = self.plan, self.runs_spec, Digester()
        path = data_path(RUN_HOME, UNKEYED, plan.instant, f"{place.label}-0000", RUN)
        with DataFileWriter(store, FilePlace(path, RUN_HOME, UNKEYED, RUN), runs_spec) as writer:
            for batch in prepare(rows, runs_spec, plan.request.operation):
                if plan.digests:
                    digester.add(batch)
                writer.write(batch)
            writer.close()
        return path, digester.digest

    def _watch(self) -> Watch:
        """Share one watch between the tasks that a process runs one after the other."""
        instant, ports = self.plan.instant, Ports()
        if instant not in _WATCHES:
            if len(_WATCHES) == _WATCHES_MAX:
                del _WATCHES[next(iter(_WATCHES))]
            store, lock = open_store(self.plan.store), self.contract.lock
            handle = make_handle(store, ports, lock, consent=self.consent)
            _WATCHES[instant] = Watch(handle, instant, since=self.pending.v0)
        return _WATCHES[instant]

    def _request(self, store: Store) -> None:
        request_instant(store, self.pending, self.contract, lambda: handle_of(self._bound()))

    def _bound(self) -> Table:
        return Table(replace(handle_of(self._table()), contract=self.contract))

    def _table(self) -> Table:
        store, allow = self.plan.store, self.consent.patterns
        return Table.open(store.uri, storage_options=dict(store.options) or None, allow=allow)


def begin_write(options: SourceOptions, schema: StructType, *, overwrite: bool) -> PlaitWriter:
    """Check a write and choose its instant; nothing is written yet.

    Raises:
        OptionError: an option is not known, or does not fit the table.
        SchemaMismatchError: columns do not fit the table.
    """
    table = options.table()
    request = request_of(options, table, overwrite=overwrite)
    by_session = follows_session(options, request, handle_of(table).cache.known().table.spec)
    job = replace(Job.prepare(table, request, schema), by_session=by_session)
    key = job.request.commit_id
    return PlaitWriter(job, done=key is not None and find_result(handle_of(table), key) is not None)


def _session_is_dynamic() -> bool:
    """Ask, in a task, for the setting of the session that the query runs in."""
    context = TaskContext.get()
    found = context.getLocalProperty(_MODE) if context else None
    return (found or _STATIC).lower() == _DYNAMIC


class PlaitWriter(ds.DataSourceArrowWriter):
    """One write. Pickled by Spark to its tasks, and to the process that commits."""

    def __init__(self, job: Job, *, done: bool) -> None:
        self._job, self._done = job, done
        """Whether its commit id was applied before."""

    def write(self, iterator: Batches) -> Message:
        """Stage the rows of one task."""
        if self._done:
            return Message()
        return replace(self._job.stage(iterator), dynamic=_session_is_dynamic())

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


def _write_files(
    plan: WritePlan, announcer: Announcer, place: TaskSetting, rows: pa.RecordBatchReader
) -> WriteStatus:
    """Write the rows of a task to final files: without keys nothing can be in their way."""
    staging = ArrowStaging(plan, announcer, task=place.staging_task(), store=announcer.store)
    try:
        staging.write(rows)
        schema = plan.spec.schema
        return staging.stage(Snapshot(0, plan.spec, {schema.id: schema}), None)
    finally:
        staging.close()
