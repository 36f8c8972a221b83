"""Undo: give the table the layout back that it had before the newest swap."""

from __future__ import annotations

from dataclasses import replace

from plait.definition.replicated_table import require_no_replicas
from plait.errors import (
    InstantExpiredError,
    InstantNotFoundError,
    RepushOpenError,
    RepushRefusedError,
    RetryableConflictError,
)
from plait.model.changes import WriteStats
from plait.model.decision import Decision
from plait.model.instant import Operation
from plait.model.partitioning import parse_field, sources_of
from plait.model.plan import FormerLayout
from plait.model.repush import VERSION, OpenRepush, SourceAddress
from plait.repush.begin import operation_of, request_for, resumed
from plait.repush.follow import changing_operations
from plait.repush.run import RepushReport, repush
from plait.repush.source import WantedSource
from plait.repush.swap import swap_draft, with_other_rows
from plait.services.maintenance.restore import changes_between, visible_rows
from plait.state.state import TableState
from plait.txn.matrix import SWAPS
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle


def undo(handle: TableHandle, version: int | None = None) -> RepushReport:
    """Undo the newest repush; what was written since stays.

    While nobody has written since and the old files are kept, one decision brings them back.
    Otherwise the rows are laid out as before by another repush. After a repush from a source, that
    is a repush from the version before the swap, which carries over what was written since. Options
    that changed with the swap stay as they are now. An undo that was killed goes on where it was.

    Args:
        handle: the table.
        version: that of the repush, so that a repeated call does not undo the undo; by default
            the newest one is undone, whatever it is.

    Raises:
        OptionError: the former layout does not go with what was set since; nothing was written.
        InstantExpiredError: the repush had a source, and the rows before it were cleaned.
        RepushRefusedError: it had, and rows without keys were changed since; or the former layout
            names columns that are gone, or orders by one that is NaN in a row by now.
        InstantNotFoundError: the newest change of the layout is no repush, or not that of
            ``version``.
        RepushOpenError: another repush is open.
        RetryableConflictError: another repush was swapped in meanwhile.
    """
    state = handle.cache.refresh()
    if version is not None:
        _require_newest_swap(handle, state, version)
    if state.table.repush is not None and _undoes(handle, state, state.table.repush):
        return repush(handle, resumed(state.table.repush))
    # Remember which swap is to be undone. The draft runs on later heads too, and must not undo
    # another one that came in between.
    before = _before(handle, state)
    request, replaced = request_for(before.layout), [False]

    def draft(state: TableState) -> Decision | None:
        _require_newest(handle, state, before)
        replaced[0] = _replaced_rows(handle, state, before)
        if replaced[0]:
            require_no_replicas(state.table, "an undo that changes rows")
        back = _swap_back(handle, state, before, replaced_rows=replaced[0])
        if back is not None:
            request.layout_for(state.table)  # refuses what does not go with what was set since
        return back

    decision = publish_service(handle, draft)
    if decision is not None:
        return RepushReport("", before.until, version=decision.version)
    _require_its_columns(handle, handle.cache.known(), before)
    if replaced[0]:
        request = replace(request, source=_source_before(before))
    return repush(handle, request)


def _require_newest_swap(handle: TableHandle, state: TableState, version: int) -> None:
    newest = _newest_swap(handle, state)
    if version != newest:
        message = f"version {version} is not the newest repush"
        message += "; there is none" if newest is None else f"; that is version {newest}"
        hint = "if that one is its undo, nothing is left to do; see Table.inspect.history()"
        raise InstantNotFoundError(message, hint=hint, version=version)


def _newest_swap(handle: TableHandle, state: TableState) -> int | None:
    """Return the version of the newest repush; None if the newest change of the layout is none.

    Raises:
        InstantNotFoundError: the newest change gave columns of the layout other names.
    """
    if not state.table.former:
        return None
    version = state.table.former[-1].until + 1
    operation = operation_of(handle, state, version)
    if operation is Operation.SCHEMA:
        message = f"version {version} renamed columns of the layout, so no repush before is undone"
        hint = "repush to the layout that it had; see Table.inspect.history()"
        raise InstantNotFoundError(message, hint=hint, version=version)
    return version if operation in SWAPS else None


def _source_before(before: FormerLayout) -> WantedSource:
    return WantedSource(_rows_of(before), since=before.until + 1, given=False)


def _rows_of(before: FormerLayout) -> SourceAddress:
    return SourceAddress(VERSION, str(before.until))


def _undoes(handle: TableHandle, state: TableState, opened: OpenRepush) -> bool:
    """Tell whether the open repush is what an undo of the newest swap begins."""
    former = state.table.former
    swap = operation_of(handle, state, former[-1].until + 1) if former else None
    if swap not in SWAPS or opened.properties or opened.commit_id is not None:
        return False
    source = None if opened.source is None else (opened.source.address, opened.base)
    wanted = (_rows_of(former[-1]), former[-1].until + 1)
    needed = wanted if swap is Operation.REPUSH_SOURCE else None
    return source == needed and opened.layout.same_place(former[-1].layout)


def _before(handle: TableHandle, state: TableState) -> FormerLayout:
    """Return the layout before the newest swap."""
    table = state.table
    if table.repush is not None:
        message = f"a repush is open, in {table.repush.directory}"
        hint = "let it end, or cancel it with Table.layout.cancel()"
        raise RepushOpenError(message, hint=hint, directory=table.repush.directory)
    if _newest_swap(handle, state) is not None:
        return table.former[-1]
    hint = "the newest change of the layout is not one; see Table.inspect.history()"
    raise InstantNotFoundError("there is no repush to undo", hint=hint, version=state.version)


def _require_its_columns(handle: TableHandle, state: TableState, before: FormerLayout) -> None:
    """Refuse a layout by columns that are gone since, or whose names others have now."""
    commits = state.commits(handle.store, since=before.until - 1, columns=("version", "schema_id"))
    then, now = state.table.schemas[commits["schema_id"][0].as_py()], state.table.spec.schema
    layout = before.layout
    names = [*sources_of(list(map(parse_field, layout.partition_by)))]
    names += [] if layout.ordering is None else [layout.ordering]
    ids = {name: now.ids[name] for name in now.names}
    other = [name for name in names if ids.get(name) != then.ids[name]]
    if other:
        message = f"the former layout names column {other[0]!r}, which has changed its name or gone"
        hint = "repush to a layout of the columns that there are"
        raise RepushRefusedError(message, hint=hint, columns=other)


def _require_newest(handle: TableHandle, state: TableState, before: FormerLayout) -> None:
    """Refuse to undo another repush than the one that was the newest when the undo began."""
    if _before(handle, state) != before:
        message = "another repush was swapped in while this one was to be undone"
        raise RetryableConflictError(message, hint="see Table.inspect.history(), and undo it then")


def _replaced_rows(handle: TableHandle, state: TableState, before: FormerLayout) -> bool:
    """Tell whether the swap after a layout replaced the rows too."""
    return operation_of(handle, state, before.until + 1) is Operation.REPUSH_SOURCE


def _swap_back(
    handle: TableHandle, state: TableState, before: FormerLayout, *, replaced_rows: bool
) -> Decision | None:
    """Draft the decision that brings the old files back; None if rows have changed since."""
    # The old files lack every row that was written since the swap. They may come back only if there
    # is none.
    if changing_operations(state, handle, before.until + 1):
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
    draft = swap_draft(handle, state, changes, state.table, layout)
    rows = WriteStats(rows_inserted=visible_rows(old.files), rows_deleted=visible_rows(new.files))
    return with_other_rows(draft, rows) if replaced_rows else draft
