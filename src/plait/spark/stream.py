"""Streams from Spark: the sink ``writeStream.format("plait")``, and ``foreach_batch``.

Spark numbers the batches of a checkpoint from 0, without gaps, and gives a batch with the same
number the same rows again until its own log has it. It tells a sink nothing of the source's
offsets. So the epoch is the number of the batch, and what stands for offsets is
``<query id>#<batch>``: where batch n ends, and n + 1 starts. The id is that of the checkpoint: a
query that lost its checkpoint begins at 0 again with another id, and is refused rather than taken
for a replay.

Each epoch's writer lives in several processes, as that of a batch does (``sink``). The process
that commits makes its own, which knows neither instant nor query: tasks tell it, in their messages.
Spark runs at least one, also for a batch without rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import datasource as ds

from plait.errors import InvariantError, OptionError
from plait.model.decision import Token
from plait.model.plan import StoreSpec
from plait.spark.frame import is_connect
from plait.spark.options import SourceOptions
from plait.spark.sink import Batches, Job, Message, order_of
from plait.stream.stream import check_application
from plait.table import Table

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
        OptionError: an option is not known, or does not fit the table.
        SchemaMismatchError: columns do not fit the table.
    """
    application = options.find("application")
    if application is not None:
        check_application(application)
    table = options.table()
    order = order_of(options, table, overwrite=overwrite, on_conflict="retry")
    return PlaitStreamWriter(Job.prepare(table, order, schema), application)


class PlaitStreamWriter(ds.DataSourceStreamArrowWriter):
    """One epoch of a query. Pickled to its tasks; the process that commits makes another."""

    def __init__(self, job: Job, application: str | None) -> None:
        self._job, self._application = job, application

    def write(self, iterator: Batches) -> EpochMessage:
        """Stage the rows of one task."""
        done = self._job.stage(iterator)
        return EpochMessage(done.attempt, done.run, done.status, self._job, _query_of_task())

    def commit(self, messages: list[ds.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Decide the epoch. One that was decided before gives that result, and its files go."""
        staged = [message for message in messages if isinstance(message, EpochMessage)]
        jobs = {m.job.plan.instant: m.job for m in staged if m.job is not None}
        if len(jobs) != 1:
            message = f"the tasks of batch {batchId} worked under {len(jobs)} instants"
            raise InvariantError(message)
        job = jobs.popitem()[1]
        query = staged[0].query
        application = self._application or query
        if not application:
            message = "Spark does not tell the id of this query"
            hint = "name the stream: option('application', 'orders')"
            raise OptionError(message, hint=hint, key="application", value="")
        order = replace(job.order, token=_token(application, query, batchId))
        replace(job, order=order).commit(messages)

    def abort(self, messages: list[ds.WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Roll back what tasks staged; if none ended well, the next rollback of the dead does."""
        for message in messages:
            if isinstance(message, EpochMessage) and message.job is not None:
                message.job.abort()
                return


@dataclass(frozen=True)
class ForeachBatch:
    """Writes each batch of a stream as one epoch; plain values only, so that it can be sent."""

    store: StoreSpec
    application: str
    operation: str
    on_conflict: str
    on_duplicate: str

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; one that was decided before is not even computed.

        Raises:
            StreamError: the batch does not continue what the table has of this application.
        """
        table = Table.open(self.store.uri, storage_options=dict(self.store.options) or None)
        stream = table.stream(self.application)
        with stream.writer_of(
            _token(self.application, _query_of_driver(batch, self.application), batch_id),
            self.operation,
            on_conflict=self.on_conflict,
            on_duplicate=self.on_duplicate,
        ) as writer:
            writer.write(batch)


def foreach_batch(
    table: Table,
    *,
    application: str,
    operation: str = "append",
    on_conflict: str = "retry",
    on_duplicate: str = "raise",
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

    Raises:
        OptionError: the name or the operation cannot be used.
    """
    check_application(application)
    made = ForeachBatch(table.site.store.spec, application, operation, on_conflict, on_duplicate)
    probe = Token(application, 0, "", "-")
    table.stream(application).writer_of(
        probe, operation, on_conflict=on_conflict, on_duplicate=on_duplicate
    )  # checks the arguments now, not in the first batch; it is not begun
    return made


def _token(application: str, query: str, batch: int) -> Token:
    start = "" if batch == 0 else f"{query}#{batch - 1}"
    return Token(application, batch, start, f"{query}#{batch}")


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
        message = f"Spark Connect does not tell which of {len(active)} queries this batch is of"
        hint = f"name the query as its application: .queryName({application!r})"
        raise OptionError(message, hint=hint, key="queryName", value="")
    return str(found[0].id)
