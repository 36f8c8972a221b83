"""The parts of a commit: staged in turn, staged again where others were first, published together.

A ``Writer`` has one part, and a ``Transaction`` any number. Each part is one operation and has a
staging of its own. Each is staged on the result of the parts before it, and one decision publishes
all of them.

The only part of a writer takes three short cuts that the parts of a transaction cannot take. It
loads only the files that it looks at; after a part of a transaction, the next one or a scan may
look at any file. If another commit was first, it stages again only the buckets of the conflict; in
a transaction, a later part may have read what an earlier one stages anew. And its status is
published as it is; those of a transaction are combined, so that no file is named that a later part
replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from plait.arrow.engine import ArrowEngine
from plait.definition.table_def import TableDef
from plait.engine import Engine, Staging
from plait.expr import from_json
from plait.model.bucket import BucketId
from plait.model.changes import WriteStatus
from plait.model.decision import CommitResult, ReadSet, Scope
from plait.model.instant import Operation
from plait.model.plan import Snapshot, TableSpec
from plait.model.request import WritePlan, WriteRequest
from plait.model.sink_ledger import SinkLedger
from plait.read.plan import FileCriteria, FileFilter, all_files, filter_partitions, filter_where
from plait.state.state import TableState
from plait.txn.commit import Restaged
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction
from plait.write.combine import advance, as_sent, combine_operations, combined_scope
from plait.write.locating import located
from plait.write.replication import ReplicatedStaging, Replication, replicated
from plait.write.request import as_the_table_is_now, plan_of, write_scope


@dataclass(slots=True)
class WritePart:
    """One operation of a commit."""

    plan: WritePlan
    """What was asked, in the layout that it was staged under last."""
    engine: Engine
    staging: Staging
    replicated: ReplicatedStaging | None = None
    """The same staging, if it sends rows to sinks first."""
    status: WriteStatus = field(init=False)
    """What it staged last."""

    def file_filter(self, spec: TableSpec) -> FileCriteria:
        """Return which files it looks at, once all rows came: of a large table, load no others.

        This is asked for each snapshot, because a new layout puts the rows into other partitions.
        """
        request = self.plan.request
        by_predicate = request.operation in (Operation.DELETE, Operation.UPDATE)
        if by_predicate and request.predicate is not None:
            return filter_where(from_json(request.predicate, spec.schema.arrow))(spec)
        partitions = self.staging.reach()
        return (all_files if partitions is None else filter_partitions(partitions))(spec)


@dataclass(slots=True)
class WriteParts:
    """What one instant publishes: begins, stages, restages, publishes and ends its parts."""

    handle: TableHandle
    txn: OptimisticTransaction
    default: Engine
    """Works in this process, and takes what no other engine takes."""
    alone: bool = False
    """Whether there is the one part of a writer, and not the parts of a transaction."""
    resumed: bool = False
    """Whether another process began the instant, and may have written files under it."""
    begun: list[WritePart] = field(default_factory=list)
    snapshot: Snapshot = field(init=False)
    """What the next part is staged on."""
    reading: bool = False
    """Whether keys that the parts of a transaction looked up count as read."""

    def begin(
        self, request: WriteRequest, engine: Engine, replicas: Replication | None
    ) -> WritePart:
        """Begin a part; nothing is staged yet.

        Raises:
            OptionError: the engine cannot send rows to the sinks.
            OptionError, SchemaError, RetryableConflictError: as ``plan_of``.
        """
        txn, store = self.txn, self.handle.store.address
        step = 0 if self.alone else len(self.begun) + 1
        # Whether a transaction reads is known at its end. If not, ``_status`` drops the lookups.
        reads = not self.alone or replicas is not None
        plan = plan_of(request, txn.base.table, store, txn.instant, step=step, reads=reads)
        txn.distributed |= engine is not self.default
        part = WritePart(plan, engine, engine.staging(plan, txn.announce))
        if replicas is not None:
            elsewhere = not isinstance(engine, ArrowEngine)
            sending = replicated(replicas, part.staging, plan, txn, elsewhere=elsewhere)
            part.staging = part.replicated = sending
        self.begun.append(part)
        return part

    @property
    def _file_filter(self) -> FileFilter | None:
        """Which files the operation looks at; None: any.

        The transaction does not keep it. It would hold the staging, which holds the transaction,
        and a writer that was dropped would beat on until the next collection of cycles.
        """
        return self.begun[0].file_filter if self.alone else None

    def look_at(self, state: TableState) -> None:
        """Have the first part staged on a version; a writer that adds rows looks at no file."""
        if self.alone and self.begun[0].plan.request.operation is Operation.APPEND:
            self.snapshot = state.blank()
        else:
            self.snapshot = state.snapshot(self.handle.store, file_filter=self._file_filter)

    def stage(self, part: WritePart, buckets: frozenset[BucketId] | None = None) -> None:
        """Stage a part, or some of its buckets again, on the result of the parts before it."""
        snapshot = self.snapshot
        if self.alone and self.handle.cache.known().table.index is not None:
            snapshot = located(self.handle, snapshot, part.staging)
        status = part.staging.stage(snapshot, buckets)
        part.status = status if part.replicated is None else as_sent(status)
        if not self.alone:
            self.snapshot = advance(snapshot, part.status.changes)

    def publish(self, scanned: Iterable[dict[str, object] | None] = ()) -> CommitResult:
        """Publish what was staged; ``scanned`` are the predicates that the caller read at the base.

        Raises:
            CommitError, StreamError: as ``OptimisticTransaction.commit``.
        """
        txn, table = self.txn, self.txn.base.table
        read_set = self._read_set(scanned)
        self.reading = read_set is not None or table.isolation == "serializable"
        status = self._status()
        idle = txn.end_unchanged(status, read_set)
        if idle is not None:
            return idle
        scope = self._scope(table)
        redo, restage = self._redo, self._restage
        return txn.commit(
            status, scope, redo, read_set, restage=restage, file_filter=self._file_filter
        )

    def end(self, publish: Callable[[], CommitResult], reason: str | None) -> None:
        """Commit, or roll back if there is a reason; then drop what the parts hold.

        What became of it is ``txn.result``, also if this raises: an interrupt after the decision
        does not undo it (INV-10), and the sinks must hear that it stands.
        """
        txn = self.txn
        try:
            if reason is None:
                txn.commit_or_abort(publish, self._stop)
            else:
                txn.abort(reason, wrote=self._stop())
        finally:
            for part in self.begun:
                part.staging.close()
                if part.replicated is not None:
                    part.replicated.end(txn.result)

    def _stop(self) -> bool:
        """Stop all writing, then return whether a file may be on the store."""
        for part in self.begun:
            part.staging.close()
        return self.resumed or any(part.staging.wrote for part in self.begun)

    def _redo(self, snapshot: Snapshot, buckets: frozenset[BucketId]) -> WriteStatus:
        self.snapshot = snapshot
        for part in self.begun:
            self.stage(part, buckets if self.alone else None)
        return self._status()

    def _restage(self, head: TableState) -> Restaged:
        """Stage everything again under the layout that the table has at a head (RFC 0021).

        A part is staged before the next one is laid out anew: so only one has its rows in memory.
        """
        store, instant = self.handle.store.address, self.txn.instant
        for part in self.begun:
            request, step = part.plan.request, part.plan.step
            reads = not self.alone or part.replicated is not None
            with as_the_table_is_now():
                plan = plan_of(request, head.table, store, instant, step=step, reads=reads)
                part.plan, part.staging = plan, part.staging.restaged(plan)
            if part is self.begun[0]:
                self.look_at(head)
            self.stage(part)
        return Restaged(self._status(), self._scope(head.table), self._file_filter)

    def _read_set(self, scanned: Iterable[dict[str, object] | None]) -> ReadSet | None:
        """Return what the rows depend on, at the oldest version of it; None: on the base alone."""
        version, reads = self.txn.base.version, [*scanned]
        for part in self.begun:
            read_set = part.plan.request.read_set or part.staging.read_set
            if read_set is not None:
                version = min(version, read_set.version)
                reads += read_set.reads
        return ReadSet(version, tuple(reads)) if reads else None

    def _status(self) -> WriteStatus:
        """Put the parts together, and tell the transaction what the sinks hold of them."""
        sent = [part.replicated.ledger for part in self.begun if part.replicated is not None]
        if sent:
            self.txn.ledger = SinkLedger.together(sent)
        if self.alone:
            return self.begun[0].status
        return combine_operations([part.status for part in self.begun], reads=self.reading)

    def _scope(self, table: TableDef) -> Scope:
        spec, strict = table.spec, table.isolation == "serializable"
        scopes = [write_scope(part.plan.request, spec, part.status) for part in self.begun]
        if self.alone:
            return scopes[0]
        return combined_scope(scopes, spec.schema.arrow, serializable=strict)
