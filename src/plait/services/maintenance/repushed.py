"""What a repush leaves in its directory once a decision said that it is over (RFC 0021)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

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
    listed = pa.array([info.path for info in handle.store.list(directory)], pa.string())
    if not len(listed):
        return 0
    known = pc.is_in(listed, value_set=state.folded(handle.store).paths())
    doomed = listed.filter(pc.invert(known)).to_pylist()
    handle.store.delete(doomed)
    return len(doomed)
