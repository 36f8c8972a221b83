"""Drop a table: a change of its contract, under which nobody writes or reads (RFC 0047).

Writers are refused as after every other change of the contract (INV-12): a commit that began
before finds the drop in the slot that it lost, rolls itself back, and ends. What a drop leaves is
the whole table, so it can be taken back until the files go.
"""

from __future__ import annotations

from dataclasses import replace

from plait.definition.table_def import TableDef
from plait.errors import CorruptMetadataError
from plait.locks.identity import IDENTITY_BYTES_MAX, identity_of
from plait.model.decision import CommitResult
from plait.model.instant import time_ms, time_text
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.read_pin import load_read_pins
from plait.txn.recovery import roll_back_failed
from plait.txn.table_decisions import change_table
from plait.txn.table_handle import TableHandle


def drop_table(handle: TableHandle) -> CommitResult:
    """Decide that a table is dropped; no file goes.

    Of a table that is dropped it is decided once more, with a later time: an undrop that began
    before takes back the drop that it read, and not this one.

    Args:
        handle: the table, opened by ``open_handle(..., dropped=True)``.

    Raises:
        ContractError, TableDroppedError: the contract was changed since the table was opened.
    """

    def dropped(table: TableDef) -> TableDef:
        before_ms = time_ms(table.contract.dropped) if table.contract.dropped else 0
        now = time_text(max(handle.store.now_ms(), before_ms + 1))
        return replace(table, contract=replace(table.contract, dropped=now))

    return change_table(handle, dropped)


def undrop_table(handle: TableHandle) -> None:
    """Take back the drop under which a table was opened; if there is none, change nothing.

    Args:
        handle: the table, opened by ``open_handle(..., dropped=True)``.

    Raises:
        ContractError, TableDroppedError: the contract was changed since the table was opened; so it
            was, for example, dropped once more.
    """
    if handle.cache.refresh().table.contract.dropped:
        change_table(
            handle, lambda table: replace(table, contract=replace(table.contract, dropped=""))
        )


def purgeable_ms(handle: TableHandle) -> int | None:
    """Return when the grace of a dropped table is over, by its store's clock; None: not dropped."""
    table = handle.cache.refresh().table
    if not table.contract.dropped:
        return None
    return time_ms(table.contract.dropped) + int(1000 * table.options.seconds("clean.grace"))


def in_use(handle: TableHandle) -> str | None:
    """Tell who still needs the files of a dropped table; None: nobody, and nobody will.

    Whoever writes a pending record or a read pin after the drop looks at the head next, and is
    refused there. So what is listed now is all that there will be (INV-05).
    """
    roll_back_failed(handle, reason="its table was dropped")
    for pending in load_pending(handle.store):
        return f"the writer {pending.instant}"
    for pin in load_read_pins(handle):
        if not pin.expired:
            return f"a reader on {pin.host or 'an unknown host'}"
    return None


def purge_begun(store: Store) -> bool:
    """Tell whether a purge of this table has begun: from then on its timeline proves nothing.

    Raises:
        CorruptMetadataError: what is there instead of the mark of a purge is none, or is of another
            table.
    """
    mark = store.find(paths.PURGING, size_max=IDENTITY_BYTES_MAX)
    if mark is None:
        return False
    table = store.find(paths.TABLE, size_max=IDENTITY_BYTES_MAX)
    if table is not None and identity_of(table) != identity_of(mark):
        message = f"{paths.PURGING} is the mark of another table's purge"
        hint = "find out who wrote it, and delete it if this table is needed"
        facts = {"expected": identity_of(table), "found": identity_of(mark)}
        raise CorruptMetadataError(message, hint=hint, path=paths.PURGING, **facts)
    return True


def purge_files(store: Store) -> None:
    """Delete every file of a table that the caller found dropped and free, and that stays so.

    The mark comes first, so that a purge that died can be ended although the timeline is not whole
    any more. The file that says that a table is here goes last, and then the mark.
    """
    table = store.find(paths.TABLE, size_max=IDENTITY_BYTES_MAX)
    if table is not None:
        store.put(paths.PURGING, table)
    listed = [info.path for info in store.list("")]
    store.delete([path for path in listed if path not in (paths.TABLE, paths.PURGING)])
    store.delete([paths.TABLE])
    store.delete([paths.PURGING])
