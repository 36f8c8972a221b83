"""One-call reads: the part of ``Table`` that reads rows, and what a reader needs to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from plait.errors import TableNotFoundError
from plait.expr import Where
from plait.model.consent import Consent
from plait.model.plan import Snapshot
from plait.model.store_address import StoreAddress
from plait.queries.lookup import look_up
from plait.queries.opening import open_expected
from plait.queries.pins import pin, pin_changes
from plait.read.change_scan import ChangeScan
from plait.read.plan import filter_where
from plait.read.scan import Asked, Pinned, Scan
from plait.read.splits import require_shared
from plait.state.state import TableState
from plait.storage import open_store
from plait.txn.read_pin import release_with
from plait.txn.table_handle import Namespace, TableHandle
from plait.txn.time_travel import Bound, Moment


def open_scan(
    handle: TableHandle,
    columns: str | Sequence[str] | None = None,
    where: Where = None,
    *,
    version: int | None = None,
    as_of: Moment | None = None,
    limit: int | None = None,
) -> Scan:
    """Pin a version and return a scan of it; see ``Table.scan``."""
    snapshot, lease = pin(handle, version, as_of, filter_where(where))
    try:
        scan = Scan(
            handle.store,
            snapshot,
            columns=columns,
            where=where,
            limit=limit,
            origin=_Opened(handle),
        )
    except BaseException:
        lease.release()
        raise
    release_with(scan, lease)
    return scan


@dataclass(frozen=True, slots=True)
class _Opened:
    """The table that a scan is of."""

    handle: TableHandle

    def select(self, version: int, where: Where) -> Snapshot:
        """Return a version of a large table anew, with the bounds that a predicate looks at."""
        store, chosen = self.handle.store, filter_where(where)

        def load(state: TableState) -> Snapshot:
            return state.snapshot(store, version=version, file_filter=chosen)

        return self.handle.cache.ask(load, version=version)

    def pickled(self, asked: Asked) -> tuple[Callable[..., Scan], tuple[object, ...]]:
        """Return how another process opens the same scan: the table, and what was asked of it."""
        return scan_again, (self.handle.store.address, self.handle.identity, asked)


def scan_again(address: StoreAddress, identity: str, asked: Asked) -> Scan:
    """Open the table of a scan that was pickled, and pin the same version in this process.

    Raises:
        CapabilityMissingError: the table is in the memory of another process.
        ConsentError: ZooKeeper decides the slots, and ``PLAIT_ALLOW`` does not name its servers.
        InstantExpiredError: the version was cleaned in the meantime.
        TableNotFoundError: the table is gone, or another one is in its place.
    """
    require_shared(open_store(address))
    handle = open_expected(address.uri, dict(address.options), consent=Consent.of(None))
    if handle.identity != identity:
        message = f"the table at {address.uri} is not the one that was scanned"
        raise TableNotFoundError(message, hint="scan the table that is there now", uri=address.uri)
    version, columns, where, limit = asked
    return open_scan(handle, columns, where, version=version, limit=limit)


class Reads(Namespace):
    """One-call reads. Each looks at the newest version, unless it is told another."""

    def scan(
        self,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        *,
        version: int | None = None,
        as_of: Moment | None = None,
        limit: int | None = None,
    ) -> Scan:
        """Pin a version and return a scan of it; no data is read yet.

        A read pin keeps the files until the scan is dropped.

        Args:
            columns: column names, in the order wanted; all by default. With the property
                ``rows.written`` also ``_written``, the version that wrote the row.
            where: SQL text or a pyarrow expression. Arrow evaluates an expression for each row, so
                Arrow says what it makes of nulls and NaN. It cannot be passed to Spark.
            version: the version to read; the newest by default.
            as_of: an instant, an aware datetime, ISO text, or ms since the epoch.
            limit: the most rows to return; any of them. No more files are opened than these need.

        Raises:
            InstantNotFoundError: no such version.
            InstantExpiredError: the version was cleaned.
        """
        return open_scan(self._handle, columns, where, version=version, as_of=as_of, limit=limit)

    def head(self, rows: int = 5, columns: str | Sequence[str] | None = None) -> pa.Table:
        """Return some rows of the newest version, in no particular order.

        Args:
            rows: how many.
            columns: column names, in the order wanted; all by default.

        Raises:
            OptionError: ``rows`` is no number of rows.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-head", "id bigint", record_key=["id"])
        >>> t.upsert(pa.table({"id": range(100)})).version
        1
        >>> t.head(3).num_rows
        3
        """
        return self.scan(columns).head(rows)

    def get(self, keys: object, columns: str | Sequence[str] | None = None) -> pa.Table:
        """Return the rows of some record keys, in no particular order.

        With a record index, at most two data files are opened for a key, whatever the number of
        partitions and of upserts; see ``Table.index``. Without one, the bucket of the key is
        read in each partition.

        Args:
            keys: Arrow data, a frame, or a list of values; of tuples or dicts if the key has
                several columns. A key that the table does not have gives no row. Values must
                fit the key columns without loss.
            columns: column names, in the order wanted; all by default.

        Raises:
            OptionError: the table has no record key.
            SchemaMismatchError, BadRecordError: the keys do not fit the key columns.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-get", "id bigint, v bigint", record_key=["id"])
        >>> t.upsert(pa.table({"id": [1, 2], "v": [10, 20]})).version
        1
        >>> t.get([2, 3]).to_pylist()
        [{'id': 2, 'v': 20}]
        """
        return look_up(self._handle, keys, columns).rows

    def changes(
        self,
        since: Bound,
        until: Bound | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
    ) -> ChangeScan:
        """Return the rows that the commits after ``since`` up to ``until`` changed.

        Adds ``_change_type``, ``_commit_version`` and ``_commit_timestamp``; see ``ChangeScan``.
        A read pin keeps the files until the scan is dropped.

        Args:
            since: a version, an instant, an aware datetime or ISO text. Commits completed after
                it are included.
            until: the last one included; the newest by default. A time must not be later than the
                newest commit, because another one may still be completed before that time.
            columns: columns of the table, in the order wanted; all by default.
            where: as in ``scan``, on the columns of the table and on the added ones.

        Raises:
            InstantNotFoundError: no such version.
            InstantExpiredError: ``since`` was cleaned; ``oldest`` is the oldest readable version.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-changes", "id bigint, v bigint", record_key=["id"])
        >>> first = t.upsert(pa.table({"id": [1, 2], "v": [0, 0]})).version
        >>> result = t.upsert(pa.table({"id": [2, 3], "v": [7, 7]}))
        >>> rows = t.changes(since=first, columns=["id", "v", "_change_type"]).to_arrow()
        >>> sorted(tuple(row.values()) for row in rows.to_pylist())
        [(2, 0, 'update_preimage'), (2, 7, 'update_postimage'), (3, 7, 'insert')]
        """
        window, lease = pin_changes(self._handle, since, until)
        try:
            scan = ChangeScan(self._handle.store, window, columns=columns, where=where)
        except BaseException:
            lease.release()
            raise
        release_with(scan, lease)
        return scan

    def snapshot(self, *, version: int | None = None, as_of: Moment | None = None) -> Pinned:
        """Pin a version; its files are kept until the snapshot is dropped."""
        snapshot, lease = pin(self._handle, version, as_of)
        pinned = Pinned(self._handle.store, snapshot, _Opened(self._handle))
        release_with(pinned, lease)
        return pinned

    @property
    def version(self) -> int:
        """The newest version."""
        return self._handle.cache.refresh().version

    @property
    def schema(self) -> pa.Schema:
        """The columns, with field ids as metadata."""
        return self._handle.cache.refresh().table.spec.schema.arrow

    @property
    def properties(self) -> dict[str, str]:
        """The options set on this table."""
        return self._handle.cache.refresh().table.options.to_dict()
