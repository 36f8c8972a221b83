"""Signs of life that outlived the living: leases that ran out, heartbeats of nobody."""

from __future__ import annotations

from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.lease import load_leases
from plait.txn.site import Site


def delete_leftovers(site: Site) -> None:
    """Delete leases that protect nothing any more, and heartbeats of instants without records.

    A reader that was only paused writes its lease anew when it renews it.
    """
    doomed = [lease.path for lease in load_leases(site) if lease.expired]
    site.store.delete([*doomed, *_heartbeats_of_nobody(site.store)])


def _heartbeats_of_nobody(store: Store) -> list[str]:
    """List heartbeats first and records after: a record is there before its first heartbeat."""
    beats = [info.path for info in store.list(paths.HEARTBEATS)]
    owned = {entry.heartbeat for entry in load_pending(store)} if beats else set()
    return [path for path in beats if path not in owned]
