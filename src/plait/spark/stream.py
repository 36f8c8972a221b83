"""Streams from Spark: the sink ``writeStream.format("plait")``, and ``foreach_batch``.

Spark numbers the batches of a checkpoint from 0, without gaps, and gives a batch with the same
number the same rows again until its own log has it, as long as its checkpoint is the newest. So the
epoch is the number of the batch. Its end is ``<query id>#<batch>``, where the next one starts: the
id is that of the checkpoint, so a query that lost it is refused, and not taken for a replay. What
tells a replay from other rows under an old number are the source's offsets, read from the
checkpoint (``checkpoint``), and the digest of the rows, which the tasks that stage them sum up.

Each epoch's writer lives in several processes, as that of a batch does (``sink``). The process
that commits makes its own, which knows neither instant nor query: tasks tell it, in their messages.
Spark runs at least one, also for a batch without rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import datasource as ds

from plait.errors import EpochUnknownError, InvariantError, OptionError, StreamError
from plait.model.changes import Digest
from plait.model.decision import Span, Token
from plait.model.store_address import StoreAddress
from plait.model.words import MissingColumns, OnConflict, OnDuplicate, WriteOperation
from plait.spark.checkpoint import QueryCheckpoint, name_of
from plait.spark.options import SourceOptions
from plait.spark.sink import Batches, Job, Message, request_of
from plait.spark.values import is_connect
from plait.stream.stream import check_application
from plait.table import Table, handle_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_QUERY = "sql.streaming.queryId"
"""The local property by which Spark tells tasks whose they are: the same at every restart."""


@dataclass(frozen=True)
class EpochMessage(Message):
    """What one task did, and for what: the process that commits knows neither."""

    job: Job | None = None
    query: str = ""


def begin_epoch(
    options: SourceOptions, schema: StructType, *, overwrite: bool
) -> PlaitStreamWriter:
    """Check a stream's write and choose an instant; nothing is written yet.

    Raises:
        OptionError: an option is not known, or does not fit the table, or nothing names the stream.
        SchemaMismatchError: columns do not fit the table.
    """
    application, place = _name(options), options.find("checkpointlocation")
    check_application(application)
    if (options.find("read_from") or "none").lower() != "none":
        message = "the batches of a stream do not depend on one version"
        hint = "use option('readFrom', 'none'); a foreachBatch function can read and pass read_from"
        raise OptionError(message, hint=hint, key="read_from", value=options.find("read_from"))
    table = options.table()
    request = request_of(options, table, overwrite=overwrite, on_conflict="retry")
    return PlaitStreamWriter(Job.prepare(table, request, schema, digests=True), application, place)


def _name(options: SourceOptions) -> str:
    """Return what the stream is called in the table: a name that outlives its checkpoint."""
    given = options.find("application") or options.find("queryname")
    place = options.find("checkpointlocation")
    if given is None and place is None:
        message = "this stream has no name, so a restart looks like another stream"
        hint = "set option('application', 'orders'), queryName or option('checkpointLocation', ...)"
        raise OptionError(message, hint=hint, key="application", value="")
    return given or name_of(place or "")


class PlaitStreamWriter(ds.DataSourceStreamArrowWriter):
    """One epoch of a query. Pickled to its tasks; the process that commits makes another."""

    def __init__(self, job: Job, application: str, checkpoint: str | None) -> None:
        self._job, self._application, self._checkpoint = job, application, checkpoint

    def write(self, iterator: Batches) -> EpochMessage:
        """Stage the rows of one task."""
        done = self._job.stage(iterator)
        query = _query_of_task()
        staged = done.attempt, done.run, done.status, done.digest
        return EpochMessage(*staged, job=self._job, query=query)

    def commit(self, messages: list[ds.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Decide the epoch. One that was decided before gives that result, and its files go."""
        staged = [message for message in messages if isinstance(message, EpochMessage)]
        jobs = {m.job.plan.instant: m.job for m in staged if m.job is not None}
        if len(jobs) != 1:
            raise InvariantError(f"the tasks of batch {batchId} worked under {len(jobs)} instants")
        job = jobs.popitem()[1]
        query = staged[0].query
        digest = sum((message.digest for message in staged), Digest())
        spans = _offsets(self._checkpoint, job.plan.store, query, batchId)
        token = replace(_token(self._application, query, batchId, spans), digest=digest)
        with _explained(self._application):
            replace(job, request=replace(job.request, token=token)).commit(messages)

    def abort(self, messages: list[ds.WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Roll back what tasks staged; if none ended well, the next rollback of the dead does."""
        for message in messages:
            if isinstance(message, EpochMessage) and message.job is not None:
                message.job.abort()
                return


@dataclass(frozen=True)
class ForeachBatch:
    """Writes each batch of a stream as one epoch; plain values only, so that it can be sent."""

    store: StoreAddress
    application: str
    operation: str
    on_conflict: str
    on_duplicate: str
    missing_columns: str
    checkpoint: str | None = None
    allow: tuple[str, ...] = ()
    """The places outside of the table that its caller allows."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; the rows of one that was decided before are only compared.

        Raises:
            StreamError: the batch does not continue what the table has of this application.
        """
        options = dict(self.store.options) or None
        table = Table.open(self.store.uri, storage_options=options, allow=self.allow)
        stream = table.stream(self.application)
        query = self._query(batch)
        spans = _offsets(self.checkpoint, self.store, query, batch_id)
        token = _token(self.application, query, batch_id, spans)
        with (
            _explained(self.application),
            stream.writer_of(
                token,
                self.operation,
                on_conflict=self.on_conflict,
                on_duplicate=self.on_duplicate,
                missing_columns=self.missing_columns,
            ) as writer,
        ):
            writer.write(batch)

    def _query(self, batch: DataFrame) -> str:
        if is_connect(batch) and self.checkpoint is not None:
            found = QueryCheckpoint.at(self.checkpoint, self.store).find_query()
            if found is not None:
                return found
        return _query_of_driver(batch, self.application)


def foreach_batch(  # noqa: PLR0913 - what a stream is told, by name, in one call
    table: Table,
    *,
    application: str,
    operation: WriteOperation = "append",
    on_conflict: OnConflict = "retry",
    on_duplicate: OnDuplicate = "raise",
    missing_columns: MissingColumns = "raise",
    checkpoint: str | None = None,
) -> ForeachBatch:
    """Make the function for ``writeStream.foreachBatch``: each batch is one epoch of a stream.

    The fast path: Spark brings rows to their buckets, and any operation of ``Table.writer`` that
    takes rows will do, also ``delete`` by key. Exactly once, as with ``format("plait")``.

    Args:
        table: where the rows go.
        application: the stream's name in the table; another one for each query, and a new one
            for a query with a new checkpoint.
        operation: append, insert, upsert, overwrite, or delete (rows of keys).
        on_conflict: ``retry`` to do touched buckets again, or ``raise``.
        on_duplicate: for ``insert`` of keys that are there: ``raise`` or ``skip``.
        missing_columns: for ``upsert`` of rows that lack columns: ``raise``, or ``keep`` values.
        checkpoint: the query's ``checkpointLocation``, if the source's offsets are to be kept with
            each epoch. A function for ``foreachBatch`` is not told of it.

    Raises:
        OptionError: the name or the operation cannot be used.
    """
    check_application(application)
    address = handle_of(table).store.address
    made = ForeachBatch(
        address,
        application,
        operation,
        on_conflict,
        on_duplicate,
        missing_columns,
        checkpoint,
        handle_of(table).consent.patterns,
    )
    probe = Token(application, 0, "", "-")
    table.stream(application).writer_of(
        probe,
        operation,
        on_conflict=on_conflict,
        on_duplicate=on_duplicate,
        missing_columns=missing_columns,
    )  # checks the arguments now, not in the first batch; it is not begun
    return made


def _token(application: str, query: str, batch: int, offsets: tuple[Span, ...]) -> Token:
    start = "" if batch == 0 else f"{query}#{batch - 1}"
    return Token(application, batch, start, f"{query}#{batch}", offsets)


def _offsets(
    checkpoint: str | None, table: StoreAddress, query: str, batch: int
) -> tuple[Span, ...]:
    if checkpoint is None:
        return ()
    return QueryCheckpoint.at(checkpoint, table).find_offsets(query, batch)


@contextmanager
def _explained(application: str) -> Iterator[None]:
    """Say of a batch that does not continue its stream what to do on Spark."""
    try:
        yield
    except StreamError as error:
        option = "option('application', ...), or application= of foreach_batch"
        if isinstance(error, EpochUnknownError) and error.facts["last"] is None:
            hint = (
                "nothing was written. The checkpoint has batches, but the table has none under "
                "this name. If the checkpoint was moved or the query renamed, use the old name: "
                f"{option} (tablectl stream audit lists the names). For another table use a new "
                "checkpoint; docs: how-to/streams"
            )
        else:
            hint = (
                "nothing was written. If the checkpoint was lost, rewound or replaced, restore the "
                "newest one. To write all rows again on purpose, use a new checkpoint and another "
                f"name than {application!r}: {option}; docs: how-to/streams"
            )
        raise type(error)(error.message, hint=hint, **error.facts) from error


def _query_of_task() -> str:
    context = TaskContext.get()
    return (context and context.getLocalProperty(_QUERY)) or ""


def _query_of_driver(batch: DataFrame, application: str) -> str:
    """Ask Spark whose batch this is.

    Connect does not tell, but names the queries of the session: the one that is named as the
    application is, or else the only one.

    Raises:
        OptionError: several queries run, and none or more than one has the application's name.
    """
    if not is_connect(batch):
        return batch.sparkSession.sparkContext.getLocalProperty(_QUERY) or ""
    active = batch.sparkSession.streams.active
    found = [query for query in active if query.name == application] or active
    if len(found) != 1:
        message = f"Spark Connect does not say which of {len(active)} queries this batch belongs to"
        hint = f"give the query the name of its application: .queryName({application!r})"
        raise OptionError(message, hint=hint, key="queryName", value="")
    return str(found[0].id)
