"""``Table.inspect``: look at a table, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.errors import OptionError
from plait.interop.publication import PublicationStatus, list_publications
from plait.model.decision import CommitResult
from plait.model.history import HistoryEntry, LockState, PendingEntry, ReaderEntry, TimelineView
from plait.model.instant import Instant
from plait.model.request import require_commit_id
from plait.queries.compare import Comparison, compare
from plait.queries.describe import describe, load_history, load_locks, load_timeline
from plait.queries.explain import Explanation, explain
from plait.queries.table_queries import Reads, open_scan
from plait.read.scan import Scan
from plait.services.maintenance.leftovers import count_kept
from plait.txn.read_pin import list_readers
from plait.txn.recovery import list_pending
from plait.txn.table_handle import Namespace
from plait.txn.tokens import find_result

if TYPE_CHECKING:
    from plait.expr import Where


class Inspect(Namespace):
    """What a table is, what happened to it, and who works on it. No call changes anything."""

    def describe(self) -> dict[str, object]:
        """Return the definition and the size of the table as plain values."""
        return describe(self._handle)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the decisions, newest first."""
        return load_history(self._handle, limit)

    def timeline(self) -> TimelineView:
        """Return every decision, oldest first, and the pending instants."""
        return load_timeline(self._handle)

    def files(self) -> pa.Table:
        """Return one row per live file, with partition, bucket, rows, bytes, masked rows."""
        return self._handle.cache.snapshot().files

    def find_commit(self, commit_id: str) -> CommitResult | None:
        """Return the result of a commit id; None if it has not committed."""
        require_commit_id(commit_id)
        return find_result(self._handle, commit_id)

    def explain(self, instant: str | Instant) -> Explanation:
        """Return the conflicts that an instant met, and which work it repeated."""
        return explain(self._handle, Instant.of(instant))

    def compare(
        self,
        other: Reads | Scan,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        *,
        limit: int = 20,
        spark: object = None,
    ) -> Comparison:
        """Compare the rows of this table with those of another table, or of any scan.

        The two may be laid out in different ways: partitions, buckets and files do not matter.
        Memory is bounded. Every row is read once; where the tables differ, some are read again.

        Args:
            other: a table, or a scan of one: of an older version, for example of this table.
            columns: the columns to compare; all by default.
            where: the rows of both tables to compare; all by default. A scan has its own.
            limit: how many differing rows to return at most, counted by key.
            spark: a session whose executors read the rows; this process by default.

        Raises:
            SchemaMismatchError: the columns differ, by name or type.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-compare", "id bigint, v bigint", record_key=["id"])
        >>> first = t.upsert(pa.table({"id": [1, 2], "v": [0, 0]})).version
        >>> result = t.upsert(pa.table({"id": [2, 3], "v": [7, 7]}))
        >>> found = t.inspect.compare(t.scan(version=first))
        >>> found.equal, found.missing, found.changed
        (False, 1, 1)
        """
        if not isinstance(other, (Scan, Reads)):
            message = f"cannot compare a table with {type(other).__name__}"
            raise OptionError(message, hint="pass a Table or a Scan", key="other")
        theirs = other if isinstance(other, Scan) else other.scan(columns, where)
        return compare(open_scan(self._handle, columns, where), theirs, limit=limit, spark=spark)

    def publications(self) -> tuple[PublicationStatus, ...]:
        """Return how far the table is published in each format that it names.

        Raises:
            StorageError: the store failed.
        """
        return list_publications(self._handle)

    def locks(self) -> LockState:
        """Return who holds the lock of the table, and since when.

        Raises:
            LockUnavailableError: the lock's service does not answer.
        """
        return load_locks(self._handle)

    def readers(self) -> tuple[ReaderEntry, ...]:
        """Return the readers that keep versions from being cleaned, oldest version first.

        A reader that may not write to the table has no read pin and is not listed.

        Raises:
            ClockUnavailableError: the store reports no time, so live and dead are unknown.
        """
        entries = list_readers(self._handle)
        kept = count_kept(self._handle, [entry.version for entry in entries])
        counted = zip(entries, kept, strict=True)
        return tuple(replace(e, keeps=n if e.alive else 0) for e, n in counted)

    def writers(self) -> tuple[PendingEntry, ...]:
        """Return the live and the dead writers, oldest first. Each keeps the files of its base.

        Raises:
            ClockUnavailableError: the store reports no time, so live and dead are unknown.
        """
        entries = sorted(list_pending(self._handle), key=lambda entry: entry.instant)
        kept = count_kept(self._handle, [entry.v0 for entry in entries])
        return tuple(replace(e, keeps=n) for e, n in zip(entries, kept, strict=True))
