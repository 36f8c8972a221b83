"""``Table.transaction()``: several operations, one decision (RFC 0004)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from plait.arrow.engine import ArrowEngine
from plait.engine import engine_for
from plait.errors import CommitError, TransactionClosedError
from plait.expr import Where
from plait.model.clauses import Clauses, Insert, Matched
from plait.model.data import Data
from plait.model.decision import CommitResult
from plait.model.instant import Operation
from plait.model.plan import TableSpec
from plait.model.request import WriteRequest
from plait.model.words import MissingColumns, OnConflict, OnDuplicate, Partitions
from plait.read.scan import Scan
from plait.txn.read_pin import ReadPin, release_with
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_result
from plait.txn.transaction import OptimisticTransaction
from plait.write.parts import WriteParts
from plait.write.replication import replication_of
from plait.write.request import (
    merge_request,
    require_one,
    update_request,
    write_request,
)


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

    def __init__(
        self, handle: TableHandle, *, commit_id: str | None, on_conflict: OnConflict
    ) -> None:
        """Create a transaction; ``with`` begins it."""
        self._handle, self._default = handle, ArrowEngine(store=handle.store)
        self._commit_id, self._on_conflict = commit_id, on_conflict
        self._parts: WriteParts | None = None
        self._reads: list[dict[str, object] | None] = []
        self._pin: _Pin | None = None
        self._result: CommitResult | None = None
        self._begun = self._failed = self._done = False
        """Done: its commit id was applied before, and nothing is done again."""

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
        return self._require_open().txn.base.version

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
        txn = OptimisticTransaction.begin(self._handle, request)
        parts = WriteParts(self._handle, txn, self._default)
        try:
            result = None
            if self._commit_id is not None:
                result = find_result(self._handle, self._commit_id)
            if result is not None:
                self._pin = _Pin(self._handle, txn.base.version)
                self._result, self._done = result, True
                txn.abort("its commit id was applied already", wrote=False)
            parts.look_at(txn.base)
        except BaseException:
            txn.abort("it could not begin", wrote=False)
            raise
        self._parts = parts  # from here on it is open
        return self

    # --- operations ------------------------------------------------------------------------

    def scan(self, columns: str | Sequence[str] | None = None, where: Where = None) -> Scan:
        """Read the table as this transaction sees it; see ``Table.scan``.

        It can also be read after the block: a read pin keeps the files until the scan is dropped.
        """
        snapshot = self._require_open().snapshot
        if self._pin is None:
            self._pin = _Pin(self._handle, self.version)
        scan = Scan(self._handle.store, snapshot, columns=columns, where=where)
        scan.keep(self._pin)
        self._reads.append(scan.read_predicate)
        return scan

    def append(self, data: Data) -> None:
        """Add rows; see ``Table.append``."""
        request = write_request("append", self._spec, on_conflict=self._on_conflict)
        self._run(request, data)

    def insert(self, data: Data, *, on_duplicate: OnDuplicate = "raise") -> None:
        """Add rows whose keys are not in the table yet; see ``Table.insert``."""
        request = write_request(
            "insert", self._spec, on_duplicate=on_duplicate, on_conflict=self._on_conflict
        )
        self._run(request, data)

    def upsert(self, data: Data, *, missing_columns: MissingColumns = "raise") -> None:
        """Add rows and replace existing rows with the same key; see ``Table.upsert``."""
        request = write_request(
            "upsert", self._spec, missing_columns=missing_columns, on_conflict=self._on_conflict
        )
        self._run(request, data)

    def overwrite(
        self, data: Data, *, where: Where = None, partitions: Partitions | None = None
    ) -> None:
        """Replace the table, the matching rows, or partitions; see ``Table.overwrite``."""
        request = write_request(
            "overwrite",
            self._spec,
            where=where,
            partitions=partitions,
            on_conflict=self._on_conflict,
        )
        self._run(request, data)

    def delete(self, *, where: Where = None, keys: Data | None = None) -> None:
        """Delete rows by predicate or by key; see ``Table.delete``."""
        require_one(where, keys)
        request = write_request("delete", self._spec, where=where, on_conflict=self._on_conflict)
        self._run(request, keys)

    def update(self, values: Mapping[str, object], *, where: Where = None) -> None:
        """Set columns to new values in the matching rows; see ``Table.update``."""
        request = update_request(values, self._spec, where=where, on_conflict=self._on_conflict)
        self._run(request, None)

    def merge(
        self,
        source: Data,
        *,
        on: str | Sequence[str] | None = None,
        matched: Matched | Sequence[Matched] = (),
        not_matched: Insert | Sequence[Insert] = (),
        not_matched_by_source: Matched | Sequence[Matched] = (),
    ) -> None:
        """Match rows with the table by record key; see ``Table.merge``."""
        spec, clauses = self._spec, Clauses.of(matched, not_matched, not_matched_by_source)
        request = merge_request(clauses, on, spec, on_conflict=self._on_conflict)
        self._run(request, source)

    # --- inside ----------------------------------------------------------------------------

    @property
    def _spec(self) -> TableSpec:
        """The spec of the base; raise TransactionClosedError outside the block."""
        return self._require_open().txn.base.table.spec

    def _run(self, request: WriteRequest, data: object) -> None:
        parts = self._require_open()
        if self._done:
            return
        txn = parts.txn
        txn.check_alive()
        replicas = None
        if txn.base.table.replicas:
            replicas = replication_of(self._handle, txn.base.table, None)
            replicas.require(request, txn.base.table)
        engine = self._default if data is None else engine_for(data, self._default)
        part = parts.begin(request, engine, replicas)
        try:
            with txn.guard_rollback():
                if data is not None:
                    part.staging.write(data)
                parts.stage(part)
        except BaseException:
            self._failed = True
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back if the block raised."""
        parts, self._parts = self._parts, None
        self._pin = None  # the scans have it
        if parts is None or self._done:
            return
        reason = None
        if error is not None:
            reason = f"{type(error).__name__} in the transaction"
        elif self._failed:
            reason = "one of its operations failed"
        elif not parts.begun:
            reason = "it did nothing"
        try:
            parts.end(functools.partial(parts.publish, self._reads), reason)
        finally:
            self._result = parts.txn.result
        if error is None and self._failed:
            message = "an operation of this transaction failed, so nothing was committed"
            hint = "let its error leave the block, or start a new transaction"
            raise CommitError(message, hint=hint)

    def _require_open(self) -> WriteParts:
        if self._parts is None:
            message = "the transaction is not open"
            raise TransactionClosedError(message, hint="use it in a with block")
        return self._parts
