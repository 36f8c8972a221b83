"""One decision over what other writers have staged: tasks of a job, or writers of a stream.

A writer that owns its buckets, or adds rows without a key, stages final files. A writer that may
share a bucket with others stages its rows as run files on the table's store; no reader ever sees
them. This module divides and merges the runs in bounded memory with the Arrow writer, repeats that
after a conflict, and names the runs as garbage in the decision.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from plait.arrow.check import input_schema
from plait.arrow.engine import sum_rows
from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Task
from plait.definition.evolving import with_columns_of
from plait.definition.replicated_table import require_no_replicas
from plait.engine import Engine, ForwardingStaging
from plait.errors import RetryableConflictError
from plait.files.data_file import REMOVALS, parse_path, reading
from plait.files.reader import staged_batches
from plait.model.bucket import BucketId, Partition
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import CommitResult
from plait.model.instant import Instant, Operation
from plait.model.plan import Snapshot, TableSpec
from plait.model.request import WritePlan, WriteRequest
from plait.model.schema import Schema
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
    """What the table was when it was staged."""
    statuses: tuple[WriteStatus, ...] = ()
    """Final files."""
    runs: tuple[str, ...] = ()
    """Files of rows that are to be merged, and of keys that are to be removed, oldest first."""
    foreign: tuple[str, ...] = ()
    """Runs of other instants: theirs to delete."""
    spent: tuple[str, ...] = ()
    """Other files of the instant, which nobody needs once it is decided."""
    runs_spec: TableSpec | None = None
    """What the rows of the runs are like, if not as those of the table."""
    retried: bool = False
    """Whether attempts failed that may have left files which nobody names."""

    def require_usable(self, spec: TableSpec, ours: Instant, *, adds_columns: bool) -> None:
        """Refuse another layout of the table, unless all that was staged are rows to be merged.

        Rows lie in runs as they came, and so can be divided under any layout. Final files cannot.
        Where keys are removed among rows, runs have been merged by the ordering of their time.
        Final files whose rows bring columns along name the schema that was foreseen for them.

        Raises:
            RetryableConflictError: run the write again.
        """
        before = self.spec
        same = spec.schema.same_columns(before.schema)
        final = any(not status.changes.nothing for status in self.statuses)
        foreseen = not (final and adds_columns) or spec.schema.id == before.schema.id
        if same and foreseen and replace(spec, schema=before.schema) == before:
            return
        merged = any(map(_removes, (*self.foreign, *self.runs)))
        now, then = spec.layout, before.layout
        asked_anew = (now.partition_by, now.ordering) != (then.partition_by, then.ordering)
        if final or self.runs_spec not in (None, before) or (merged and asked_anew):
            raise _layout_changed(ours)
        if not same:
            raise _layout_changed(ours)

    def arrivals(self, store: Store) -> Iterator[tuple[bool, pa.RecordBatchReader]]:
        """Read what all runs hold, oldest first; the flag tells removals from rows."""
        runs = itertools.groupby((*self.foreign, *self.runs), _removes)
        for removes, paths in runs:
            spec = removals_spec(self.spec) if removes else self.runs_spec or self.spec
            schema = pa.schema([field.remove_metadata() for field in spec.schema.arrow])
            batches = _read(store, tuple(paths), schema)
            yield removes, pa.RecordBatchReader.from_batches(schema, batches)


def _layout_changed(ours: Instant) -> RetryableConflictError:
    message = "the table's layout changed while rows were staged for it"
    return RetryableConflictError(message, hint="run the write again", ours=str(ours))


def _removes(path: str) -> bool:
    name = parse_path(path)
    return name is not None and name.kind == REMOVALS


def _read(store: Store, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        for batch in staged_batches(store, path):
            with reading(path):
                fitted = batch.cast(schema)
            yield fitted


def removals_spec(spec: TableSpec) -> TableSpec:
    """Return the spec of removals: the columns of the key and of the partitions."""
    schema = input_schema(spec, Operation.DELETE, spec.schema.names)
    layout = replace(spec.layout, ordering=None)
    return replace(spec, schema=Schema(spec.schema.id, schema), layout=layout)


def decide(
    handle: TableHandle,
    request: WriteRequest,
    instant: Instant,
    gathered: Gathered,
) -> CommitResult:
    """Merge what was staged, and publish it in one decision.

    Raises:
        RetryableConflictError: the table's layout changed since, and final files were staged;
            what was staged is rolled back.
        CommitError, StreamError: as a writer.
        OptionError: the table's definition names sinks.
    """
    require_no_replicas(handle.cache.known().table, "what others have staged")
    engine = _Engine(handle.store, gathered)
    with Writer(handle, request, default=engine, instant=instant) as writer:
        table = with_columns_of(handle.cache.known().table, request)
        gathered.require_usable(table.spec, instant, adds_columns=bool(request.added_columns))
        for removes, reader in gathered.arrivals(handle.store):
            if removes:
                writer.remove(reader)
            else:
                writer.write(reader)
    return writer.result


@dataclass(frozen=True)
class _Engine(Engine):
    """The Arrow engine, with what is staged already."""

    store: Store
    gathered: Gathered

    @property
    def name(self) -> str:
        return _Staging.engine

    def accepts(self, data: object) -> bool:
        return isinstance(data, pa.RecordBatchReader)

    def opened(self, data: pa.RecordBatchReader) -> tuple[object, pa.Schema]:
        return data, data.schema

    def staging(self, plan: WritePlan, announce: Announce) -> _Staging:
        return _Staging(plan, announce, self.store, self.gathered)

    def digest(self, data: object, plan: WritePlan) -> Digest:
        return sum_rows(data, plan)


class _Staging(ForwardingStaging):
    """Stages runs through the Arrow writer, beside the final files."""

    engine = "gather"

    def __init__(
        self, plan: WritePlan, announce: Announce, store: Store, gathered: Gathered
    ) -> None:
        self._plan, self._announce, self._store = plan, announce, store
        self._gathered = gathered
        self._done = combine_tasks(gathered.statuses, keyed=plan.spec.keyed)
        task = Task("commit", partitions=tuple(places_of(self._done)))
        super().__init__(ArrowStaging(plan, announce, task=task, store=store))

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Stage on a snapshot. The runs are garbage from the start."""
        staged = super().stage(snapshot, buckets)
        status = combine_tasks([self._done, staged], keyed=self._plan.spec.keyed)
        self._announce(places_of(status))
        garbage = [*self._gathered.runs, *self._gathered.spent, *self._strays(status)]
        return with_garbage(status, garbage)

    def restaged(self, plan: WritePlan) -> _Staging:
        """Stage the rows of the runs again under another layout of the table; close this one.

        Raises:
            RetryableConflictError: final files were staged, or removals would mean something else.
        """
        adds_columns = bool(plan.request.added_columns)
        self._gathered.require_usable(plan.spec, plan.instant, adds_columns=adds_columns)
        fresh = _Staging(plan, self._announce, self._store, self._gathered)
        fresh._inner.close()
        fresh._inner = self._inner.restaged(plan)
        return fresh

    @property
    def wrote(self) -> bool:
        """The final files and the runs are on the store."""
        return True

    def keys_asked(self) -> None:
        """Return None: the keys of the final files are not known here."""

    def _strays(self, status: WriteStatus) -> set[str]:
        """Find what attempts left that did not bring their task to its end."""
        if not self._gathered.retried:
            return set()
        instant = self._plan.instant
        places = announced_places(self._store, instant) | places_of(status) | {RUN_HOME}
        return files_of(self._store, instant, places).difference(status.changes.named())
