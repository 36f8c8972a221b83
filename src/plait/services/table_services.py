"""One-call table services: the half of ``Table`` that writes no rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from plait.definition.ttl import Ttl
from plait.model.decision import CommitResult
from plait.model.history import PendingEntry, ReaderEntry
from plait.model.instant import Instant
from plait.services.definition.alter import Altering
from plait.services.definition.sinks import add_replica, remove_replica
from plait.services.definition.upgrade import Upgrading
from plait.services.index.record_index import Indexing
from plait.services.maintenance.clean import (
    CleanPlan,
    CleanReport,
    CleanUndone,
    clean,
    plan_clean,
    undo_clean,
)
from plait.services.maintenance.expiry import ExpiryPlan, ExpiryReport, expire, plan_expiry
from plait.services.maintenance.leftovers import count_kept
from plait.services.table_maintenance import Maintenance
from plait.services.table_repair import Mends
from plait.services.table_restore import Restores
from plait.services.verify.checks import VerifyReport, verify
from plait.services.verify.foreign import ForeignFile, ForeignRemoval, list_foreign, remove_foreign
from plait.txn.read_pin import list_readers
from plait.txn.recovery import RollbackReport, list_pending, roll_back, roll_back_failed
from plait.txn.table_decisions import set_properties, set_ttl
from plait.txn.table_handle import TableHandle


class Services(Restores, Maintenance, Mends, Altering, Indexing, Upgrading):
    """One-call table services. Only a restore and an expiry change rows."""

    _handle: TableHandle

    def set(self, properties: Mapping[str, object]) -> CommitResult:
        """Set options in one commit; raise OptionError for an unknown one."""
        return set_properties(self._handle, properties)

    def set_ttl(self, ttl: Ttl | str | None) -> CommitResult:
        """Set the time to live of rows in one commit; None: they live for ever.

        A row whose time is over may disappear at any time from then on; ``expire`` takes it away.

        Args:
            ttl: ``Ttl``, or its text: a column of dates or timestamps and a time, such as
                ``"day 30d"``; or ``"written 30d partition"``; or ``"written 30d row"`` with the
                property ``rows.written``.

        Raises:
            OptionError, SchemaMismatchError: it does not fit the table; nothing was written.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-ttl", "id bigint, day date", ttl="day 30d")
        >>> t.set_ttl(None).version
        1
        """
        return set_ttl(self._handle, Ttl.of(ttl))

    def add_replica(self, replica: str) -> CommitResult:
        """Have every writer send its rows to one more sink first, from this commit on.

        The sink lacks what the table has already, until it is repaired. A writer that began
        before and would commit without the sink gets a RetryableConflictError.

        Args:
            replica: ``NAME=ADDRESS``, without passwords: the place of a table; or a database and
                its table, such as ``serving=sqlite:///serving.db#flights``; or a topic, such as
                ``log=kafka://host:9092/flights``.

        Raises:
            OptionError: it is no such text, or does not fit the table; nothing was written.

        >>> from plait import Table
        >>> t = Table.create("memory://doc-add-replica", "id bigint", record_key=["id"])
        >>> t.add_replica("eu=memory://doc-add-replica-eu").version
        1
        >>> t.remove_replica("eu").version
        2
        """
        result, addresses = add_replica(self._handle, replica)
        self._handle = replace(self._handle, consent=self._handle.consent.also(*addresses))
        return result

    def remove_replica(self, name: str) -> CommitResult:
        """Have writers send nothing more to a sink; raise OptionError if the table has none."""
        return remove_replica(self._handle, name)

    def plan_expire(self, ttl: str | Ttl | None = None) -> ExpiryPlan:
        """Plan what an expiry would take away now; write nothing.

        Args:
            ttl: a time to live for this time only, such as ``"at 30d row"``; by default that of
                the table.

        Raises:
            ClockUnavailableError: the store reports no time.
            OptionError: ``ttl`` does not fit the table, or sinks would keep the rows.
            SchemaMismatchError: there is no such column.
        """
        return plan_expiry(self._handle, Ttl.of(ttl))

    def expire(self, plan: ExpiryPlan | None = None) -> ExpiryReport:
        """Take rows away whose time is over; plan first if needed.

        Old versions stay readable until a clean. No writer fails because of it.

        Args:
            plan: what to do, and by which time; nothing else is taken away.

        Raises:
            ClockUnavailableError: the store reports no time.
            SchemaMismatchError: the column is gone that tells the time.
            RolledBackError: it was taken for dead.
            CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        """
        return expire(self._handle, plan or plan_expiry(self._handle))

    def writers(self) -> tuple[PendingEntry, ...]:
        """Return the live and the dead writers, oldest first. Each keeps the files of its base.

        Raises:
            ClockUnavailableError: the store reports no time, so live and dead are unknown.
        """
        entries = sorted(list_pending(self._handle), key=lambda entry: entry.instant)
        kept = count_kept(self._handle, [entry.v0 for entry in entries])
        return tuple(replace(e, keeps=n) for e, n in zip(entries, kept, strict=True))

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

    def rollback(self, instant: str | Instant | None = None) -> RollbackReport:
        """Roll back an instant, or every instant of a dead writer if none is named."""
        if instant is None:
            return roll_back_failed(self._handle, reason="found dead by a rollback")
        return roll_back(self._handle, Instant.of(instant), reason="requested")

    def plan_clean(self, *, now: bool = False) -> CleanPlan:
        """Plan a clean; write nothing.

        Args:
            now: leave no grace: delete the files at once, so that the clean cannot be undone.
        """
        return plan_clean(self._handle, now=now)

    def clean(self, plan: CleanPlan | None = None) -> CleanReport:
        """Let go of versions that need not stay readable; plan first if needed.

        Their files are deleted by a clean that comes after the option ``clean.grace``, unless a
        reader or writer still needs them. Until then ``undo_clean`` takes the clean back.
        """
        return clean(self._handle, plan)

    def undo_clean(self, *, since: int | None = None) -> CleanUndone:
        """Make the versions readable again that cleans let go of within ``clean.grace``.

        Set the options ``clean.retain.*`` first, since the next clean goes by them.

        Args:
            since: undo only the cleans of this version or later.
        """
        return undo_clean(self._handle, since=since)

    def foreign(self) -> tuple[ForeignFile, ...]:
        """List the files in the table's directories that no decision names, and whose they are."""
        return list_foreign(self._handle)

    def remove_foreign(self, files: Iterable[ForeignFile]) -> ForeignRemoval:
        """Remove foreign files where a decision proves that nobody will ever need them.

        An instant that nobody knows is rolled back first. Each file is judged again; those of
        writers at work and those with other names stay.
        """
        return remove_foreign(self._handle, files)

    def verify(self, *, data: bool = True, history: bool = False) -> VerifyReport:
        """Check the invariants on storage; change nothing.

        Args:
            data: also read every live file.
            history: check only the timeline: isolation, lost updates, double decisions.
        """
        return verify(self._handle, data=data, history=history)
