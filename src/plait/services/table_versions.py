"""``Table.versions``: savepoints, and the way back to an older version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, overload

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
from plait.txn.table_handle import Namespace, require_plan
from plait.txn.time_travel import Moment


class Versions(Namespace):
    """The versions of a table: which to keep, and how to go back to one.

    ``dry_run=True`` returns the plan of a call and writes nothing; the call with it executes it.
    """

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

    @overload
    def restore(
        self,
        plan: RestorePlan | None = None,
        *,
        version: int | None = None,
        as_of: Moment | None = None,
        savepoint: str | None = None,
        replay: bool = False,
        dry_run: Literal[False] = False,
    ) -> RestoreReport: ...
    @overload
    def restore(
        self,
        plan: None = None,
        *,
        version: int | None = None,
        as_of: Moment | None = None,
        savepoint: str | None = None,
        replay: bool = False,
        dry_run: Literal[True],
    ) -> RestorePlan: ...
    def restore(
        self,
        plan: RestorePlan | None = None,
        *,
        version: int | None = None,
        as_of: Moment | None = None,
        savepoint: str | None = None,
        replay: bool = False,
        dry_run: bool = False,
    ) -> RestoreReport | RestorePlan:
        """Give the table the rows of an older version, in one new version.

        The versions since stay in the history and can be read. Their commits are undone: their
        commit ids and stream epochs raise UndoneError when they are sent again. Writers at work
        get IncompatibleConflictError. To undo a restore, restore the version before it.

        Args:
            plan: of a restore or an undo; nothing that it does not show is undone.
            version: the version whose rows the table gets.
            as_of: or a time or an instant.
            savepoint: or the name of a savepoint.
            replay: let what is undone be applied again; see ``replay``.
            dry_run: only return the plan.

        Raises:
            RestoreRefusedError: rows were committed since the plan was made.
            InstantError: there is no such version, or it was cleaned.
        """
        require_plan(
            RestorePlan, plan, dry_run=dry_run, version=version, as_of=as_of, savepoint=savepoint
        )
        if plan is None:
            plan = plan_restore(self._handle, self._target(version, as_of, savepoint))
        return plan if dry_run else restore(self._handle, plan, replay=replay)

    @overload
    def undo(
        self,
        plan: RestorePlan | None = None,
        *,
        replay: bool = False,
        dry_run: Literal[False] = False,
    ) -> RestoreReport: ...
    @overload
    def undo(
        self, plan: None = None, *, replay: bool = False, dry_run: Literal[True]
    ) -> RestorePlan: ...
    def undo(
        self, plan: RestorePlan | None = None, *, replay: bool = False, dry_run: bool = False
    ) -> RestoreReport | RestorePlan:
        """Undo the newest commit of rows that the table contains; see ``restore``.

        A second call undoes the commit before. To take an undo back, restore the version before it.

        Args:
            plan: what to undo.
            replay: let what is undone be applied again; see ``replay``.
            dry_run: only return the plan.

        Raises:
            InstantNotFoundError: the table contains no commit of rows.
            RestoreRefusedError: rows were committed since the plan was made.
        """
        require_plan(RestorePlan, plan, dry_run=dry_run)
        planned = plan or plan_undo(self._handle)
        return planned if dry_run else restore(self._handle, planned, replay=replay)

    @overload
    def replay(
        self,
        plan: ReplayPlan | None = None,
        *,
        applications: Iterable[str] | None = None,
        commit_ids: Iterable[str] | None = None,
        dry_run: Literal[False] = False,
    ) -> ReplayReport: ...
    @overload
    def replay(
        self,
        plan: None = None,
        *,
        applications: Iterable[str] | None = None,
        commit_ids: Iterable[str] | None = None,
        dry_run: Literal[True],
    ) -> ReplayPlan: ...
    def replay(
        self,
        plan: ReplayPlan | None = None,
        *,
        applications: Iterable[str] | None = None,
        commit_ids: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> ReplayReport | ReplayPlan:
        """Let streams and commit ids that a restore undid be applied again.

        Each stream continues after the last epoch that the table contains. The rows do not come
        back by themselves: the jobs send them again.

        Args:
            plan: what to let through; nothing else is.
            applications: the streams; with neither argument, everything that is undone.
            commit_ids: the commit ids.
            dry_run: only return the plan.

        Raises:
            OptionError: nothing of that name is undone.
        """
        require_plan(
            ReplayPlan, plan, dry_run=dry_run, applications=applications, commit_ids=commit_ids
        )
        if plan is not None:
            applications = [each.application for each in plan.applications]
            commit_ids = plan.commit_ids
        if dry_run:
            return plan_replay(self._handle, applications, commit_ids)
        return replay(self._handle, applications, commit_ids)

    def _target(self, version: int | None, as_of: Moment | None, savepoint: str | None) -> int:
        found = find_target(self._handle, version=version, as_of=as_of, savepoint=savepoint)
        if found is None:
            message = "a restore needs a version, a time or a savepoint"
            hint = "pass version=, as_of= or savepoint=; undo() undoes the newest commit"
            raise OptionError(message, hint=hint, key="version", value="")
        return found
