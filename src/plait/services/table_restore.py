"""One-call savepoints, restores and replays: the part of ``Table`` that undoes commits."""

from __future__ import annotations

from collections.abc import Iterable

from plait.errors import OptionError
from plait.model.decision import Savepoint
from plait.services.maintenance.replay import ReplayPlan, ReplayReport, plan_replay, replay
from plait.services.maintenance.restore import (
    RestorePlan,
    RestoreReport,
    plan_restore,
    plan_undo,
    restore,
)
from plait.services.maintenance.savepoint import drop_savepoint, find_target, set_savepoint
from plait.txn.moments import Moment
from plait.txn.table_handle import TableHandle


class Restores:
    """One-call savepoints, restores and replays."""

    _handle: TableHandle

    @property
    def savepoints(self) -> tuple[Savepoint, ...]:
        """The savepoints, by name."""
        return self._handle.cache.refresh().lineage.savepoints

    def savepoint(
        self, name: str, *, version: int | None = None, as_of: Moment | None = None
    ) -> Savepoint:
        """Keep a version readable under a name, the newest one by default.

        No clean deletes a file of it until ``drop_savepoint``. To set the same savepoint again
        changes nothing.

        Raises:
            OptionError: an invalid name, or one that another version has.
            InstantError: the version cannot be read.
        """
        return set_savepoint(self._handle, name, version=version, as_of=as_of)

    def drop_savepoint(self, name: str) -> Savepoint:
        """Let a savepoint go; raise InstantNotFoundError if there is none."""
        return drop_savepoint(self._handle, name)

    def plan_restore(
        self,
        *,
        version: int | None = None,
        as_of: Moment | None = None,
        savepoint: str | None = None,
    ) -> RestorePlan:
        """Show what a restore would undo; write nothing.

        Args:
            version: the version whose rows the table gets.
            as_of: or a time or an instant.
            savepoint: or the name of a savepoint.

        Raises:
            InstantError: there is no such version, or it was cleaned.
        """
        return plan_restore(self._handle, self._target(version, as_of, savepoint))

    def restore(
        self,
        plan: RestorePlan | None = None,
        *,
        version: int | None = None,
        as_of: Moment | None = None,
        savepoint: str | None = None,
        replay: bool = False,
    ) -> RestoreReport:
        """Give the table the rows of an older version, in one new version.

        The versions since stay in the history and can be read. Their commits are undone: their
        commit ids and stream epochs raise UndoneError when they are sent again. Writers at work
        get IncompatibleConflictError. To undo a restore, restore the version before it.

        Args:
            plan: from ``plan_restore`` or ``plan_undo``; nothing that it does not show is undone.
            version: or the version whose rows the table gets.
            as_of: or a time or an instant.
            savepoint: or the name of a savepoint.
            replay: let what is undone be applied again; see ``replay``.

        Raises:
            RestoreRefusedError: rows were committed since the plan was made.
            InstantError: there is no such version, or it was cleaned.
        """
        if plan is None:
            plan = plan_restore(self._handle, self._target(version, as_of, savepoint))
        elif not isinstance(plan, RestorePlan):
            message = f"restore takes a plan, not {plan!r}"
            hint = "name what to restore: version=, as_of= or savepoint="
            raise OptionError(message, hint=hint, key="plan", value=str(plan))
        elif any(named is not None for named in (version, as_of, savepoint)):
            message = "pass either a plan or a version"
            raise OptionError(message, hint="the plan names its version", key="plan", value="")
        return restore(self._handle, plan, replay=replay)

    def plan_undo(self) -> RestorePlan:
        """Show what ``undo`` would do; write nothing.

        Raises:
            InstantNotFoundError: the table contains no commit of rows.
        """
        return plan_undo(self._handle)

    def undo(self, plan: RestorePlan | None = None, *, replay: bool = False) -> RestoreReport:
        """Undo the newest commit of rows that the table contains; see ``restore``.

        A second call undoes the commit before. To take an undo back, restore the version before it.

        Raises:
            InstantNotFoundError: the table contains no commit of rows.
            RestoreRefusedError: rows were committed since the plan was made.
        """
        return restore(self._handle, plan or plan_undo(self._handle), replay=replay)

    def plan_replay(
        self, applications: Iterable[str] | None = None, commit_ids: Iterable[str] | None = None
    ) -> ReplayPlan:
        """Show what is undone and would be let through by ``replay``; write nothing."""
        return plan_replay(self._handle, applications, commit_ids)

    def replay(
        self, applications: Iterable[str] | None = None, commit_ids: Iterable[str] | None = None
    ) -> ReplayReport:
        """Let streams and commit ids that a restore undid be applied again.

        Each stream continues after the last epoch that the table contains. The rows do not come
        back by themselves: the jobs send them again.

        Args:
            applications: the streams; with neither argument, everything that is undone.
            commit_ids: the commit ids.

        Raises:
            OptionError: nothing of that name is undone.
        """
        return replay(self._handle, applications, commit_ids)

    def _target(self, version: int | None, as_of: Moment | None, savepoint: str | None) -> int:
        found = find_target(self._handle, version=version, as_of=as_of, savepoint=savepoint)
        if found is None:
            message = "a restore needs a version, a time or a savepoint"
            hint = "pass version=, as_of= or savepoint=; undo() undoes the newest commit"
            raise OptionError(message, hint=hint, key="version", value="")
        return found
