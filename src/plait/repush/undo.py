"""Undo: give the table the layout back that it had before the newest swap."""

from __future__ import annotations

from dataclasses import replace

from plait.errors import InstantExpiredError, InstantNotFoundError, RepushOpenError
from plait.model.changes import WriteStats
from plait.model.decision import SCOPE_TABLE, Draft, Scope
from plait.model.instant import Action, Operation
from plait.model.repush import FormerLayout
from plait.repush.begin import NewLayout
from plait.repush.follow import changing
from plait.repush.run import RepushReport, repush
from plait.services.restore import changes_between
from plait.state.state import TableState
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client


def undo(handle: TableHandle) -> RepushReport:
    """Undo the newest repush; what was written since stays.

    While nobody has written since and the old files are kept, one decision brings them back.
    Otherwise the rows are laid out as before by another repush. Options that changed with the swap
    stay as they are now.

    Raises:
        InstantNotFoundError: the newest change of the layout is no repush.
        RepushOpenError: a repush is open.
    """
    before = _before(handle, handle.cache.refresh())
    decision = publish_service(handle, lambda state: _swap_back(handle, state))
    if decision is not None:
        return RepushReport("", before.until, decision.version)
    layout = before.layout
    wanted = NewLayout(
        layout.buckets.count or None, layout.partition_by, layout.ordering or "", layout.table_type
    )
    return repush(handle, wanted)


def _before(handle: TableHandle, state: TableState) -> FormerLayout:
    """Return the layout before the newest swap."""
    table = state.table
    if table.repush is not None:
        message = f"a repush is open, in {table.repush.directory}"
        hint = "let it end, or cancel it with cancel_repush()"
        raise RepushOpenError(message, hint=hint, directory=table.repush.directory)
    if table.former:
        before = table.former[-1]
        commits = state.commits(handle.store, since=before.until, columns=("version", "operation"))
        if commits.num_rows and commits["operation"][0].as_py() == Operation.REPUSH.value:
            return before
    message = "there is no repush to undo"
    hint = "the newest change of the layout is not one; see Table.history()"
    raise InstantNotFoundError(message, hint=hint, version=state.version)


def _swap_back(handle: TableHandle, state: TableState) -> Draft | None:
    """Draft the decision that brings the old files back; None if rows have changed since."""
    before = _before(handle, state)
    if changing(state, handle, before.until):
        return None
    try:
        old = state.snapshot(handle.store, version=before.until)
    except InstantExpiredError:
        return None
    new = state.snapshot(handle.store)
    changes = changes_between(new.files, old.files, state.folded(handle.store).masks)
    # A layout's id stands for its files too: what was staged on the old ones is staged again.
    layout = replace(
        before.layout, buckets=replace(before.layout.buckets, id=state.table.new_layout_id())
    )
    spec = layout.applied(state.table.spec, state.table.spec.schema)
    added, removed = changes.added.num_rows, changes.removed.num_rows
    return Draft(
        instant=handle.new_instant(state),
        action=Action.REPUSH,
        operation=Operation.REPUSH,
        base=state.version,
        changes=changes,
        scope=Scope(SCOPE_TABLE),
        table=state.table.laid_out(spec, since=state.version + 1).to_dict(),
        stats=WriteStats(files_added=added, files_removed=removed),
        client=client(),
    )
