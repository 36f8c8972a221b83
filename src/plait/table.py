"""The facade: ``Table``. It delegates, and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from plait.engine import Engine
from plait.errors import TableExistsError
from plait.model.contract import Contract
from plait.model.decision import CommitResult
from plait.model.history import HistoryEntry, TimelineView
from plait.model.instant import Instant
from plait.model.locks import LockState
from plait.read.changes import ChangeScan
from plait.read.pinned import Pinned
from plait.read.scan import Scan
from plait.services.changes import Bound, pin_changes
from plait.services.clean import CleanPlan, CleanReport, clean, plan_clean
from plait.services.contract import change_contract
from plait.services.explain import Explanation, explain
from plait.services.inspect import Moment, describe, load_locks, load_timeline, pin
from plait.services.opening import create_site, open_expected, reopen
from plait.services.rollback import RollbackReport, roll_back, roll_back_failed
from plait.services.upkeep import after_commit, before_writer
from plait.services.verify import VerifyReport, verify
from plait.stream.stream import Stream
from plait.txn.definition import Definition
from plait.txn.lease import release_with
from plait.txn.properties import set_properties
from plait.txn.site import Site
from plait.write.block import Block
from plait.write.calls import Writes
from plait.write.engine import ArrowEngine
from plait.write.found import find_result
from plait.write.order import Order, read_set_of
from plait.write.writer import Writer

if TYPE_CHECKING:
    from plait.expr import Where


class Table(Writes):
    """A table at a place: it looks at the head on each call.

    Any number of processes may hold the same table and write to it; no server stands between
    them. Handles never change in place, and are safe to share between threads.

    >>> import pyarrow as pa
    >>> t = Table.create("memory://doc-table", pa.schema([("id", pa.int64())]), record_key=["id"])
    >>> t.upsert(pa.table({"id": [1, 2]})).version
    1
    >>> t.scan(where="id = 2").to_arrow().to_pylist()
    [{'id': 2}]
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    # --- open and create -------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        uri: str,
        schema: object,
        *,
        record_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        ordering: str | None = None,
        table_type: str = "cow",
        buckets: int | None = None,
        lock: str | None = None,
        policy: str = "key",
        isolation: str = "snapshot",
        unique: str = "partition",
        failed_writes: str = "lazy",
        concurrency: str = "multi_writer",
        if_not_exists: bool = False,
        properties: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Self:
        """Create a table.

        Of many racing callers one creates; the others get TableExistsError, or with
        ``if_not_exists`` the table as the winner defined it.

        Args:
            uri: a directory, or any URL that the storage room knows.
            schema: Arrow or Spark schema, or DDL text.
            record_key: columns that identify a row; none makes an append-only table.
            partition_by: columns whose values divide the table; keys are unique in each.
            ordering: of two rows with one key the greater value wins.
            table_type: ``cow`` rewrites a bucket on change, ``mor`` appends and masks.
            buckets: buckets a partition; 1 if partitioned, else 8.
            lock: ``file``, ``process``, ``lease``, ``zookeeper://h1:2181,h2:2181/path`` or
                ``none``; by default ``file`` on a disk, ``process`` in memory, else ``none``.
            policy: what two commits to one bucket mean. ``key``: they conflict if they wrote the
                same key, else the later one merges its rows again; ``file_group``: they conflict;
                ``merge``: never, the ordering column decides, then the order of commits.
            isolation: ``snapshot``, or ``serializable``: what a commit read counts too.
            unique: ``partition``: keys are unique in each partition.
            failed_writes: ``lazy``, or ``eager`` for a single writer.
            concurrency: ``multi_writer`` or ``single_writer``.
            if_not_exists: open a table that is there instead of raising.
            properties: options, see the options page.
            storage_options: handed to the file system of the URL.

        Raises:
            OptionError: a definition that cannot hold; nothing was written.
            SchemaError: a type that Spark and Parquet do not share.
            TableExistsError: there is a table.
        """
        definition = Definition(
            tuple(record_key),
            tuple(partition_by),
            ordering,
            table_type,
            buckets,
            policy,
            isolation,
            unique,
            Contract(concurrency, lock or "", failed_writes),
            dict(properties or {}),
        )
        try:
            return cls(create_site(uri, schema, definition, storage_options))
        except TableExistsError:
            if not if_not_exists:
                raise
            return cls.open(uri, storage_options=storage_options)

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        contract: Mapping[str, str] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Self:
        """Open a table; lock, mode and policy come from it.

        Args:
            uri: where it is.
            contract: what the caller takes the contract to be, or parts of it:
                ``concurrency``, ``lock``, ``failed_writes``.
            storage_options: handed to the file system of the URL.

        Raises:
            ContractError: the table has another contract.
            TableNotFoundError: there is none.
            UnsupportedFeatureError: a newer Plait wrote it.
        """
        return cls(open_expected(uri, storage_options, contract))

    # --- writing ---------------------------------------------------------------------------

    def writer(
        self,
        operation: str = "append",
        *,
        commit_id: str | None = None,
        on_conflict: str = "raise",
        on_duplicate: str = "raise",
        where: Where = None,
        partitions: str | None = None,
        read_from: Scan | Pinned | int | None = None,
    ) -> Writer:
        """Open a writer for one operation: append, insert, upsert, overwrite or delete.

        Args:
            operation: what the rows are for. ``append`` on a table with a key is ``insert``.
            commit_id: an idempotency key: seen before, the first result is given back, for ever.
            on_conflict: ``raise``, or ``retry`` to do the touched buckets again.
            on_duplicate: for ``insert`` of a key that is there: ``raise`` or ``skip``.
            where: for ``overwrite`` and ``delete``: the rows that go.
            partitions: ``dynamic``: ``overwrite`` just the partitions that the rows are in.
            read_from: the scan, snapshot or version that the rows were computed from. Whoever
                wrote the same keys since makes this commit a conflict, so no update is lost.

        Raises:
            InstantExpiredError: ``read_from`` was cleaned meanwhile; read again.
        """
        order = self._order(
            operation,
            read_set=read_set_of(self._site, read_from),
            commit_id=commit_id,
            on_conflict=on_conflict,
            on_duplicate=on_duplicate,
            where=where,
            partitions=partitions,
        )
        return self._writer(order)

    def transaction(self, *, commit_id: str | None = None, on_conflict: str = "raise") -> Block:
        """Open a transaction of several operations, decided at once; see ``Block``.

        Args:
            commit_id: an idempotency key, as in ``writer``.
            on_conflict: ``raise``, or ``retry`` to run everything again, unless it read.
        """
        before_writer(self._site)
        return Block(
            self._site,
            commit_id=commit_id,
            on_conflict=on_conflict,
            default=ArrowEngine(store=self._site.store),
            after=lambda: after_commit(self._site),
        )

    def stream(self, application: str) -> Stream:
        """Give one application's stream into this table: where it is, and how it goes on."""
        return Stream(self._site, application, after=lambda: after_commit(self._site))

    # --- reading ---------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where = None,
        *,
        version: int | None = None,
        as_of: Moment | None = None,
    ) -> Scan:
        """Pin a version and say what to read of it; nothing is read yet.

        The files stay until the scan is dropped: a lease is taken before the head is looked at.

        Args:
            columns: names, in the order wanted; all by default.
            where: SQL text, a pyarrow expression, or a parsed predicate.
            version: the version to read; the newest by default.
            as_of: an instant, an aware datetime, ISO text, or ms since the epoch.

        Raises:
            InstantNotFoundError: no such version.
            InstantExpiredError: it was cleaned.
        """
        snapshot, lease = pin(self._site, version, as_of)
        try:
            scan = Scan(self._site.store, snapshot, columns=columns, where=where)
        except BaseException:
            lease.release()
            raise
        release_with(scan, lease)
        return scan

    def changes(
        self,
        since: Bound,
        until: Bound | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Where = None,
    ) -> ChangeScan:
        """Say which rows the commits after ``since`` up to ``until`` changed, and how.

        Adds ``_change_type``, ``_commit_version`` and ``_commit_timestamp``; see ``ChangeScan``.
        The files stay until it is dropped: a lease is taken before the head is looked at.

        Args:
            since: a version, an instant, an aware datetime or ISO text; commits after it count,
                by the time at which they were completed.
            until: the same, and the last one that counts; the newest by default.
            columns: names of the table's, in the order wanted; all by default.
            where: as in ``scan``, on the columns of the table and on those that are added.

        Raises:
            InstantNotFoundError: no such version.
            InstantExpiredError: ``since`` was cleaned; ``oldest`` is the earliest that was not.

        >>> import pyarrow as pa
        >>> t = Table.create("memory://doc-changes", "id bigint, v bigint", record_key=["id"])
        >>> first = t.upsert(pa.table({"id": [1, 2], "v": [0, 0]})).version
        >>> result = t.upsert(pa.table({"id": [2, 3], "v": [7, 7]}))
        >>> rows = t.changes(since=first, columns=["id", "v", "_change_type"]).to_arrow()
        >>> sorted(tuple(row.values()) for row in rows.to_pylist())
        [(2, 0, 'update_preimage'), (2, 7, 'update_postimage'), (3, 7, 'insert')]
        """
        window, lease = pin_changes(self._site, since, until)
        try:
            scan = ChangeScan(self._site.store, window, columns=columns, where=where)
        except BaseException:
            lease.release()
            raise
        release_with(scan, lease)
        return scan

    def snapshot(self, *, version: int | None = None, as_of: Moment | None = None) -> Pinned:
        """Pin a version for good; its files stay until the snapshot is dropped."""
        snapshot, lease = pin(self._site, version, as_of)
        pinned = Pinned(self._site.store, snapshot)
        release_with(pinned, lease)
        return pinned

    @property
    def version(self) -> int:
        """The newest version."""
        return self._site.cache.refresh().version

    @property
    def schema(self) -> pa.Schema:
        """The columns, with field ids as metadata."""
        return self._site.cache.refresh().table.spec.schema.arrow

    @property
    def properties(self) -> dict[str, str]:
        """The options that were set on this table."""
        return self._site.cache.refresh().table.options.to_dict()

    def files(self) -> pa.Table:
        """Give one row a live file, with partition, bucket, rows, bytes, masked rows."""
        return self._site.cache.snapshot().files

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Give the decisions, newest first."""
        entries = self.timeline.decided
        return list(reversed(entries))[:limit]

    @property
    def timeline(self) -> TimelineView:
        """Every decision, oldest first, and what is pending."""
        return load_timeline(self._site)

    def find_commit(self, commit_id: str) -> CommitResult | None:
        """Find what a commit id led to; None if nothing, so far."""
        return find_result(self._site, commit_id)

    def describe(self) -> dict[str, object]:
        """Give what the table is, as plain values."""
        return describe(self._site)

    def locks(self) -> LockState:
        """Tell who holds the lock of the table, and since when.

        Raises:
            LockUnavailableError: the lock's service does not answer.
        """
        return load_locks(self._site)

    # --- upkeep ----------------------------------------------------------------------------

    def set(self, properties: Mapping[str, object]) -> CommitResult:
        """Set options, in one decision; raise OptionError for what is not known."""
        return set_properties(self._site, properties)

    def change_contract(self, *, wait_s: float = 0, **parts: str) -> CommitResult:
        """Change the contract, once no other writer is live.

        Args:
            wait_s: wait so long for living writers to end; 0 refuses at once.
            parts: ``concurrency``, ``lock``, ``failed_writes``, or some of them.

        Raises:
            ContractError: other writers are live. Nothing was written.
        """
        result = change_contract(self._site, parts, wait_s=wait_s)
        self._site = reopen(self._site)
        return result

    def explain(self, instant: str | Instant) -> Explanation:
        """Tell what an instant met on its way: who was first, where, what was done again."""
        return explain(self._site, Instant.parse(instant) if isinstance(instant, str) else instant)

    def rollback(self, instant: str | Instant | None = None) -> RollbackReport:
        """Roll back an instant, or every dead one if none is named."""
        if instant is None:
            return roll_back_failed(self._site, reason="dead when a rollback came by")
        named = Instant.parse(instant) if isinstance(instant, str) else instant
        return roll_back(self._site, named, reason="asked for")

    def plan_clean(self) -> CleanPlan:
        """Plan a clean; nothing is written."""
        return plan_clean(self._site)

    def clean(self, plan: CleanPlan | None = None) -> CleanReport:
        """Delete what no readable version, writer or reader needs: by a plan, or a fresh one."""
        return clean(self._site, plan)

    def verify(self, *, data: bool = True, history: bool = False) -> VerifyReport:
        """Check the invariants on storage; nothing is changed.

        Args:
            data: read every live file too.
            history: look at the timeline alone: isolation, lost updates, double decisions.
        """
        return verify(self._site, data=data, history=history)

    # --- inside ----------------------------------------------------------------------------

    @property
    def site(self) -> Site:
        """What engines and services work on; not part of the public interface."""
        return self._site

    def resume(self, order: Order, instant: Instant, engine: Engine) -> Writer:
        """Open a writer for an instant that another process of it began; for engines."""
        return Writer(
            self._site,
            order,
            default=engine,
            after=lambda: after_commit(self._site),
            instant=instant,
        )

    def _writer(self, order: Order) -> Writer:
        before_writer(self._site)
        return Writer(
            self._site,
            order,
            default=ArrowEngine(store=self._site.store),
            after=lambda: after_commit(self._site),
        )
