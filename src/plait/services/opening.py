"""From a place to what everything else works on: a site."""

from __future__ import annotations

from collections.abc import Mapping

from plait.locks import default_lock, open_lock
from plait.ports import Ports
from plait.state.cache import StateCache
from plait.storage import open_store
from plait.txn.create import create_table
from plait.txn.definition import Definition
from plait.txn.refusal import contract_differs
from plait.txn.site import Site, require_slots


def create_site(
    uri: str,
    schema: object,
    definition: Definition,
    storage_options: Mapping[str, object] | None,
) -> Site:
    """Create a table; without a lock in its contract it gets the best that its store allows.

    Raises:
        OptionError: a definition that cannot hold; nothing was written.
        TableExistsError: there is a table.
    """
    ports = Ports()
    store = open_store(uri, storage_options, create=True)
    table = definition.with_lock(default_lock(store)).table(schema)
    lock = open_lock(table.contract.lock, store, ports)
    site = Site(store, ports, StateCache(store, ports), lock, table.contract)
    require_slots(site)
    create_table(store, ports, table)
    return site


def open_site(
    uri: str,
    storage_options: Mapping[str, object] | None,
    expected: Mapping[str, str] | None = None,
) -> Site:
    """Open a table with the lock that its contract names.

    Args:
        uri: where it is.
        storage_options: handed to the file system of the URL.
        expected: what the caller takes the contract to be, or parts of it.

    Raises:
        ContractError: the table has another contract than was expected.
        TableNotFoundError: there is none.
        UnsupportedFeatureError: a newer Plait wrote it.
    """
    ports = Ports()
    store = open_store(uri, storage_options)
    cache = StateCache(store, ports)
    contract = cache.refresh().table.contract
    if expected:
        wanted = contract.with_parts(expected)
        if wanted != contract:
            raise contract_differs(wanted, contract)
    return Site(store, ports, cache, open_lock(contract.lock, store, ports), contract)


def reopen(site: Site) -> Site:
    """Give the same client under the contract that the table has now."""
    contract = site.cache.refresh().table.contract
    lock = open_lock(contract.lock, site.store, site.ports)
    return Site(site.store, site.ports, site.cache, lock, contract)
