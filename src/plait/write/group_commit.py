"""One decision over what other writers have staged: tasks of a job, or writers of a stream.

A writer that owns its buckets, or adds rows without a key, stages final files. A writer that may
share a bucket with others stages its rows as run files on the table's store; no reader ever sees
them. This module divides and merges the runs in bounded memory with the Arrow writer, repeats that
after a conflict, and names the runs as garbage in the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from plait.arrow.engine import ArrowStaging, Task, sum_rows
from plait.errors import RetryableConflictError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import CommitResult
from plait.model.instant import Instant
from plait.model.plan import Snapshot, TableSpec
from plait.model.request import WritePlan, WriteRequest
from plait.storage.port import Store
from plait.txn.table_handle import TableHandle
from plait.write.combine import announced_places, combine_tasks, files_of, places_of, with_garbage
from plait.write.writer import Writer

RUN_HOME: Partition = ()
"""Runs lie in the place of unpartitioned files: their rows may be of any partition."""

Announce = Callable[[Iterable[Partition]], None]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was staged elsewhere for one instant."""

    spec: TableSpec
    """The layout that it was staged for."""
    statuses: tuple[WriteStatus, ...] = ()
    """Final files."""
    runs: tuple[str, ...] = ()
    """Files of rows that are to be merged."""
    foreign: tuple[str, ...] = ()
    """Runs of other instants: theirs to delete."""
    layout: TableSpec | None = None
    """How the rows of the runs are laid out, if not as the table."""
    retried: bool = False
    """Whether attempts failed that may have left files which nobody names."""

    def rows(self, store: Store) -> pa.RecordBatchReader:
        """Read the rows of all runs."""
        fields = (self.layout or self.spec).schema.arrow
        schema = pa.schema([field.remove_metadata() for field in fields])

        def batches() -> Iterator[pa.RecordBatch]:
            for run in (*self.foreign, *self.runs):
                with store.filesystem().open_input_file(run) as file:
                    for batch in pq.ParquetFile(file).iter_batches():
                        yield batch.cast(schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


def decide(
    handle: TableHandle,
    request: WriteRequest,
    instant: Instant,
    gathered: Gathered,
) -> CommitResult:
    """Merge what was staged, and publish it in one decision.

    Raises:
        RetryableConflictError: the table's layout changed since; what was staged is rolled back.
        CommitError, StreamError: as a writer.
    """
    engine = _Engine(handle.store, gathered)
    with Writer(handle, request, default=engine, instant=instant) as writer:
        if handle.cache.known().table.spec != gathered.spec:
            message = "the table's layout changed while rows were staged for it"
            hint = "run the write again"
            raise RetryableConflictError(message, hint=hint, ours=str(instant))
        if gathered.runs or gathered.foreign:
            writer.write(gathered.rows(handle.store))
    return writer.result


@dataclass(frozen=True)
class _Engine:
    """The Arrow engine, with what is staged already."""

    store: Store
    gathered: Gathered

    @property
    def name(self) -> str:
        return "gather"

    def accepts(self, data: object) -> bool:
        return isinstance(data, pa.RecordBatchReader)

    def staging(self, plan: WritePlan, announce: Announce) -> _Staging:
        return _Staging(plan, announce, self.store, self.gathered)

    def digest(self, data: object, plan: WritePlan) -> Digest:
        return sum_rows(data, plan)


class _Staging:
    """Stages runs through the Arrow writer, beside the final files."""

    def __init__(
        self, plan: WritePlan, announce: Announce, store: Store, gathered: Gathered
    ) -> None:
        self._plan, self._announce, self._store = plan, announce, store
        self._gathered = gathered
        self._done = combine_tasks(gathered.statuses, keyed=plan.spec.keyed)
        task = Task("commit", partitions=tuple(places_of(self._done)))
        self._inner = ArrowStaging(plan, announce, task=task, store=store)

    def write(self, data: object) -> None:
        """Take the rows of the runs."""
        self._inner.write(data)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Stage on a snapshot. The runs are garbage from the start."""
        staged = self._inner.stage(snapshot, buckets)
        status = combine_tasks([self._done, staged], keyed=self._plan.spec.keyed)
        self._announce(places_of(status))
        return with_garbage(status, [*self._gathered.runs, *self._strays(status)])

    def reach(self) -> frozenset[Partition] | None:
        """Return the partitions in which files are looked at; None: any."""
        return self._inner.reach()

    def close(self) -> None:
        """Drop what is held locally."""
        self._inner.close()

    def _strays(self, status: WriteStatus) -> set[str]:
        """Find what attempts left that did not bring their task to its end."""
        if not self._gathered.retried:
            return set()
        instant = self._plan.instant
        places = announced_places(self._store, instant) | places_of(status) | {RUN_HOME}
        return files_of(self._store, instant, places).difference(status.changes.named())
