"""Tables whose definition names sinks: what such a table may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from plait.definition.policy import FILE_GROUP, KEY
from plait.definition.table_def import TableDef
from plait.errors import OptionError

_ORDERED: Final = (KEY, FILE_GROUP)
"""Policies under which two commits of one key never both succeed unless one followed the other."""
_REMOVE: Final = "remove the sinks from the table, and add and repair them afterwards"


def require_puts_in_order(table: TableDef) -> None:
    """Refuse a table whose rows sinks may get twice, or in another order; raise OptionError."""
    if not table.spec.keyed:
        message = "replicas need a record key: without it, a batch cannot be sent again"
        hint = "create the table with record_key=[...]"
        raise OptionError(message, hint=hint, key="replicas", value="")
    if table.spec.transforms_outside_key:
        message = f"replicas cannot keep rows apart by {table.spec.transforms_outside_key[0].text}"
        hint = "have its columns in the record key, or partition by a column"
        raise OptionError(message, hint=hint, key="replicas", value="")
    if table.spec.unique_in_table:
        message = "a sink keeps a row by its key and partition, and here it can move to another one"
        hint = "use unique='partition', partitions by columns of the key or none, or no sinks"
        raise OptionError(message, hint=hint, key="replicas", value=table.spec.unique)
    if table.policy not in _ORDERED:
        message = f"policy {table.policy!r} may commit one key twice in another order than sinks"
        hint = f"use a table with the policy {' or '.join(_ORDERED)}"
        raise OptionError(message, hint=hint, key="replicas", value=table.policy)


def with_replicas(table: TableDef, replicas: Mapping[str, str]) -> TableDef:
    """Return a definition with these sinks.

    Raises:
        OptionError: rows of such a table cannot go to sinks first, or expire without them; or a
            name stands for another place already.
    """
    known = {**table.former_replicas, **table.replicas}
    if replicas:
        require_puts_in_order(table)
        for name, address in replicas.items():
            _require_same_place(name, known.get(name, address), address)
        if table.repush is not None and table.repush.source is not None:
            message = "a repush is open that replaces the table's rows by those of a source"
            hint = "cancel it, or let it end; then add the sinks, and repair them"
            raise OptionError(message, hint=hint, key="replicas", value=table.repush.directory)
        if table.ttl is not None:
            message = "rows that expire would stay in the sinks of the table"
            hint = "use a time to live, or sinks in the table's definition, not both"
            raise OptionError(message, hint=hint, key="replicas", value=str(table.ttl))
    former = {name: at for name, at in known.items() if name not in replicas}
    return replace(table, replicas=dict(replicas), former_replicas=former)


def _require_same_place(name: str, known: str, address: str) -> None:
    """Refuse another address for a name: commits say which sinks have their rows by name alone."""
    if known != address:
        message = f"the sink {name} is at {known}, and commits say so; it cannot be at {address}"
        hint = "add the other place under a name of its own, and repair it"
        raise OptionError(message, hint=hint, key="replicas", value=name)


def require_elsewhere(uri: str, replicas: Mapping[str, str]) -> None:
    """Refuse a table as a sink of itself; raise OptionError."""
    for name, address in replicas.items():
        if address == uri:
            message = f"the sink {name} is the table itself: {uri}"
            raise OptionError(message, hint="name another place", key="replicas", value=name)


def require_no_replicas(table: TableDef, what: str) -> None:
    """Refuse what changes rows without a writer that sends them; raise OptionError.

    Args:
        table: the table.
        what: what is refused, such as ``a restore``.
    """
    if table.replicas:
        names = ", ".join(table.replicas)
        message = f"{what} cannot send its rows to the table's sinks first: {names}"
        raise OptionError(message, hint=_REMOVE, key="replicas", value=names)
