"""Tables over a store that was wrapped: to count its calls, or to make them fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from plait.locks import open_lock
from plait.ports import Ports
from plait.state.cache import StateCache
from plait.storage import open_store
from plait.storage.port import Store
from plait.table import Table
from plait.txn.site import Site

S = TypeVar("S", bound=Store)


def open_wrapped(
    uri: str, wrap: Callable[[Store], S], *, ports: Ports | None = None
) -> tuple[Table, S]:
    """Open a table through a wrapper of its store; give both.

    >>> from plait.testing import CountingStore
    >>> _ = Table.create("memory://open-wrapped", "id bigint")
    >>> table, store = open_wrapped("memory://open-wrapped", CountingStore)
    >>> table.version, store.count("put_if_absent")
    (0, 0)
    """
    chosen = ports or Ports()
    store = wrap(open_store(uri))
    cache = StateCache(store, chosen)
    lock = open_lock(cache.refresh().table.contract.lock, store, chosen)
    return Table(Site(store, chosen, cache, lock)), store
