"""One writer's work in the Arrow engine, or one task's in a distributed one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from plait.arrow.bucket_operations import BucketOperations, StagedInput, rule_within
from plait.arrow.buffer import Buffer, Flusher, Ledger
from plait.arrow.check import prepare, prepare_removals, require_removals
from plait.arrow.clauses import check_again, rows_spec
from plait.arrow.existing import Existing, Masks, Matching
from plait.arrow.ingest import (
    Arrival,
    Chunk,
    Group,
    Intake,
    Rows,
    open_rows,
    partition_codes,
    split,
)
from plait.arrow.memory import MemoryLimits
from plait.arrow.merge_into import Merging
from plait.arrow.output import Output, Staged, changes_of, stats_of
from plait.arrow.restage import removes_in_partitions, replayed, require_restageable
from plait.arrow.runs import Incoming, RunSink
from plait.arrow.sinks import AppendSink, LogSink
from plait.arrow.task import Task
from plait.arrow.unique_keys import WITH_ROWS, UniqueKeyOperations
from plait.engine import Staging
from plait.errors import OptionError, TransactionClosedError
from plait.files.digest import Digester
from plait.files.hash import Hashes, key_hashes, sorted_once
from plait.model.bucket import BucketId, Partition
from plait.model.changes import WriteStats, WriteStatus
from plait.model.instant import Operation
from plait.model.plan import MOR, Snapshot, TableSpec
from plait.model.request import WritePlan
from plait.model.schema import without_written
from plait.storage import open_store
from plait.storage.port import Store

_ASKED_MAX: Final = 1 << 17
"""Number of keys beyond which the index is not used: nearly every partition has some of them."""
_TO_OWN_PLACE: Final = (Operation.INSERT, Operation.UPSERT, Operation.DELETE)
"""Operations whose rows go only into the partitions that they name; others compute them, or replace
whole ones."""


class ArrowStaging(Staging):
    """Buffers rows by bucket, flushes them in the background, and stages files.

    Memory stays within 1.5 times ``write.buffer.size`` whatever comes in. The same class works in
    tasks elsewhere: give each its own ``Task`` and a snapshot of the buckets that are its own,
    and send the status home with ``WriteStatus.to_bytes``.
    """

    engine = "arrow"

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
                for the first time; with no partition, from any thread, before each batch and each
                bucket. It raises if the instant was ended meanwhile.
            task: needed where several writers share one instant.
            store: an open store; by default the plan's is opened.
        """
        self._plan = plan
        self._announce = announce
        self._task = task or Task()
        self._limits = MemoryLimits.of(plan.options)
        store = store or open_store(plan.store)
        place = self._task.spill_directory
        self._output = Output(store, plan, self._limits, self._task.label, announce, place)
        self._unique_in_table = plan.spec.unique_in_table and plan.request.operation in WITH_ROWS
        ledger = Ledger(self._limits)
        self._buffer = Buffer(self._limits, ledger)
        self._intake = Intake(self._limits, plan.spec)
        self._matching = Matching.of(plan)
        self._source: TableSpec | None = None
        """The spec of the rows of a merge's source, once some came."""
        clauses = plan.request.clauses
        self._merging = None if clauses is None else Merging.bind(clauses, plan.spec, None)
        self._incoming, self._logs, self._appends = self._sinks()
        sink = self._appends or self._logs or self._incoming.sink
        self._flusher = Flusher(sink, ledger)
        self._staged: dict[BucketId, Staged] = {}
        self._everywhere: dict[int, Staged] = {}
        """What keys without a partition were looked for, by bucket number; no files."""
        self._rows_in = 0
        self._reached: set[Partition | None] = set()
        """The partitions of the rows; None: of keys that are looked for in every one."""
        keyed = plan.spec.unique_in_table and plan.request.operation in _TO_OWN_PLACE
        self._hashes: list[Hashes] | None = [] if keyed else None
        """Hashes of the keys that came, if the record index is used; None if there are too many."""
        self._digester = Digester() if plan.digests else None
        self._persisted: set[str] = set()
        self._existing: Existing | None = None
        """Reads the snapshot on which it staged last."""
        self._useless: frozenset[str] = frozenset()
        """Files that were staged under an older layout."""
        self._settled = self._closed = False

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self._rows_in

    def write(self, data: object) -> None:
        """Take rows.

        Raises:
            OptionError: this is no kind of data that can be written.
            SchemaError: the rows do not fit the table, or the operation.
            StorageError: a flush failed.
        """
        self._require_taking()
        plan = self._plan
        operation, clauses = plan.request.operation, plan.request.clauses
        if operation in (Operation.DELETE, Operation.UPDATE) and self._matching is not None:
            message = f"{operation} by predicate does not take rows"
            hint = "pass either keys or where" if clauses is None else "use merge for rows"
            raise OptionError(message, hint=hint, key="where", value="rows")
        rows = open_rows(data)
        where = None if self._matching is None else self._matching.condition
        self._admit(
            prepare(
                rows, self._spec_of(rows), operation, where=where, piece_bytes=self._limits.chunk
            )
        )

    def remove(self, keys: object) -> None:
        """Take keys to remove, with every row of theirs that came before.

        Raises:
            OptionError: the operation takes no removals, or this is no kind of data.
            SchemaError: the keys do not fit the table.
            StorageError: a flush failed.
        """
        self._require_taking()
        require_removals(self._plan.request)
        batches = prepare_removals(keys, self._plan.spec, piece_bytes=self._limits.chunk)
        self._admit(batches, removes=True)

    def _admit(self, batches: Iterator[pa.RecordBatch], *, removes: bool = False) -> None:
        with_row_version = self._plan.request.with_row_version
        for batch in batches:
            self._output.check_alive()
            self._rows_in += batch.num_rows
            if self._digester is not None:
                self._digester.add(
                    without_written(batch) if with_row_version else batch, removes=removes
                )
            for came in self._intake.add(batch, removes=removes):
                self._take(came)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Finish the files on top of a snapshot and return the status of the whole operation.

        Raises:
            DuplicateKeyError: an insert met keys that are in the table.
            CorruptMetadataError: a file of the snapshot is not what the metadata says.
            StorageError: the store failed.
        """
        self._require_open()
        if buckets is None:
            self._everywhere.clear()
            self._staged.clear()  # everything is done anew, on whatever snapshot
        existing = Existing(
            self._output.store, snapshot, self._plan.spec, self._output.limits.group
        )
        self._existing = existing
        if not self._settled:
            self._settle(existing)
        staged_input = self._input()
        matches = None if self._matching is None else self._matching.on(existing)
        given = self._output, existing, staged_input, matches, self._budget(), self._merging
        masks = Masks(self._output)
        if self._unique_in_table:
            self._stage_numbers(UniqueKeyOperations(*given), buckets, masks)
        else:
            self._stage_buckets(BucketOperations(*given), buckets, masks)
        masks.close()
        return self._status()

    def _stage_buckets(
        self, steps: BucketOperations, buckets: frozenset[BucketId] | None, masks: Masks
    ) -> None:
        todo = steps.buckets()
        if buckets is not None:
            # what did nothing was in no write set, and so in no window: it is asked again
            idle = {b for b in todo if b not in self._staged or self._staged[b].empty}
            todo = sorted(buckets | idle, key=str)
        quiet = self._quiet(steps.existing, todo)
        self._output.announce(bucket[0] for bucket in todo if bucket not in quiet)
        for bucket in todo:
            self._output.check_alive()
            staged = steps.stage(bucket)
            masks.add(bucket[0], staged)
            self._staged[bucket] = staged
        self._everywhere = dict(steps.everywhere(self._staged))

    def _stage_numbers(
        self, steps: UniqueKeyOperations, buckets: frozenset[BucketId] | None, masks: Masks
    ) -> None:
        """Stage whole bucket numbers: a key may have come into any partition meanwhile."""
        todo = steps.numbers()
        if buckets is not None:
            busy = {number for (_, number), each in self._staged.items() if not each.empty}
            idle = {number for number in todo if number not in busy}
            # also where nothing is to be done any more: what was staged there is stale
            todo = sorted({number for _, number in buckets} | idle)
        for number in todo:
            self._output.check_alive()
            staged, self._everywhere[number] = steps.stage(number)
            for bucket in [each for each in self._staged if each[1] == number]:
                del self._staged[bucket]
            for bucket, work in staged.items():
                masks.add(bucket[0], work)
            self._staged.update(staged)

    def restaged(self, plan: WritePlan) -> ArrowStaging:
        """Return a staging of the same rows under another layout of the table; close this one.

        Raises:
            RetryableConflictError: the operation would mean something else there.
        """
        self._require_open()
        old, came = self._existing, self._input()
        deletes = self._plan.request.operation is Operation.DELETE
        require_restageable(
            self._plan, plan, removes=lambda: removes_in_partitions(came, deletes=deletes)
        )
        task = replace(self._task, label=f"{self._task.label}r")
        fresh = ArrowStaging(plan, self._announce, task=task, store=self._output.store)
        fresh._useless = self._useless | self._output.written
        fresh._digester, digester = None, self._digester
        if old is not None:
            for rows, removes in replayed(came, old, self._plan, plan):
                (fresh.remove if removes and not deletes else fresh.write)(rows)
        fresh._digester, fresh._rows_in = digester, self._rows_in
        self.close()
        return fresh

    def _input(self) -> StagedInput:
        partitions = frozenset((*self._task.partitions, *self._reached)) - {None}
        return StagedInput(self._incoming, self._logs, self._appends, partitions)

    def reach(self) -> frozenset[Partition] | None:
        """Return the partitions in which files are looked at, once all rows came; None: any."""
        request = self._plan.request
        by_source = self._merging is not None and self._merging.by_source.rules
        replaces = request.operation is Operation.OVERWRITE and request.overwrite == "table"
        for came in self._intake.rest():
            self._take(came)
        if self._matching is not None or by_source or replaces or None in self._reached:
            return None
        reached = (partition for partition in self._reached if partition is not None)
        return frozenset((*reached, *self._task.partitions))

    @property
    def wrote(self) -> bool:
        """Whether a file of this writer may be on the store."""
        return self._output.named or bool(self._useless)

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
        deletes = plan.request.operation is Operation.DELETE
        merges = plan.request.operation is Operation.MERGE
        rule = rule_within(plan)
        runs = RunSink(
            spec.key,
            None if deletes or merges else spec.layout.ordering,
            self._limits,
            self._task.spill_directory,
            rule,
        )
        incoming = Incoming(runs)
        if not spec.keyed:
            target = plan.options.size("file.size.target")
            return incoming, None, AppendSink(self._output, target)
        if spec.layout.table_type == MOR and not (
            deletes or plan.request.joins or self._unique_in_table
        ):
            return incoming, LogSink(self._output, rule, runs), None
        return incoming, None, None

    def _spec_of(self, rows: Rows) -> TableSpec:
        """Return the spec of rows that come in; clauses are bound to the first."""
        plan = self._plan
        if plan.request.with_row_version:
            return plan.spec.with_row_version()
        if plan.request.clauses is None or not plan.request.joins:
            return plan.spec
        if self._source is None:
            source = rows_spec(plan.request.operation, plan.spec, rows.schema)
            self._merging = Merging.bind(plan.request.clauses, plan.spec, source)
            self._source = source
        check_again(self._source, rows.schema.names)
        return self._source

    def _take(self, came: Arrival) -> None:
        chunk = split(came.rows, self._source or self._plan.spec)
        if came.removes or self._plan.request.operation is Operation.DELETE:
            keys = chunk.rows.select(self._plan.spec.key)
            chunk = Chunk(keys, chunk.spans, came.removes)
        if self._unique_in_table or self._hashes is not None:
            self._note(came)
        self._reached.update(partition for partition, _ in chunk.spans)
        self._flusher.submit(self._buffer.add(chunk))

    def _note(self, came: Arrival) -> None:
        """Note the keys that came, while they are few, and the partitions of their rows."""
        spec = self._plan.spec
        if self._unique_in_table and not came.removes:
            self._reached.update(partition_codes(came.rows, spec)[0])
        if self._hashes is not None:
            self._hashes.append(key_hashes(came.rows, spec.key))
            if sum(map(len, self._hashes)) > _ASKED_MAX:
                self._hashes = None

    def keys_asked(self) -> tuple[Hashes, frozenset[Partition]] | None:
        """Return the hashes of the keys that came, and the partitions that may get their rows."""
        self.reach()
        if not self._hashes:
            return None
        reached = frozenset(each for each in self._reached if each is not None)
        return sorted_once(np.concatenate(self._hashes)), reached

    def _settle(self, existing: Existing) -> None:
        """Flush everything; afterwards rows are in files, in runs, or few enough to merge."""
        self._settled = True
        for came in self._intake.rest():
            self._take(came)
        if self._logs is None and self._appends is None:
            self._flusher.wait()
            self._incoming.settle(self._buffer)
            return
        if self._logs is not None:
            self._flusher.wait()
            groups = self._buffer.policy.sizes
            operation = self._plan.request.operation
            replaces = operation is Operation.OVERWRITE and self._matching is None
            self._logs.empty = set(groups) if replaces else existing.without_files(groups)
        self._flusher.finish(self._buffer.rest())
        if self._appends is not None:
            self._appends.finish()

    def _budget(self) -> int:
        """Return the bytes that a round of merging may give at a time."""
        return max(self._limits.round, min(self._buffer.ledger.room // 4, self._limits.buffer // 8))

    def _quiet(self, existing: Existing, todo: Collection[BucketId]) -> Collection[Group]:
        """Return the buckets in which no file will appear: a delete finds nothing there."""
        deletes = self._plan.request.operation is Operation.DELETE
        return existing.without_files(todo) if deletes else ()

    def _status(self) -> WriteStatus:
        works = [*self._staged.values(), *self._everywhere.values()]
        changes = changes_of(works, self._output.written | self._useless)
        flushes = self._buffer.policy.flushes
        stats = stats_of(works, changes, WriteStats(rows_in=self._rows_in, flushes=flushes))
        fresh = [path for path in dict.fromkeys(changes.named()) if path not in self._persisted]
        if fresh:
            self._output.store.persist(fresh)
            self._persisted.update(fresh)
        digester = self._digester
        return WriteStatus(changes, stats, None if digester is None else digester.digest)

    def _require_taking(self) -> None:
        self._require_open()
        if self._settled:
            message = "the writer got rows after it had staged its files"
            raise TransactionClosedError(message, hint="open a new writer")

    def _require_open(self) -> None:
        if self._closed:
            message = "the writer is closed"
            raise TransactionClosedError(message, hint="open a new one for each commit")
