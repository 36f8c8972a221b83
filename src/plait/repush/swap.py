"""Swap: one decision gives the table the files of the shadow, and its layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from plait.definition.table_def import TableDef
from plait.errors import (
    CommitError,
    ContractError,
    OptionError,
    RepushRefusedError,
    SchemaError,
)
from plait.model.changes import PATHS, Changes, WriteStats
from plait.model.decision import SCOPE_TABLE, Decision, Reserved, Scope
from plait.model.instant import Action, Operation
from plait.model.plan import TableLayout
from plait.model.repush import OpenRepush, RepushSource
from plait.model.request import WriteRequest
from plait.repush.begin import commit_id_taken, resumed
from plait.repush.follow import changing_operations
from plait.repush.shadow import Shadow
from plait.services.maintenance.restore import visible_rows
from plait.state.state import TableState
from plait.txn.refusal import find_commit
from plait.txn.reservation import publish_reservation
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client
from plait.txn.transaction import OptimisticTransaction


@dataclass(slots=True)
class Swap:
    """The end of one repush."""

    handle: TableHandle
    shadow: Shadow
    rows: int = 0
    """Visible rows that the newest draft gives the table."""

    def publish(self) -> Decision | None:
        """Swap if the shadow has every row of the newest version; None if it does not.

        Raises:
            RepushRefusedError: it has another number of rows than the table, because the new
                layout does not tell keys apart; or than the source, with what was committed since;
                or what was set meanwhile does not go with the layout.
            CommitOutcomeUnknownError: the store does not say.
        """
        return publish_service(self.handle, self._draft)

    def _draft(self, state: TableState) -> Decision | None:
        repush, table = self.shadow.repush, state.table
        if not table.builds(repush.directory):
            return None
        progress, newest = self.shadow.newest()
        covered = progress.version
        # The draft is made for one head, and it is published only in the slot after that head. So
        # if no row changed up to it, the shadow has every row at the moment of the swap (INV-04).
        if (
            covered is None
            or covered > state.version
            or changing_operations(state, self.handle, covered)
        ):
            return None
        if repush.commit_id is not None:
            _require_free(self.handle, state, repush.commit_id)
        live, files = state.snapshot(self.handle.store).files, newest.files
        _require_fitting(repush, table)
        rows, found = visible_rows(live), visible_rows(files)
        self.rows, stats = found, WriteStats()
        # Counting rows is the last guard: a layout that merges keys, or a lost task, shows here
        # before anything is replaced.
        if repush.source is None:
            _require_all(self.shadow, rows, found)
        else:
            _require_counted(self.shadow, repush.source, found)
            stats = WriteStats(rows_inserted=found, rows_deleted=rows)
        added, masked = self.shadow.as_table_files(files)
        changes = Changes(added=added, masked=masked, removed=live.select(["path"]).cast(PATHS))
        ended = replace(
            table,
            options=table.options.merged(repush.properties),
            repush=None,
            repushed=(*table.repushed, repush.directory),
        )
        draft = swap_draft(self.handle, state, changes, ended, repush.layout)
        draft = replace(draft, commit_id=repush.commit_id)
        return draft if repush.source is None else with_other_rows(draft, stats)


def swap_draft(
    handle: TableHandle, state: TableState, changes: Changes, table: TableDef, layout: TableLayout
) -> Decision:
    """Return the decision that gives a table other files, and the layout in which they lie.

    Args:
        handle: the table.
        state: the head.
        changes: lead from its files to the others.
        table: the definition from then on, but for the layout.
        layout: the layout, under an id that no other one ever has.
    """
    added, removed = changes.added.num_rows, changes.removed.num_rows
    spec = replace(table.spec, layout=layout)
    return Decision(
        instant=handle.new_instant(state),
        action=Action.REPUSH,
        operation=Operation.REPUSH,
        base=state.version,
        changes=changes,
        scope=Scope(SCOPE_TABLE),
        table=table.laid_out(spec, since=state.version + 1).to_dict(),
        stats=WriteStats(files_added=added, files_removed=removed),
        client=client(),
    )


def with_other_rows(draft: Decision, stats: WriteStats) -> Decision:
    """Return a swap that change reads show, since it replaces the rows too."""
    return replace(
        draft,
        action=Action.REPLACE_COMMIT,
        operation=Operation.REPUSH_SOURCE,
        stats=draft.stats + stats,
    )


def _require_fitting(repush: OpenRepush, table: TableDef) -> None:
    """Refuse a layout that does not go with what the table is now.

    It was set since the repush began, or an older version of Plait began it and took it for right.
    """
    try:
        resumed(repush).layout_for(table)
    except (OptionError, SchemaError) as error:
        message = (
            f"the layout that the repush leads to does not fit the table as it is now: {error}"
        )
        hint = "cancel the repush, or take back what changed since it began and run it again"
        raise RepushRefusedError(message, hint=hint, directory=repush.directory) from error


def _require_counted(shadow: Shadow, source: RepushSource, found: int) -> None:
    """Refuse a shadow without a row of the source, or of what was carried over to them."""
    loaded, followed = shadow.rows_taken()
    if loaded == source.rows and loaded + followed == found:
        return
    message = (
        f"{source.address} has {source.rows} rows; {loaded} were loaded, commits since changed "
        f"that by {followed}, and {found} are there"
    )
    hint = "nothing was changed; cancel the repush, and begin it again"
    raise RepushRefusedError(message, hint=hint, rows=source.rows, loaded=loaded, found=found)


def _require_free(handle: TableHandle, state: TableState, commit_id: str) -> None:
    """Refuse a commit id that another commit took while the repush was open."""
    version = find_commit(handle.store, state, commit_id)
    if version is not None:
        raise commit_id_taken(commit_id, version)


def _require_all(shadow: Shadow, rows: int, found: int) -> None:
    if rows == found:
        return
    names = ", ".join(shadow.repush.layout.partition_by) or "no column"
    message = f"the table has {rows} rows, and {found} once it is partitioned by {names}"
    hint = "nothing was changed; cancel the repush, and look for keys that come twice"
    raise RepushRefusedError(message, hint=hint, rows=rows, found=found)


@contextmanager
def reserved(handle: TableHandle) -> Iterator[None]:
    """Keep the whole table: writers go on staging, and wait for us before they commit.

    This affects fairness, never correctness: without the reservation, and after the death of its
    holder, writers do not wait.
    """
    try:
        # The holder of the reservation needs an instant with a heartbeat: if this process dies,
        # writers see it fall silent and pass the reservation over.
        txn = OptimisticTransaction.begin(handle, WriteRequest(Operation.REPUSH))
    except ContractError:
        yield  # of another client than a single writer: there is nobody to wait
        return
    try:
        with suppress(CommitError):
            whole = Reserved(txn.instant, Scope(SCOPE_TABLE))
            publish_reservation(handle, whole, since=txn.base.version)
        yield
    finally:
        txn.abort("a repush needs its reservation no more")
