"""Restore: give the table the rows of an older version, in one decision that changes no other.

Files that were live then are live again, with the rows hidden that were hidden then; the commits
since are undone (``state/lineage.py``). A restore undoes no commit that its plan did not show.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.definition.evolving import named_as_in
from plait.definition.replicated_table import require_no_replicas
from plait.errors import InstantNotFoundError, RestoreRefusedError
from plait.model.changes import ADDED, MASKED, PATHS, Changes, WriteStats
from plait.model.decision import SCOPE_TABLE, Decision, Replayed, Restored, Scope
from plait.model.instant import Action, Operation
from plait.model.plain import Plain
from plait.model.plan import TableSpec
from plait.services.maintenance.replay import lost_streams, set_back, undone_commit_ids
from plait.state.lineage import Versions, minus
from plait.state.state import TableState
from plait.txn.matrix import DATA, SWAPS
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client

_OF_ROWS = frozenset(operation.value for operation in (*DATA, Operation.REPUSH_SOURCE))
_SHOWN = _OF_ROWS | {Operation.EXPIRE.value}
"""A restore may bring expired rows back, until the next expiry: a plan shows that."""
_OF_LINEAGE = _OF_ROWS | {
    operation.value for operation in (Operation.RESTORE, Operation.REPLAY, Operation.SCHEMA, *SWAPS)
}
"""A restore over such a decision changes the table, also where no file differs."""
_VECTOR = [field.name for field in MASKED if field.name not in ("path", "rows")]


@dataclass(frozen=True, slots=True)
class RestoredCommit(Plain):
    """A commit of rows or an expiry that a restore undoes, or brings back."""

    KEYS = "version operation completed=completed_ms commit_id"

    version: int
    operation: str
    completed_ms: int
    commit_id: str | None


@dataclass(frozen=True, slots=True)
class RestorePlan(Plain):
    """What a restore would undo, as of a version."""

    KEYS = (
        "version to undone=reverted returned applications commit_ids files_added files_removed "
        "files_masked rows_before rows_after"
    )

    version: int
    """The newest version when it was planned."""
    to: int
    """The version whose rows the table gets."""
    reverted: tuple[RestoredCommit, ...]
    """Commits of rows and expiries that it undoes, newest first."""
    returned: tuple[RestoredCommit, ...]
    """Commits that an earlier restore undid and this one brings back, newest first."""
    applications: tuple[str, ...]
    """Streams that stop with UndoneError until a replay, whichever restore undid them."""
    commit_ids: tuple[str, ...]
    """Commit ids that raise UndoneError until a replay, likewise."""
    files_added: int
    files_removed: int
    files_masked: int
    """Files of which other rows are hidden then."""
    rows_before: int
    rows_after: int


@dataclass(frozen=True, slots=True)
class RestoreReport(Plain):
    """The result of a restore."""

    plan: RestorePlan
    """What it undid, as of the version before its own."""
    version: int | None
    """The version of its decision; None if the table was as wanted already."""


def plan_restore(handle: TableHandle, to: int) -> RestorePlan:
    """Plan a restore on the newest version; write nothing.

    Raises:
        InstantNotFoundError, InstantExpiredError: the version cannot be read.
    """
    return _Work.of(handle, handle.cache.refresh(), to).plan


def plan_undo(handle: TableHandle) -> RestorePlan:
    """Plan to undo the newest commit of rows that the table contains; write nothing.

    Raises:
        InstantNotFoundError: the table contains no commit of rows.
        InstantExpiredError: the version before it was cleaned.
    """
    state = handle.cache.refresh()
    spans = state.lineage.spans(state.version)
    commits = _commits(handle, state, spans, _OF_ROWS)
    if not commits:
        raise InstantNotFoundError(
            "there is no commit to undo", hint="see Table.inspect.history()", version=state.version
        )
    return _Work.of(handle, state, commits[0].version - 1).plan


def restore(handle: TableHandle, plan: RestorePlan, *, replay: bool = False) -> RestoreReport:
    """Restore what was planned, unless rows were committed since.

    Writers that are at work fail with IncompatibleConflictError. Services go on.

    Args:
        handle: the table.
        plan: what is to be undone.
        replay: let streams and commit ids that are undone then be applied again, in the same
            decision.

    Raises:
        RestoreRefusedError: the plan does not show a commit; nothing was written.
        InstantExpiredError: the version was cleaned meanwhile.
        ContractError: this client was opened under another contract.
        OptionError: the table's definition names sinks, which cannot follow.
        RepushOpenError: the version has other columns, and a repush copies those that there are.
        CommitOutcomeUnknownError: the store does not say.
    """
    done: list[RestorePlan] = []

    def draft(state: TableState) -> Decision | None:
        require_no_replicas(state.table, "a restore")
        _require_shown(handle, state, plan)
        work = _Work.of(handle, state, plan.to)
        done[:] = [work.plan]
        return work.draft(replay=replay)

    decision = publish_service(handle, draft)
    return RestoreReport(done[0], None if decision is None else decision.version)


def _require_shown(handle: TableHandle, state: TableState, plan: RestorePlan) -> None:
    """Refuse a restore that would undo what the plan did not show."""
    if state.version == plan.version:
        return
    rows = state.commits(handle.store, since=plan.version)
    pairs = zip(rows["version"].to_pylist(), rows["operation"].to_pylist(), strict=True)
    newer = [version for version, operation in pairs if operation in _OF_LINEAGE]
    if newer:
        message = (
            f"the restore was planned on version {plan.version}, and {len(newer)} commits came "
            f"since, the first in version {newer[0]}"
        )
        hint = "plan again, and look at what it would undo; stop writers if this happens again"
        raise RestoreRefusedError(
            message, hint=hint, planned=plan.version, version=state.version, versions=newer
        )


@dataclass(frozen=True, slots=True)
class _Work:
    """One restore on one version."""

    handle: TableHandle
    state: TableState
    plan: RestorePlan
    changes: Changes
    reverted: tuple[Versions, ...]
    kept: tuple[Versions, ...]
    """What the table contains after it."""
    matters: bool
    spec: TableSpec
    """How rows lay at the version that it restores."""

    @classmethod
    def of(cls, handle: TableHandle, state: TableState, to: int) -> _Work:
        store, head = handle.store, state.version
        before = state.snapshot(store)
        after = state.snapshot(store, version=to)
        seen, kept = state.lineage.spans(head), state.lineage.spans(to)
        reverted, returned = minus(seen, kept), minus(kept, seen)
        changes = changes_between(before.files, after.files, state.folded(store).masks)
        plan = RestorePlan(
            head,
            to,
            _commits(handle, state, reverted),
            _commits(handle, state, returned),
            lost_streams(state, kept),
            undone_commit_ids(store, state, kept),
            changes.added.num_rows,
            changes.removed.num_rows,
            changes.masked.num_rows,
            visible_rows(before.files),
            visible_rows(after.files),
        )
        matters = bool(_listed(handle, state, (*reverted, *returned), _OF_LINEAGE).num_rows)
        return cls(handle, state, plan, changes, reverted, kept, matters, after.spec)

    def draft(self, *, replay: bool) -> Decision | None:
        """Return the decision; None if the table is as wanted already."""
        if not (self.matters or self.changes.rows):
            return None
        state, table = self.state, self.state.table
        if self.spec.schema.id != table.spec.schema.id:
            table.require_no_repush()
        if self.spec != table.spec:
            table = named_as_in(table, self.spec.schema)
            table = table.laid_out(self.spec, since=state.version + 1)
        replayed = None
        if replay and (self.plan.applications or self.plan.commit_ids):
            back = set_back(self.handle.store, state, self.plan.applications, self.kept)
            replayed = Replayed(back, self.plan.commit_ids)
        added, removed = self.changes.added.num_rows, self.changes.removed.num_rows
        return Decision(
            instant=self.handle.new_instant(state),
            action=Action.RESTORE,
            operation=Operation.RESTORE,
            base=state.version,
            changes=self.changes,
            scope=Scope(SCOPE_TABLE),
            restored=Restored(self.plan.to, self.reverted),
            replayed=replayed,
            table=None if table is state.table else table.to_dict(),
            stats=WriteStats(files_added=added, files_removed=removed),
            client=client(),
        )


def changes_between(before: pa.Table, after: pa.Table, masks: pa.Table) -> Changes:
    """Return what leads from the files of one version to those of another (LIVE).

    A file that comes back has the mask that it had; one that was ever masked says so in any case.
    """
    at = pc.index_in(after["path"], value_set=before["path"].combine_chunks())
    fresh = pc.is_null(at)
    gone = pc.invert(pc.is_in(before["path"], value_set=after["path"].combine_chunks()))
    known = pc.is_in(after["path"], value_set=masks["path"].combine_chunks())
    differs = pc.and_(fresh, known)
    for name in ("masked", *_VECTOR):
        differs = pc.or_(differs, pc.and_(pc.invert(fresh), _unlike(after[name], before[name], at)))
    masked = after.filter(differs)
    hidden = masked.select(["path", "masked", *_VECTOR]).rename_columns(MASKED.names)
    return Changes(
        added=after.filter(fresh).select(ADDED.names).cast(ADDED),
        removed=before.filter(gone).select(["path"]).cast(PATHS),
        masked=hidden.cast(MASKED),
    )


def _unlike(one: pa.ChunkedArray, other: pa.ChunkedArray, at: pa.ChunkedArray) -> pa.ChunkedArray:
    """Tell where values differ from those at other places; two nulls are alike."""
    there = pc.take(other, at)
    alike = pc.or_(
        pc.fill_null(pc.equal(one, there), False),  # noqa: FBT003 - arrow's fill value
        pc.and_(pc.is_null(one), pc.is_null(there)),
    )
    return pc.invert(alike)


def visible_rows(files: pa.Table) -> int:
    """Count the rows of live files (LIVE) that are not hidden."""
    return int(pc.sum(pc.subtract(files["rows"], files["masked"])).as_py() or 0)


def _commits(
    handle: TableHandle,
    state: TableState,
    spans: Iterable[Versions],
    operations: frozenset[str] = _SHOWN,
) -> tuple[RestoredCommit, ...]:
    """Return the commits with some operations in these versions, newest first."""
    rows = _listed(handle, state, spans, operations)
    names = ("version", "operation", "completed_ms", "commit_id")
    columns = (rows[name].to_pylist() for name in names)
    found = (RestoredCommit(*values) for values in zip(*columns, strict=True))
    return tuple(sorted(found, key=lambda each: -each.version))


def _listed(
    handle: TableHandle, state: TableState, spans: Iterable[Versions], operations: frozenset[str]
) -> pa.Table:
    """Return the decisions of these versions with some operations (COMMITS)."""
    spans = tuple(spans)
    first = min((low for low, _ in spans), default=state.version + 1)
    rows = state.commits(handle.store, since=first - 1)
    version = rows["version"].to_numpy()
    inside = np.zeros(rows.num_rows, np.bool_)
    for low, high in spans:
        inside |= (version >= low) & (version <= high)
    chosen = pc.is_in(rows["operation"], value_set=pa.array(sorted(operations)))
    return rows.filter(pc.and_(chosen, pa.array(inside)))
