"""The writer that users hold: one operation, one transaction, any engine."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from plait.arrow.check import require_removals
from plait.arrow.engine import ArrowEngine, sum_removals
from plait.definition.table_def import TableDef
from plait.engine import Engine, Staging, engine_for, engine_within
from plait.errors import InvariantError, OptionError, TransactionClosedError
from plait.expr import from_json
from plait.model.bucket import BucketId
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import CommitResult, Token
from plait.model.instant import Instant, Operation
from plait.model.plan import Snapshot
from plait.model.request import WritePlan, WriteRequest
from plait.read.plan import Wants, everything, wanted_in, wanted_where
from plait.state.state import TableState
from plait.txn.commit import Restaged
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_epoch, find_result, let_through, result_at
from plait.txn.transaction import AlreadyCommitted, OptimisticTransaction
from plait.write.bringing import bring
from plait.write.combine import as_sent
from plait.write.locating import located
from plait.write.replication import (
    ReplicatedStaging,
    Replication,
    replicated,
    replication_of,
)
from plait.write.request import as_the_table_is_now, plan_of, write_scope


class Writer:
    """Writes one operation: everything in one commit, or nothing.

    Use it as a context manager. Leaving the block commits; an exception inside rolls back and is
    raised again. After the block, ``result`` has the result. ``write`` takes Spark DataFrames
    (which stay distributed), Arrow tables, batches and readers, and any object with
    ``__arrow_c_stream__``.
    """

    def __init__(
        self,
        handle: TableHandle,
        request: WriteRequest,
        *,
        default: Engine | None = None,
        session: object = None,
        instant: Instant | None = None,
        replicas: Replication | None = None,
    ) -> None:
        """Make a writer.

        Args:
            handle: the table.
            request: the operation and its arguments.
            default: the engine for data that no other engine takes; Arrow by default.
            session: the session that does the work if there is no input; by default this process.
            instant: an instant that another process began for this writer.
            replicas: the sinks that get the rows first.

        Raises:
            OptionError: no engine knows such a session, or the sinks cannot take such a write.
        """
        self._handle = handle
        self._request = request
        self._asked = replicas
        self._replicas = self._sinks(handle.cache.known().table)
        self._default = default or ArrowEngine(store=handle.store)
        self._begun = instant
        self._rowless = engine_within(session, self._default)
        self._txn: OptimisticTransaction | None = None
        self._staging: Staging | None = None
        self._replicated: ReplicatedStaging | None = None
        self._engine: Engine | None = None
        self._result: CommitResult | None = None
        self._replay: Replay | None = None
        self._closed = False

    @property
    def result(self) -> CommitResult:
        """The result of the commit; raise TransactionClosedError before the commit."""
        if self._result is None:
            message = "the writer has not committed"
            raise TransactionClosedError(message, hint="read result after the with block")
        return self._result

    @property
    def instant(self) -> Instant:
        """The instant of this attempt."""
        return self._require_open().instant

    def __enter__(self) -> Self:
        """Begin. From here on, the files of the base stay readable."""
        request = self._request
        if self._begun is None and self._find_first():
            return self
        try:
            if self._begun is None:
                self._txn = OptimisticTransaction.begin(self._handle, request)
            else:
                self._txn = OptimisticTransaction.resume(self._handle, request, self._begun)
        except AlreadyCommitted as applied:
            if not self._begin_replay():
                self._result = result_at(self._handle, applied.version)
            return self
        if request.commit_id is not None and self._find_first_or_abort(self._txn):
            self._txn = None
        else:
            self._sinks_of_base(self._txn)
        return self

    def _find_first_or_abort(self, txn: OptimisticTransaction) -> bool:
        """End the transaction if its commit id was applied, or cannot be looked up."""
        over = True
        try:
            over = self._find_first()
        finally:
            if over:
                txn.abort(
                    "its commit id was applied already, or could not be looked up",
                    wrote=self._begun is not None,
                )
        return over

    def write(self, data: object) -> None:
        """Add rows. May be called many times, with data for the same engine.

        Raises:
            SchemaError: the data does not fit the table; none of it becomes visible.
            RolledBackError: another client took this writer for dead and rolled it back. It is
                raised at most one heartbeat interval after that.
        """
        if self._is_applied():
            return
        if self._replay is not None:
            self._replay.write(engine_for(data, self._default), data)
            return
        txn = self._require_open()
        txn.check_alive()
        if self._request.evolves:
            data = self._bring(data, txn)
        staging = self._stage_for(data)
        with txn.standing():
            staging.write(data)

    def remove(self, keys: object) -> None:
        """Remove keys among the rows of an upsert, in the order of a change stream.

        For each key, the table's row is deleted, and every row that this writer got before is
        dropped, whatever the ordering column says. Rows that come later are added as if the key
        had never been there. Call ``write`` and ``remove`` in any order, any number of times.

        Args:
            keys: Arrow data, as in ``write``, with the columns of the record key and of the
                partitions. Other columns of the table are ignored.

        Raises:
            OptionError: the writer is not for an upsert of whole rows, or the keys are in Spark.
            SchemaError: the keys do not fit the table, or name no partition.
            RolledBackError: as ``write``.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-remove", "id bigint, v bigint", record_key=["id"])
        >>> _ = t.upsert(pa.table({"id": [1, 2], "v": [1, 1]}))
        >>> with t.writer("upsert") as w:
        ...     w.write(pa.table({"id": [2, 3], "v": [2, 2]}))
        ...     w.remove(pa.table({"id": [1, 3]}))
        ...     w.write(pa.table({"id": [1], "v": [3]}))
        >>> sorted(zip(*t.scan().to_arrow().to_pydict().values()))
        [(1, 3), (2, 2)]
        """
        require_removals(self._request)
        if self._request.evolves and self._request.brings is None:
            message = "keys are removed before rows came, and rows say which columns are added"
            hint = "write rows first, or omit evolve='add'"
            raise OptionError(message, hint=hint, key="evolve", value="add")
        if self._replicas is not None:
            self._replicas.require_removals()
        if self._is_applied():
            return
        if self._replay is not None:
            self._replay.remove(keys)
            return
        txn = self._require_open()
        txn.check_alive()
        staging = self._stage_for(keys)
        with txn.standing():
            staging.remove(keys)

    def _is_applied(self) -> bool:
        """Tell whether this commit id was applied before, so that nothing is written again."""
        if self._closed:
            message = "the writer is closed"
            raise TransactionClosedError(message, hint="open a new one for each commit")
        return self._result is not None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back if the block raised."""
        self._closed = True
        txn = self._txn
        if self._replay is not None and error is None:
            self._result = self._replay.result()
        if txn is None:
            return
        try:
            if error is not None:
                txn.abort(f"{type(error).__name__} in the writer", wrote=self._end_staging())
                return
            self._commit(txn)
        finally:
            if self._staging is not None:
                self._staging.close()
            if self._replicated is not None:
                self._replicated.end(self._result)

    def _commit(self, txn: OptimisticTransaction) -> None:
        staging = self._staging or self._begin_staging(self._rowless, txn)
        publish = functools.partial(self._publish, txn, staging)
        try:
            self._result = txn.commit_or_abort(publish, self._end_staging)
        except BaseException:
            self._result = txn.result  # an interrupt after the decision: it stands (INV-10)
            raise

    def _end_staging(self) -> bool:
        """Stop all writing, then return whether a file may be on the store."""
        if self._staging is not None:
            self._staging.close()
        return self._begun is not None or (self._staging is not None and self._staging.wrote)

    def _publish(self, txn: OptimisticTransaction, staging: Staging) -> CommitResult:
        txn.wants = self._wants(staging)
        stage = functools.partial(self._stage, txn)
        status = stage(self._snapshot(txn), None)
        read_set = self._request.read_set or staging.read_set
        if read_set is not None:
            read_set = replace(read_set, version=min(read_set.version, txn.base.version))
        idle = txn.stand_at_base(status, read_set)
        if idle is not None:
            return idle
        scope = write_scope(self._request, txn.base.table.spec, status)
        restage = functools.partial(self._restage, txn)
        return txn.commit(status, scope, stage, read_set, restage=restage)

    def _stage(
        self,
        txn: OptimisticTransaction,
        snapshot: Snapshot,
        buckets: frozenset[BucketId] | None,
    ) -> WriteStatus:
        """Stage, and tell the transaction what the sinks hold of what was staged last."""
        staging = self._require_staging()
        if self._handle.cache.known().table.index is not None:
            snapshot = located(self._handle, snapshot, staging)
        status = staging.stage(snapshot, buckets)
        if self._replicated is not None:
            txn.ledger = self._replicated.ledger
            status = as_sent(status)
        return status

    def _restage(self, txn: OptimisticTransaction, head: TableState) -> Restaged:
        """Stage everything again under the layout that the table has at a head (RFC 0021)."""
        store = self._handle.store
        staging = self._require_staging()
        with as_the_table_is_now():
            sends = self._replicated is not None
            plan = plan_of(self._request, head.table, store.spec, txn.instant, reads=sends)
            self._request = request = plan.request
            self._staging = staging = staging.restaged(plan)
        txn.wants = self._wants(staging)
        append = request.operation is Operation.APPEND
        snapshot = head.blank() if append else head.snapshot(store, wants=txn.wants)
        status = self._stage(txn, snapshot, None)
        return Restaged(status, write_scope(request, head.table.spec, status), txn.wants)

    def _snapshot(self, txn: OptimisticTransaction) -> Snapshot:
        """Return the snapshot that the operation works on; rows without keys need none."""
        if self._request.operation is Operation.APPEND:
            return txn.base.blank()
        return txn.base.snapshot(self._handle.store, wants=txn.wants)

    def _wants(self, staging: Staging) -> Wants:
        """Tell which files the operation looks at; of a large table no others are loaded."""
        predicate = self._request.predicate
        if predicate is not None and self._request.operation in (
            Operation.DELETE,
            Operation.UPDATE,
        ):
            return lambda spec: wanted_where(from_json(predicate, spec.schema.arrow))(spec)
        partitions = staging.reach()
        return everything if partitions is None else wanted_in(partitions)

    def _bring(self, data: object, txn: OptimisticTransaction) -> object:
        """Find out which columns the first rows bring along; return data to write in its place."""
        engine, sinks = engine_for(data, self._default), self._replicas is not None
        data, request = bring(data, engine, self._request, txn.base.table, sinks=sinks)
        if self._staging is None:
            self._request = request
            txn.ask(request)
        return data

    def _stage_for(self, data: object) -> Staging:
        txn = self._require_open()
        engine = engine_for(data, self._default)
        if self._staging is None:
            return self._begin_staging(engine, txn)
        if self._engine is not None and engine.name != self._engine.name:
            message = f"this writer has data for {self._engine.name} and got data for {engine.name}"
            hint = "use one writer for each engine"
            raise OptionError(message, hint=hint, key="data", value=engine.name)
        return self._staging

    def _begin_staging(self, engine: Engine, txn: OptimisticTransaction) -> Staging:
        self._engine = engine
        store, sends = self._handle.store.spec, self._replicas is not None
        plan = plan_of(self._request, txn.base.table, store, txn.instant, reads=sends)
        self._request = plan.request
        txn.distributed |= engine.name != self._default.name
        self._staging = engine.staging(plan, txn.announce)
        if self._replicas is not None:
            elsewhere = not isinstance(engine, ArrowEngine)
            made = replicated(self._replicas, self._staging, plan, txn, elsewhere=elsewhere)
            self._staging = self._replicated = made
        return self._staging

    def _sinks(self, table: TableDef) -> Replication | None:
        """Return the sinks that get the rows first; raise OptionError if they cannot."""
        replicas = self._asked
        if table.replicas:
            replicas = replication_of(self._handle, table, replicas)
        if replicas is not None:
            replicas.require(self._request, table)
        return replicas

    def _sinks_of_base(self, txn: OptimisticTransaction) -> None:
        """Find the sinks again: the table may name others than when the writer was made."""
        try:
            self._replicas = self._sinks(txn.base.table)
        except BaseException:
            txn.abort("the sinks of the table cannot take its rows", wrote=self._begun is not None)
            raise

    def _find_first(self) -> bool:
        """Return the first result of this commit id or token, however old it is."""
        request = self._request
        result = None if request.token is None else find_epoch(self._handle, request.token)
        if result is not None and self._begin_replay():
            return True
        if result is None and request.commit_id is not None:
            result = find_result(self._handle, request.commit_id)
        self._result = result
        return result is not None

    def _begin_replay(self) -> bool:
        """Have the rows of an applied epoch compared, if their digest is not known."""
        token = self._request.token
        if token is None or token.digest is not None:
            return False
        self._replay = Replay(self._handle, self._request, token)
        return True

    def _require_staging(self) -> Staging:
        if self._staging is None:
            message = "a writer that began no staging stages"
            raise InvariantError(message)
        return self._staging

    def _require_open(self) -> OptimisticTransaction:
        if self._txn is None:
            message = "the writer is not open"
            raise TransactionClosedError(message, hint="use it in a with block")
        return self._txn


@dataclass(slots=True)
class Replay:
    """An epoch that the table already has: its rows are summed up and not written."""

    handle: TableHandle
    request: WriteRequest
    token: Token
    digest: Digest = field(default_factory=Digest)

    def write(self, engine: Engine, data: object) -> None:
        """Sum rows up."""
        self.digest += engine.digest(data, self._plan())

    def remove(self, keys: object) -> None:
        """Sum up keys that are removed."""
        self.digest += sum_removals(keys, self._plan())

    def _plan(self) -> WritePlan:
        handle, known = self.handle, self.handle.cache.known()
        return plan_of(self.request, known.table, handle.store.spec, handle.new_instant(known))

    def result(self) -> CommitResult:
        """Return the result of the epoch.

        Raises:
            EpochRewoundError: it was applied with other rows.
            UndoneError: a restore undid it meanwhile, and a replay lets it be applied again.
        """
        result = find_epoch(self.handle, replace(self.token, digest=self.digest))
        if result is None:
            raise let_through(self.request)
        return result
