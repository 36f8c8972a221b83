"""``Table.transaction()``: several operations, one decision (RFC 0004)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, Unpack

from plait.arrow.engine import ArrowEngine
from plait.definition.table_def import TableDef
from plait.engine import Staging, engine_for
from plait.errors import CommitError, TransactionClosedError
from plait.expr import Where
from plait.model.bucket import BucketId
from plait.model.changes import WriteStatus
from plait.model.clauses import Clauses, Insert, Matched
from plait.model.decision import CommitResult, ReadSet, Scope
from plait.model.instant import Operation
from plait.model.plan import Snapshot
from plait.model.replicas import SinkLedger
from plait.model.request import WriteRequest
from plait.read.scan import Scan
from plait.state.state import TableState
from plait.txn.commit import Restaged
from plait.txn.read_pin import ReadPin, release_with
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_result
from plait.txn.transaction import OptimisticTransaction
from plait.write.combine import advance, as_sent, combine_operations
from plait.write.combine import combined_scope as widest
from plait.write.replication import ReplicatedStaging, replicated, replication_of
from plait.write.request import (
    WriteOptions,
    as_the_table_is_now,
    merge_request,
    plan_of,
    require_one,
    update_request,
    write_request,
    write_scope,
)


@dataclass(slots=True)
class _StagedOperation:
    """One operation, staged on the result of the operations before it."""

    request: WriteRequest
    staging: Staging
    status: WriteStatus
    replicated: ReplicatedStaging | None = None
    """The same staging, if it sends rows to sinks first."""


class _Pin:
    """One read pin for all scans of a block, released with the last of them.

    It is taken while the pending record still protects the base, so no clean runs in between.
    """

    def __init__(self, handle: TableHandle, version: int) -> None:
        release_with(self, ReadPin(handle, version))


class Transaction:
    """Runs several operations and commits all of them in one decision, or none.

    Use it as a context manager. Each operation sees the changes of the operations before it.
    Others see nothing until the block has committed. ``scan`` reads the block's snapshot with its
    own changes. After a ``scan``, the block conflicts with every commit that wrote the same keys
    in the meantime and, with ``isolation="serializable"``, with every commit that wrote where the
    block read.

    >>> import pyarrow as pa
    >>> from plait import Table
    >>> t = Table.create("memory://doc-block", "id bigint, v bigint", record_key=["id"])
    >>> with t.transaction() as tx:
    ...     tx.insert(pa.table({"id": [1, 2], "v": [0, 0]}))
    ...     tx.delete(where="id = 2")
    ...     rows = tx.scan().to_arrow().num_rows
    >>> rows, tx.result.version
    (1, 1)
    """

    def __init__(self, handle: TableHandle, *, commit_id: str | None, on_conflict: str) -> None:
        """Create a transaction; ``with`` begins it."""
        self._handle, self._default = handle, ArrowEngine(store=handle.store)
        self._commit_id, self._on_conflict = commit_id, on_conflict
        self._txn: OptimisticTransaction | None = None
        self._snapshot: Snapshot | None = None
        self._parts: list[_StagedOperation] = []
        self._reads: list[dict[str, object] | None] = []
        self._pin: _Pin | None = None
        self._result: CommitResult | None = None
        self._begun = self._failed = self._done = False
        """Done: its commit id was applied before, and nothing is done again."""
        self._reading = False
        """Whether keys that were looked up count as read."""

    @property
    def result(self) -> CommitResult:
        """The result of the commit; raise TransactionClosedError before the commit."""
        if self._result is None:
            message = "the transaction has not committed"
            raise TransactionClosedError(message, hint="read result after the with block")
        return self._result

    @property
    def version(self) -> int:
        """The version that the block works on."""
        return self._require_open().base.version

    def __enter__(self) -> Self:
        """Begin. From here on, the files of the base stay readable."""
        if self._begun:
            message = "the transaction was already used"
            raise TransactionClosedError(message, hint="create a new one for each with block")
        self._begun = True
        known = self._handle.cache.known().table
        if known.replicas:
            replication_of(self._handle, known, None)  # asks for consent
        request = WriteRequest(Operation.TRANSACTION, self._commit_id, self._on_conflict)
        self._txn = OptimisticTransaction.begin(self._handle, request)
        try:
            result = None
            if self._commit_id is not None:
                result = find_result(self._handle, self._commit_id)
            if result is not None:
                self._pin = _Pin(self._handle, self.version)
                self._result, self._done = result, True
                self._txn.abort("its commit id was applied already", wrote=False)
            self._snapshot = self._txn.base.snapshot(self._handle.store)
        except BaseException:
            self._txn.abort("it could not begin", wrote=False)
            raise
        return self

    # --- operations ------------------------------------------------------------------------

    def scan(self, columns: str | Sequence[str] | None = None, where: Where = None) -> Scan:
        """Read the table as this transaction sees it; see ``Table.scan``.

        It can also be read after the block: a read pin keeps the files until the scan is dropped.
        """
        snapshot = self._require_snapshot()
        if self._pin is None:
            self._pin = _Pin(self._handle, self.version)
        scan = Scan(self._handle.store, snapshot, columns=columns, where=where)
        scan.keep(self._pin)
        self._reads.append(scan.read_predicate)
        return scan

    def append(self, data: object) -> None:
        """Add rows; see ``Table.append``."""
        self._run(self._request("append"), data)

    def insert(self, data: object, *, on_duplicate: str = "raise") -> None:
        """Add rows whose keys are not in the table yet; see ``Table.insert``."""
        self._run(self._request("insert", on_duplicate=on_duplicate), data)

    def upsert(self, data: object, *, missing_columns: str = "raise") -> None:
        """Add rows and replace existing rows with the same key; see ``Table.upsert``."""
        self._run(self._request("upsert", missing_columns=missing_columns), data)

    def overwrite(
        self, data: object, *, where: Where = None, partitions: str | None = None
    ) -> None:
        """Replace the table, the matching rows, or partitions; see ``Table.overwrite``."""
        self._run(self._request("overwrite", where=where, partitions=partitions), data)

    def delete(self, *, where: Where = None, keys: object = None) -> None:
        """Delete rows by predicate or by key; see ``Table.delete``."""
        require_one(where, keys)
        self._run(self._request("delete", where=where), keys)

    def update(self, values: Mapping[str, object], *, where: Where = None) -> None:
        """Set columns to new values in the matching rows; see ``Table.update``."""
        spec = self._require_open().base.table.spec
        request = update_request(values, spec, where=where, on_conflict=self._on_conflict)
        self._run(request, None)

    def merge(
        self,
        source: object,
        *,
        on: str | Sequence[str] | None = None,
        matched: Matched | Sequence[Matched] = (),
        not_matched: Insert | Sequence[Insert] = (),
        not_matched_by_source: Matched | Sequence[Matched] = (),
    ) -> None:
        """Match rows with the table by record key; see ``Table.merge``."""
        spec = self._require_open().base.table.spec
        clauses = Clauses.of(matched, not_matched, not_matched_by_source)
        self._run(merge_request(clauses, on, spec, on_conflict=self._on_conflict), source)

    # --- inside ----------------------------------------------------------------------------

    def _request(self, operation: str, **asked: Unpack[WriteOptions]) -> WriteRequest:
        spec = self._require_open().base.table.spec
        asked["on_conflict"] = self._on_conflict
        return write_request(operation, spec, **asked)

    def _run(self, request: WriteRequest, data: object) -> None:
        txn = self._require_open()
        if self._done:
            return
        txn.check_alive()
        replicas = None
        if txn.base.table.replicas:
            replicas = replication_of(self._handle, txn.base.table, None)
            replicas.require(request, txn.base.table)
        engine = self._default if data is None else engine_for(data, self._default)
        step = len(self._parts) + 1
        table, store = txn.base.table, self._handle.store.spec
        # Reads may be named after it was staged: what it looked up is dropped if none is.
        plan = plan_of(request, table, store, txn.instant, step=step, reads=True)
        txn.distributed |= engine.name != self._default.name
        staging = engine.staging(plan, txn.announce)
        part = _StagedOperation(plan.request, staging, WriteStatus())
        if replicas is not None:
            elsewhere = not isinstance(engine, ArrowEngine)
            part.replicated = replicated(replicas, staging, plan, txn, elsewhere=elsewhere)
            part.staging = staging = part.replicated
        self._parts.append(part)
        try:
            with txn.standing():
                if data is not None:
                    staging.write(data)
                self._stage(part, self._require_snapshot())
        except BaseException:
            self._failed = True
            raise

    def _stage(self, part: _StagedOperation, snapshot: Snapshot) -> None:
        status = part.staging.stage(snapshot, None)
        part.status = status if part.replicated is None else as_sent(status)
        self._snapshot = advance(snapshot, part.status.changes)

    def _redo(
        self,
        txn: OptimisticTransaction,
        snapshot: Snapshot,
        buckets: frozenset[BucketId],  # noqa: ARG002 - a later part hangs on every earlier one
    ) -> WriteStatus:
        self._snapshot = snapshot
        for part in self._parts:
            self._stage(part, self._require_snapshot())
        return self._status(txn)

    def _status(self, txn: OptimisticTransaction) -> WriteStatus:
        """Put the operations together, and tell the transaction what sinks hold of them."""
        ledgers = [each.replicated.ledger for each in self._parts if each.replicated is not None]
        txn.ledger = SinkLedger.together(ledgers)
        return combine_operations([part.status for part in self._parts], reads=self._reading)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back if the block raised."""
        txn, self._txn = self._txn, None
        self._pin = None  # the scans have it
        if txn is None or self._done:
            return
        try:
            if error is not None:
                txn.abort(f"{type(error).__name__} in the transaction", wrote=self._end_stagings())
                return
            if self._failed:
                txn.abort("one of its operations failed", wrote=self._end_stagings())
                message = "an operation of this transaction failed, so nothing was committed"
                raise CommitError(
                    message, hint="let its error leave the block, or start a new transaction"
                )
            self._commit(txn)
        finally:
            for part in self._parts:
                part.staging.close()
                if part.replicated is not None:
                    part.replicated.end(self._result)

    def _commit(self, txn: OptimisticTransaction) -> None:
        if not self._parts:
            txn.abort("it did nothing", wrote=False)
            return
        publish = functools.partial(self._publish, txn)
        try:
            self._result = txn.commit_or_abort(publish, self._end_stagings)
        except BaseException:
            self._result = txn.result  # an interrupt after the decision: it stands (INV-10)
            raise

    def _end_stagings(self) -> bool:
        """Stop all writing, then return whether a file may be on the store."""
        for part in self._parts:
            part.staging.close()
        return any(part.staging.wrote for part in self._parts)

    def _publish(self, txn: OptimisticTransaction) -> CommitResult:
        reads = [ReadSet(txn.base.version, tuple(self._reads))]
        reads += [read for p in self._parts if (read := p.staging.read_set) is not None]
        read_set = None
        if any(read.explicit for read in reads):
            every = tuple(where for read in reads for where in read.reads)
            read_set = ReadSet(min(read.version for read in reads), every)
        self._reading = read_set is not None or txn.base.table.isolation == "serializable"
        status = self._status(txn)
        idle = txn.stand_at_base(status, read_set)
        if idle is not None:
            return idle
        scope = self._scope(txn.base.table)
        redo, restage = functools.partial(self._redo, txn), functools.partial(self._restage, txn)
        return txn.commit(status, scope, redo, read_set, restage=restage)

    def _restage(self, txn: OptimisticTransaction, head: TableState) -> Restaged:
        """Stage every operation again under the layout that the table has at a head (RFC 0021)."""
        store = self._handle.store
        self._snapshot = head.snapshot(store)
        for step, part in enumerate(self._parts, 1):
            with as_the_table_is_now():
                table = head.table
                plan = plan_of(part.request, table, store.spec, txn.instant, step=step, reads=True)
                part.request, part.staging = plan.request, part.staging.restaged(plan)
            self._stage(part, self._require_snapshot())
        return Restaged(self._status(txn), self._scope(head.table), None)

    def _scope(self, table: TableDef) -> Scope:
        spec, strict = table.spec, table.isolation == "serializable"
        scopes = [write_scope(part.request, spec, part.status) for part in self._parts]
        return widest(scopes, spec.schema.arrow, serializable=strict)

    def _require_open(self) -> OptimisticTransaction:
        if self._txn is None:
            message = "the transaction is not open"
            raise TransactionClosedError(message, hint="use it in a with block")
        return self._txn

    def _require_snapshot(self) -> Snapshot:
        if self._snapshot is None:
            message = "the transaction is not open"
            raise TransactionClosedError(message, hint="use it in a with block")
        return self._snapshot
