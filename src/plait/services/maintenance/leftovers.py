"""What a clean may delete: only names of a form that Plait creates.

Other names stay, whatever a damaged or forged table says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.files.data_file import parse_path
from plait.model.decision import ArchiveFile
from plait.state.checkpoint import checkpoint_of
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.liveness_cache import renew_signs
from plait.txn.read_pin import load_read_pins
from plait.txn.table_handle import TableHandle


def delete_leftovers(handle: TableHandle) -> None:
    """Delete expired read pins and orphaned heartbeats.

    A reader that was only paused writes its read pin again when it renews it.
    """
    leases = load_read_pins(handle)
    renew_signs(handle.store, ((lease.path, lease.modified_ms) for lease in leases))
    doomed = [lease.path for lease in leases if lease.expired]
    handle.store.delete([*doomed, *_heartbeats_of_nobody(handle.store)])


def _heartbeats_of_nobody(store: Store) -> list[str]:
    """List heartbeats first and records after: a record exists before its first heartbeat."""
    beats = [(info.path, paths.heartbeat_of(info.path)) for info in store.list(paths.HEARTBEATS)]
    owned = {entry.heartbeat for entry in load_pending(store)} if beats else set()
    return [path for path, owner in beats if owner is not None and path not in owned]


def delete_repushed(handle: TableHandle) -> int:
    """Delete what no version needs in directories of repushes that are over; return how much.

    A decision began each of them and another one ended it, so no file there becomes part of the
    table any more. What is part of it, or was, goes by a clean like every other data file.
    """
    state = handle.cache.refresh()
    return sum(_delete_unnamed(handle, state, directory) for directory in state.table.repushed)


def _delete_unnamed(handle: TableHandle, state: TableState, directory: str) -> int:
    listed = pa.array([info.path for info in handle.store.list(directory)], pa.string())
    if not len(listed):
        return 0
    known = pc.is_in(listed, value_set=state.folded(handle.store).paths())
    doomed = listed.filter(pc.invert(known)).to_pylist()
    handle.store.delete(doomed)
    return len(doomed)


def count_kept(handle: TableHandle, versions: Sequence[int]) -> list[int]:
    """Count, for each version, the condemned files that a client of this version keeps."""
    removed = handle.cache.refresh().folded(handle.store).condemned["removed"].to_numpy()
    return [int((removed > version).sum()) for version in versions]


def require_deletable(names: Iterable[str], archive: Iterable[ArchiveFile]) -> None:
    """Refuse to delete a condemned path that writers do not create.

    Args:
        names: the paths.
        archive: the files of the archive that the table has now; they stay too.

    Raises:
        CorruptMetadataError: a decision condemns something else, such as a slot.
    """
    kept = {file.path for file in archive}
    for name in names:
        if parse_path(name) or paths.manifest_of(name) or checkpoint_of(name) is not None:
            continue
        if paths.archive_of(name) and name not in kept:
            continue
        message = f"a decision condemns {name}, which is not a file that a clean may delete"
        hint = "nothing was deleted; the decision is damaged or forged; see `tablectl timeline`"
        raise CorruptMetadataError(
            message, hint=hint, path=name, expected="a file that writers leave", found=name
        )
