"""Tables as commands open them: as the caller expects them, or although damaged."""

from __future__ import annotations

from collections.abc import Mapping

from plait.cli.application import Application
from plait.errors import FormatError
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
from plait.table import Table
from plait.txn.table_handle import make_handle


def open_table(app: Application, uri: str, storage: Mapping[str, str]) -> Table:
    """Open a table; raise ContractError if its contract is not what ``--expect`` says."""
    return Table.open(
        uri, contract=app.expected or None, storage_options=storage or None, allow=app.allowed
    )


def open_for_verify(app: Application, uri: str, storage: Mapping[str, str]) -> Table:
    """Open a table; one whose metadata is damaged too, only to be verified."""
    try:
        return open_table(app, uri, storage)
    except FormatError:
        store = open_store(uri, storage or None)
        return Table(make_handle(store, Ports(), "none", consent=Consent.of(app.allowed)))
