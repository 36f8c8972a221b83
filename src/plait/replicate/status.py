"""How far each sink is from the table, for callers who have a ``Table``."""

from __future__ import annotations

from plait.services.verify.sink_status import ReplicaStatus, status_of
from plait.table import Table, handle_of


def status(table: Table) -> tuple[ReplicaStatus, ...]:
    """Return the status of every sink that the table knows, by name.

    It reads every decision of the table, and asks no sink.
    """
    return status_of(handle_of(table))
