"""Tables opened in ways that the facade does not offer: watched, or although damaged."""

from __future__ import annotations

from collections.abc import Mapping

from plait.errors import FormatError
from plait.locks import open_lock
from plait.ports import Observer, Ports
from plait.state.cache import StateCache
from plait.storage import open_store
from plait.table import Table
from plait.txn.site import Site


def open_observed(uri: str, observer: Observer) -> Table:
    """Open a table whose commits tell an observer of their phases."""
    ports = Ports(observer=observer)
    store = open_store(uri)
    cache = StateCache(store, ports)
    lock = open_lock(cache.refresh().table.contract.lock, store, ports)
    return Table(Site(store, ports, cache, lock))


def open_for_verify(uri: str, storage: Mapping[str, str] | None) -> Table:
    """Open a table; one whose metadata is damaged too, only to be verified."""
    try:
        return Table.open(uri, storage_options=storage)
    except FormatError:
        ports = Ports()
        store = open_store(uri, storage)
        return Table(Site(store, ports, StateCache(store, ports), open_lock("none", store, ports)))
