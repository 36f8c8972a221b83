"""Tables opened in ways that the facade does not offer: watched, or although damaged."""

from __future__ import annotations

from collections.abc import Mapping

from plait.errors import FormatError
from plait.ports import Observer, Ports
from plait.storage import open_store
from plait.table import Table
from plait.txn.site import make_site, open_site


def open_observed(uri: str, observer: Observer) -> Table:
    """Open a table whose commits tell an observer of their phases."""
    return Table(open_site(open_store(uri), Ports(observer=observer)))


def open_for_verify(uri: str, storage: Mapping[str, str] | None) -> Table:
    """Open a table; one whose metadata is damaged too, only to be verified."""
    try:
        return Table.open(uri, storage_options=storage)
    except FormatError:
        return Table(make_site(open_store(uri, storage), Ports(), "none"))
