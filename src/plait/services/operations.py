"""One-call table services: the half of ``Table`` that changes no rows."""

from __future__ import annotations

from collections.abc import Mapping

from plait.model.decision import CommitResult
from plait.model.history import PendingEntry, ReaderEntry
from plait.model.instant import Instant
from plait.services.clean import CleanPlan, CleanReport, clean, plan_clean
from plait.services.verify import VerifyReport, verify
from plait.txn.definition import set_properties
from plait.txn.read_pin import list_readers
from plait.txn.recovery import RollbackReport, list_pending, roll_back, roll_back_failed
from plait.txn.table_handle import TableHandle


class Services:
    """One-call table services. None of them changes a row."""

    _handle: TableHandle

    def set(self, properties: Mapping[str, object]) -> CommitResult:
        """Set options in one commit; raise OptionError for an unknown one."""
        return set_properties(self._handle, properties)

    def writers(self) -> tuple[PendingEntry, ...]:
        """Return the live and the dead writers, oldest first. Each keeps the files of its base.

        Raises:
            ClockUnavailableError: the store reports no time, so live and dead are unknown.
        """
        return tuple(sorted(list_pending(self._handle), key=lambda entry: entry.instant))

    def readers(self) -> tuple[ReaderEntry, ...]:
        """Return the readers that keep versions from being cleaned, oldest version first.

        A reader that may not write to the table has no read pin and is not listed.

        Raises:
            ClockUnavailableError: the store reports no time, so live and dead are unknown.
        """
        return list_readers(self._handle)

    def rollback(self, instant: str | Instant | None = None) -> RollbackReport:
        """Roll back an instant, or every instant of a dead writer if none is named."""
        if instant is None:
            return roll_back_failed(self._handle, reason="found dead by a rollback")
        return roll_back(self._handle, Instant.of(instant), reason="requested")

    def plan_clean(self) -> CleanPlan:
        """Plan a clean; write nothing."""
        return plan_clean(self._handle)

    def clean(self, plan: CleanPlan | None = None) -> CleanReport:
        """Delete files that no readable version, writer or reader needs; plan first if needed."""
        return clean(self._handle, plan)

    def verify(self, *, data: bool = True, history: bool = False) -> VerifyReport:
        """Check the invariants on storage; change nothing.

        Args:
            data: also read every live file.
            history: check only the timeline: isolation, lost updates, double decisions.
        """
        return verify(self._handle, data=data, history=history)
