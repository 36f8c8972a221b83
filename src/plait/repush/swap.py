"""Swap: one decision gives the table the files of the shadow, and its layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CommitError, ContractError, RepushRefusedError
from plait.model.changes import PATHS, Changes, WriteStats
from plait.model.decision import SCOPE_TABLE, Decision, Draft, Scope
from plait.model.instant import Action, Operation
from plait.model.request import WriteRequest
from plait.repush.follow import changing
from plait.repush.shadow import Shadow
from plait.state.state import TableState
from plait.txn.conflict import Intent
from plait.txn.reservation import publish_reservation
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client
from plait.txn.transaction import OptimisticTransaction


@dataclass(frozen=True, slots=True)
class Swap:
    """The end of one repush."""

    handle: TableHandle
    shadow: Shadow

    def publish(self) -> Decision | None:
        """Swap if the shadow has every row of the newest version; None if it does not.

        Raises:
            RepushRefusedError: it has another number of rows: keys that the new layout does not
                tell apart.
            CommitOutcomeUnknownError: the store does not say.
        """
        return publish_service(self.handle, self._draft)

    def _draft(self, state: TableState) -> Draft | None:
        repush, table = self.shadow.repush, state.table
        if table.repush is None or table.repush.directory != repush.directory:
            return None
        progress, newest = self.shadow.newest()
        covered = progress.version
        if covered is None or covered > state.version or changing(state, self.handle, covered):
            return None
        live, files = state.snapshot(self.handle.store).files, newest.files
        _require_all(self.shadow, _rows(live), _rows(files))
        added, masked = self.shadow.outside(files)
        spec = repush.layout.applied(table.spec, table.spec.schema)
        swapped = replace(
            table.laid_out(spec, since=state.version + 1),
            options=table.options.merged(repush.properties),
            repush=None,
            repushed=(*table.repushed, repush.directory),
        )
        return Draft(
            instant=self.handle.new_instant(state),
            action=Action.REPUSH,
            operation=Operation.REPUSH,
            base=state.version,
            changes=Changes(added=added, masked=masked, removed=live.select(["path"]).cast(PATHS)),
            scope=Scope(SCOPE_TABLE),
            table=swapped.to_dict(),
            stats=WriteStats(files_added=added.num_rows, files_removed=live.num_rows),
            client=client(),
        )


def _rows(files: pa.Table) -> int:
    return int(pc.sum(pc.subtract(files["rows"], files["masked"])).as_py() or 0)


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

    Manners only: without the reservation, and if its holder dies, writers go on as ever.
    """
    try:
        txn = OptimisticTransaction.begin(handle, WriteRequest(Operation.REPUSH))
    except ContractError:
        yield  # of another client than a single writer: there is nobody to wait
        return
    intent = Intent(Operation.REPUSH, Scope(SCOPE_TABLE), frozenset())
    try:
        with suppress(CommitError):
            publish_reservation(handle, txn.instant, intent, since=txn.base.version)
        yield
    finally:
        txn.abort("a repush needs its reservation no more")
