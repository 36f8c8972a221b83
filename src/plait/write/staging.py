"""One writer's work in the Arrow engine, or one task's in a distributed one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from plait.errors import OptionError, TransactionClosedError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import WriteStats, WriteStatus
from plait.model.instant import Operation
from plait.model.plan import MOR, Snapshot, TableSpec, WritePlan
from plait.storage import open_store
from plait.storage.port import Store
from plait.write.buffer import Buffer, Ledger
from plait.write.check import prepare
from plait.write.existing import Existing
from plait.write.flusher import Flusher
from plait.write.incoming import Incoming
from plait.write.intake import Intake
from plait.write.limits import Limits
from plait.write.masks import Masks
from plait.write.matching import Matching
from plait.write.merge import Rule
from plait.write.merging import Merging
from plait.write.output import Output
from plait.write.result import Staged, changes_of, stats_of
from plait.write.rules import source_spec
from plait.write.sinks import AppendSink, LogSink
from plait.write.source import Rows, open_rows
from plait.write.spill import RunSink
from plait.write.split import Chunk, split
from plait.write.steps import Came, Steps


@dataclass(frozen=True, slots=True)
class Task:
    """Where a writer runs, among those that share its instant."""

    label: str = "0"
    """Goes into file names: ``[A-Za-z0-9-]``, another one for each attempt of each task."""
    spill_directory: str | None = None
    """Where runs are spilled; None: where the system keeps temporary files."""
    partitions: Collection[Partition] = ()
    """Partitions to overwrite beside those that rows come for."""


class ArrowStaging:
    """Buffers rows by bucket, flushes them in the background, and stages files.

    Memory stays within 1.5 times ``write.buffer.size`` whatever comes in. The same class works in
    tasks elsewhere: give each its own ``Task`` and a snapshot of the buckets that are its own,
    and send the status home with ``WriteStatus.to_bytes``.
    """

    def __init__(
        self,
        plan: WritePlan,
        announce: Callable[[Iterable[Partition]], None],
        *,
        task: Task | None = None,
        store: Store | None = None,
    ) -> None:
        """Begin; nothing is written yet.

        Args:
            plan: what to do with the rows.
            announce: called, from one thread at a time, before a file appears in a partition
                for the first time.
            task: needed where several writers share one instant.
            store: an open store; by default the plan's is opened.
        """
        self._plan = plan
        self._task = task or Task()
        self._limits = Limits.of(plan.options)
        store = store or open_store(plan.store)
        self._output = Output(store, plan, self._limits, self._task.label, announce)
        ledger = Ledger(self._limits)
        self._buffer = Buffer(self._limits, ledger)
        self._intake = Intake(self._limits)
        self._matching = Matching.of(plan)
        self._source: TableSpec | None = None
        """How the rows of a merge's source are laid out, once some came."""
        self._merging = (
            None if plan.clauses is None else Merging.bind(plan.clauses, plan.spec, None)
        )
        self._incoming, self._logs, self._appends = self._sinks()
        sink = self._appends or self._logs or self._incoming.sink
        self._flusher = Flusher(sink, ledger)
        self._staged: dict[BucketId, Staged] = {}
        self._rows_in = 0
        self._persisted: set[str] = set()
        self._settled = self._closed = False

    def write(self, data: object) -> None:
        """Take rows.

        Raises:
            OptionError: this is no kind of data that can be written.
            SchemaError: the rows do not fit the table, or the operation.
            StorageError: a flush failed.
        """
        self._require_open()
        plan = self._plan
        if self._settled:
            message = "rows came after the writer had staged its files"
            raise TransactionClosedError(message, hint="open a new writer")
        if plan.operation in (Operation.DELETE, Operation.UPDATE) and self._matching is not None:
            message = f"{plan.operation} by predicate takes no rows"
            hint = "give either keys or where" if plan.clauses is None else "use merge for rows"
            raise OptionError(message, hint=hint, key="where", value="rows")
        rows = open_rows(data)
        where = None if self._matching is None else self._matching.condition
        batches = prepare(
            rows, self._layout(rows), plan.operation, where=where, piece_bytes=self._limits.chunk
        )
        for batch in batches:
            self._rows_in += batch.num_rows
            for full in self._intake.add(batch):
                self._take(full)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Finish the files on top of a snapshot and give the status of the whole operation.

        Raises:
            DuplicateKeyError: an insert met keys that are in the table.
            CorruptMetadataError: a file of the snapshot is not what the metadata says.
            StorageError: the store failed.
        """
        self._require_open()
        if buckets is None:
            self._staged.clear()  # everything is done anew, on whatever snapshot
        existing = Existing(self._output.store, snapshot, self._plan.spec)
        if not self._settled:
            self._settle(existing)
        came = Came(self._incoming, self._logs, self._appends, frozenset(self._task.partitions))
        matches = None if self._matching is None else self._matching.on(existing)
        steps = Steps(self._output, existing, came, matches, self._budget(), self._merging)
        todo = steps.buckets()
        if buckets is not None:
            # what did nothing was in no write set, and so in no window: it is asked again
            idle = {b for b in todo if b not in self._staged or self._staged[b].empty}
            todo = sorted(buckets | idle, key=str)
        self._output.announce(partition for partition, _ in todo)
        masks = Masks(self._output)
        for bucket in todo:
            staged = steps.stage(bucket)
            masks.add(bucket[0], staged)
            self._staged[bucket] = staged
        masks.close()
        return self._status()

    def close(self) -> None:
        """Drop buffers and spilled runs; staged files stay."""
        if self._closed:
            return
        self._closed = True
        self._flusher.close()
        if self._appends is not None:
            self._appends.close()
        self._incoming.close()
        self._buffer.clear()
        self._intake.clear()

    def _sinks(self) -> tuple[Incoming, LogSink | None, AppendSink | None]:
        plan, spec = self._plan, self._plan.spec
        deletes, merges = (plan.operation is o for o in (Operation.DELETE, Operation.MERGE))
        runs = RunSink(
            spec.key,
            None if deletes or merges else spec.ordering,
            self._limits,
            self._task.spill_directory,
            Rule.ONCE if merges else Rule.REPLACE,
        )
        incoming = Incoming(runs)
        if not spec.keyed:
            target = plan.options.size("file.size.target")
            return incoming, None, AppendSink(self._output, target)
        if spec.table_type == MOR and not (deletes or merges):
            return incoming, LogSink(self._output), None
        return incoming, None, None

    def _layout(self, rows: Rows) -> TableSpec:
        """Give the layout of rows that come in; a merge's clauses are bound to the first."""
        plan = self._plan
        if plan.operation is not Operation.MERGE or plan.clauses is None:
            return plan.spec
        if self._source is None:
            source = source_spec(plan.spec, rows.schema)
            self._merging = Merging.bind(plan.clauses, plan.spec, source)
            self._source = source
        return self._source

    def _take(self, rows: pa.RecordBatch) -> None:
        chunk = split(rows, self._source or self._plan.spec)
        if self._plan.operation is Operation.DELETE:
            chunk = Chunk(chunk.rows.select(self._plan.spec.key), chunk.spans)
        self._flusher.submit(self._buffer.add(chunk))

    def _settle(self, existing: Existing) -> None:
        """Flush everything; afterwards rows are in files, in runs, or few enough to merge."""
        self._settled = True
        for rows in self._intake.rest():
            self._take(rows)
        if self._logs is None and self._appends is None:
            self._flusher.wait()
            self._incoming.settle(self._buffer)
            return
        if self._logs is not None:
            self._flusher.wait()
            groups = self._buffer.policy.sizes
            replaces = self._plan.operation is Operation.OVERWRITE and self._matching is None
            self._logs.empty = set(groups) if replaces else existing.without_files(groups)
        self._flusher.finish(self._buffer.rest())
        if self._appends is not None:
            self._appends.finish()

    def _budget(self) -> int:
        """Give the bytes that a round of merging may give at a time."""
        return max(self._limits.round, min(self._buffer.ledger.room // 4, self._limits.buffer // 8))

    def _status(self) -> WriteStatus:
        changes = changes_of(self._staged, self._output.written)
        flushes = self._buffer.policy.flushes
        stats = stats_of(self._staged, changes, WriteStats(rows_in=self._rows_in, flushes=flushes))
        fresh = [path for path in dict.fromkeys(changes.named()) if path not in self._persisted]
        if fresh:
            self._output.store.persist(fresh)
            self._persisted.update(fresh)
        return WriteStatus(changes, stats)

    def _require_open(self) -> None:
        if self._closed:
            message = "the writer is closed"
            raise TransactionClosedError(message, hint="open a new one for each commit")
