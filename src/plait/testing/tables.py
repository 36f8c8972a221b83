"""Tables over a store that was wrapped: to count its calls, or to make them fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from plait.ports import Ports
from plait.storage import open_store
from plait.storage.port import Store
from plait.table import Table
from plait.txn.table_handle import open_handle

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
    store = wrap(open_store(uri))
    return Table(open_handle(store, ports or Ports())), store
