"""The sinks in a table's definition: one more, or one less, by one decision each (RFC 0022)."""

from __future__ import annotations

from plait.definition.replicated_table import require_elsewhere, with_replicas
from plait.definition.table_def import TableDef
from plait.errors import OptionError
from plait.model.decision import CommitResult
from plait.txn.table_decisions import change_table
from plait.txn.table_handle import TableHandle
from plait.write.sink_address import parse_replicas


def add_replica(handle: TableHandle, replica: str) -> tuple[CommitResult, tuple[str, ...]]:
    """Name one more sink; return its address too, which the caller has allowed by naming it.

    Raises:
        OptionError: it does not fit, or its name is another sink's.
    """
    added = parse_replicas([replica])
    require_elsewhere(handle.store.address.uri, added)

    def changed(table: TableDef) -> TableDef:
        return with_replicas(table, {**table.replicas, **added})

    return change_table(handle, changed), tuple(added.values())


def remove_replica(handle: TableHandle, name: str) -> CommitResult:
    """Name a sink no more; raise OptionError if the definition does not name it."""

    def changed(table: TableDef) -> TableDef:
        if name not in table.replicas:
            message = f"the table's definition names no sink {name}"
            hint = f"it names: {', '.join(table.replicas) or 'none'}"
            raise OptionError(message, hint=hint, key="replicas", value=name)
        rest = {each: at for each, at in table.replicas.items() if each != name}
        return with_replicas(table, rest)

    return change_table(handle, changed)
