"""What a repush leaves in its directory once a decision said that it is over (RFC 0021)."""

from __future__ import annotations

from plait.state.state import TableState
from plait.txn.table_handle import TableHandle


def delete_repushed(handle: TableHandle) -> int:
    """Delete what no version needs in the directories of repushes that are over; return how much.

    A decision began each of them and another one ended it, so no file there becomes part of the
    table any more. What is part of it, or was, goes by a clean like every other data file.
    """
    state = handle.cache.refresh()
    return sum(_delete_in(handle, state, directory) for directory in state.table.repushed)


def _delete_in(handle: TableHandle, state: TableState, directory: str) -> int:
    listed = [info.path for info in handle.store.list(directory)]
    if not listed:
        return 0
    folded = state.folded(handle.store)
    known = {*folded.files["path"].to_pylist(), *folded.masks["dv_path"].to_pylist()}
    known |= {*folded.aux["path"].to_pylist(), *folded.condemned["path"].to_pylist()}
    doomed = [path for path in listed if path not in known]
    handle.store.delete(doomed)
    return len(doomed)
