"""The writer that users hold: one operation, one transaction, any engine."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from plait.arrow.check import require_removals
from plait.arrow.engine import ArrowEngine, sum_removals
from plait.definition.table_def import TableDef
from plait.engine import Engine, engine_for, engine_within
from plait.errors import OptionError, TransactionClosedError
from plait.model.changes import Digest
from plait.model.data import Data
from plait.model.decision import CommitResult, Token
from plait.model.instant import Instant
from plait.model.request import WritePlan, WriteRequest
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_epoch, find_result, replayed_meanwhile, result_at
from plait.txn.transaction import AlreadyCommitted, OptimisticTransaction
from plait.write.added_columns import resolve_added_columns
from plait.write.parts import WritePart, WriteParts
from plait.write.replication import Replication, replication_of
from plait.write.request import plan_of


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
        self._parts: WriteParts | None = None
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
        return self._require_open().txn.instant

    def __enter__(self) -> Self:
        """Begin. From here on, the files of the base stay readable."""
        request = self._request
        if self._begun is None and self._find_first():
            return self
        try:
            if self._begun is None:
                txn = OptimisticTransaction.begin(self._handle, request)
            else:
                txn = OptimisticTransaction.resume(self._handle, request, self._begun)
        except AlreadyCommitted as applied:
            if not self._begin_replay():
                self._result = result_at(self._handle, applied.version)
            return self
        self._begin_parts(txn)
        return self

    def _begin_parts(self, txn: OptimisticTransaction) -> None:
        """Begin, unless the commit id was applied meanwhile; without parts, roll back.

        The sinks are found again: the table may name others than when the writer was made.
        """
        resumed = self._begun is not None
        reason = "its commit id was applied already, or could not be looked up"
        try:
            if self._request.commit_id is None or not self._find_first():
                reason = "the sinks of the table cannot take its rows"
                self._replicas = self._sinks(txn.base.table)
                self._parts = WriteParts(
                    self._handle, txn, self._default, alone=True, resumed=resumed
                )
        finally:
            if self._parts is None:
                txn.abort(reason, wrote=resumed)

    def write(self, data: Data) -> None:
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
        parts = self._require_open()
        parts.txn.check_alive()
        rows = self._resolve_added_columns(data, parts) if self._request.adds_columns else data
        part = self._part_for(rows, parts)
        with parts.txn.guard_rollback():
            part.staging.write(rows)

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
        if self._request.adds_columns and self._request.added_columns is None:
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
        parts = self._require_open()
        parts.txn.check_alive()
        part = self._part_for(keys, parts)
        with parts.txn.guard_rollback():
            part.staging.remove(keys)

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
        if self._replay is not None and error is None:
            self._result = self._replay.result()
        parts = self._parts
        if parts is None:
            return
        reason = None if error is None else f"{type(error).__name__} in the writer"
        try:
            parts.end(functools.partial(self._publish, parts), reason)
        finally:
            self._result = parts.txn.result

    def _publish(self, parts: WriteParts) -> CommitResult:
        """Stage all rows, or begin only now if there are none, as for a delete by predicate."""
        if not parts.begun:
            parts.begin(self._request, self._rowless, self._replicas)
        parts.look_at(parts.txn.base)
        parts.stage(parts.begun[0])
        return parts.publish()

    def _resolve_added_columns(self, data: object, parts: WriteParts) -> object:
        """Find out which columns the first rows bring along; return data to write in its place."""
        engine, sinks = engine_for(data, self._default), self._replicas is not None
        data, request = resolve_added_columns(
            data, engine, self._request, parts.txn.base.table, sinks=sinks
        )
        if not parts.begun:
            self._request = request
            parts.txn.replace_request(request)
        return data

    def _part_for(self, data: object, parts: WriteParts) -> WritePart:
        """Return the one part, whose engine is that of the first data."""
        engine = engine_for(data, self._default)
        if not parts.begun:
            return parts.begin(self._request, engine, self._replicas)
        part = parts.begun[0]
        if engine.name != part.engine.name:
            message = f"this writer has data for {part.engine.name} and got data for {engine.name}"
            hint = "use one writer for each engine"
            raise OptionError(message, hint=hint, key="data", value=engine.name)
        return part

    def _sinks(self, table: TableDef) -> Replication | None:
        """Return the sinks that get the rows first; raise OptionError if they cannot."""
        replicas = self._asked
        if table.replicas:
            replicas = replication_of(self._handle, table, replicas)
        if replicas is not None:
            replicas.require(self._request, table)
        return replicas

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

    def _require_open(self) -> WriteParts:
        if self._parts is None:
            raise TransactionClosedError("the writer is not open", hint="use it in a with block")
        return self._parts


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
        return plan_of(self.request, known.table, handle.store.address, handle.new_instant(known))

    def result(self) -> CommitResult:
        """Return the result of the epoch.

        Raises:
            EpochRewoundError: it was applied with other rows.
            UndoneError: a restore undid it meanwhile, and a replay lets it be applied again.
        """
        result = find_epoch(self.handle, replace(self.token, digest=self.digest))
        if result is None:
            raise replayed_meanwhile(self.request)
        return result
