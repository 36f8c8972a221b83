"""What a clean may delete: names of ours, and no others.

Whatever a damaged or forged table names or holds, a name that Plait never gives is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from plait.errors import CorruptMetadataError
from plait.files.data_file import parse_path
from plait.model.instant import AHEAD_MS_MAX
from plait.state.checkpoint import checkpoint_of
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.read_pin import load_read_pins
from plait.txn.table_handle import TableHandle


def delete_leftovers(handle: TableHandle) -> None:
    """Delete leases that protect nothing any more, and heartbeats of instants without records.

    A reader that was only paused writes its lease anew when it renews it.
    """
    leases = load_read_pins(handle)
    write_anew(handle, ((lease.path, lease.modified_ms) for lease in leases))
    doomed = [lease.path for lease in leases if lease.expired]
    handle.store.delete([*doomed, *_heartbeats_of_nobody(handle.store)])


def _heartbeats_of_nobody(store: Store) -> list[str]:
    """List heartbeats first and records after: a record is there before its first heartbeat."""
    beats = [(info.path, paths.heartbeat_of(info.path)) for info in store.list(paths.HEARTBEATS)]
    owned = {entry.heartbeat for entry in load_pending(store)} if beats else set()
    return [path for path, owner in beats if owner is not None and path not in owned]


def require_deletable(names: Iterable[str]) -> None:
    """Refuse to delete what a decision condemns, if it is no file that writers leave.

    Raises:
        CorruptMetadataError: a decision condemns something else, such as a slot.
    """
    for name in names:
        if parse_path(name) or paths.manifest_of(name) or checkpoint_of(name) is not None:
            continue
        message = f"a decision condemns {name}, which is no data file, manifest or checkpoint"
        hint = "nothing was deleted; the decision is damaged or forged: see `tablectl timeline`"
        raise CorruptMetadataError(
            message, hint=hint, path=name, expected="a file that writers leave", found=name
        )


def write_anew(handle: TableHandle, signs: Iterable[tuple[str, int | None]]) -> None:
    """Write signs of life anew whose times have not come, so that they age from now on.

    A clock that was ahead stamped them. Who lives gives the next sign soon all the same; a sign of
    the dead would last until its time has come, and nothing would be cleaned meanwhile.

    Args:
        handle: the table.
        signs: path, and when it was written by the store's clock.
    """
    now_ms = handle.store.now_ms()
    for path, modified_ms in signs:
        if modified_ms is None or modified_ms <= now_ms + AHEAD_MS_MAX:
            continue
        with suppress(CorruptMetadataError):  # too large to be ours
            body = handle.store.find(path)
            if body is not None:
                handle.store.put(path, body)
