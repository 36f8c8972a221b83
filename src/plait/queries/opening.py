"""Open or create a table: from its URI to its handle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from plait.definition.replicated_table import require_elsewhere
from plait.definition.table_def import TableDef
from plait.errors import OptionError, StorageError
from plait.interop.publication import require_libraries
from plait.locks import resolve_lock
from plait.locks.identity import IDENTITY_BYTES_MAX, require_identity
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
from plait.storage.port import Store
from plait.timeline import paths
from plait.txn.refusal import contract_differs
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import (
    TableHandle,
    make_handle,
    open_handle,
    require_atomic,
    require_slots,
)


def create_handle(store: Store, table: TableDef, consent: Consent) -> TableHandle:
    """Create a table in a store.

    The caller of this call gave the sinks and the lock, so the client may use them.

    Raises:
        OptionError: a catalog is there, a sink is the table itself, or the store lacks what the
            lock needs; nothing was written.
        TableExistsError: the table exists.
        MissingDependencyError: this client could not publish it as its properties say.
    """
    ports = Ports()
    _require_no_catalog(store)
    require_elsewhere(store.address.uri, table.replicas)
    contract = replace(table.contract, lock=resolve_lock(table.contract.lock, store))
    allowed = consent.also(*table.replicas.values(), contract.lock)
    handle = make_handle(store, ports, contract.lock, consent=allowed)
    require_slots(handle)
    if table.published:
        require_libraries(table.options.to_dict())
        require_atomic(handle.plain_store)
    try:
        first = create_table(handle.store, ports, replace(table, contract=contract))
    except StorageError as error:  # it names a file of ours; the caller knows the table
        uri = store.address.uri
        message = f"the table at {uri} could not be created: {error.message}"
        raise type(error)(message, hint=error.hint, **error.facts) from error
    handle.cache.identity = require_identity(store)
    handle.cache.offer(first)  # what it goes on from is the table that was created
    return replace(handle, contract=contract)


def _require_no_catalog(store: Store) -> None:
    uri = store.address.uri
    if store.find(f"{paths.CATALOG}/{paths.TABLE}", size_max=IDENTITY_BYTES_MAX) is not None:
        message = f"{uri} is a catalog, and a table cannot be in its place"
        hint = "give the table a name in it: Catalog(uri).create_table(name, schema)"
        raise OptionError(message, hint=hint, key="uri", value=uri)


def open_expected(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None,
    expected: Mapping[str, str] | None = None,
    *,
    consent: Consent,
) -> TableHandle:
    """Open a table with the lock that its contract names.

    Args:
        uri: the URI of the table.
        storage_options: passed to the file system of the URL.
        expected: the contract that the caller expects, or parts of it.
        consent: the places outside of the table that the caller allows.

    Raises:
        ConsentError: servers decide its slots, and the caller did not allow them.
        ContractError: the table has another contract.
        TableNotFoundError: there is no table at this URI.
        UnsupportedFeatureError: a newer Plait wrote it.
    """
    handle = open_handle(open_store(uri, storage_options), Ports(), consent)
    contract = handle.contract
    if expected and contract is not None:
        wanted = contract.with_parts(expected)
        if wanted != contract:
            raise contract_differs(wanted, contract)
    return handle
