"""Decisions that define a table: version 0, and each change of options and time to live."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from plait.definition.create import with_properties, with_ttl
from plait.definition.table_def import TableDef
from plait.definition.ttl import Ttl
from plait.errors import (
    InvariantError,
    TableExistsError,
)
from plait.locks.identity import FORMAT_VERSION
from plait.model.decision import CommitResult, Decision, TableStatistics
from plait.model.instant import Action, Instant, Operation, time_text
from plait.ports import Ports
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import codec, paths
from plait.timeline.log import Timeline
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client


def create_table(store: Store, ports: Ports, table: TableDef) -> TableState:
    """Create a table; of many racing callers one wins (INV-02).

    ``table.json`` says only that something is here and in which format. Version 0 defines the
    table: a crash between the two leaves a place where creation can be repeated.

    Raises:
        TableExistsError: there is one.
        CorruptMetadataError: there was one, and its first slot was lost.
    """
    identity = {"format": FORMAT_VERSION, "id": ports.ids.nonce() + ports.ids.nonce()}
    if not store.put_if_absent(paths.TABLE, json.dumps(identity).encode()):
        Timeline(store).find_slot(0)  # raises if it was lost: nothing is made over what is left
    now = store.now_ms()
    draft = Decision(
        instant=Instant(time_text(now), ports.ids.nonce()),
        action=Action.CREATE,
        operation=Operation.CREATE,
        base=-1,
        live=TableStatistics(),
        table=table.to_dict(),
        client=client(),
    )
    attempt = ports.ids.nonce()
    decision = draft.in_slot(table.spec, version=0, completed_ms=now, attempt=attempt, previous="")
    body = codec.encode(decision)
    if not store.put_if_absent(paths.slot(0), body):
        theirs = Timeline(store).find_slot(0)
        if theirs != body:
            uri = store.address.uri
            message = f"a table already exists at {uri}"
            raise TableExistsError(message, hint="open it, or pass if_not_exists=True", uri=uri)
    return TableState.create(Timeline(store).decode(0, body), where=paths.slot(0))


def set_properties(handle: TableHandle, values: Mapping[str, object]) -> CommitResult:
    """Set options; those not named stay as they are.

    Raises:
        OptionError: a key or value that is not known, or is changed otherwise; nothing was written.
    """
    return change_table(handle, lambda table: with_properties(table, values))


def set_ttl(handle: TableHandle, ttl: Ttl | None) -> CommitResult:
    """Set the time to live of the rows; None: they live for ever.

    Raises:
        OptionError, SchemaMismatchError: it does not fit the table; nothing was written.
    """
    return change_table(handle, lambda table: with_ttl(table, ttl))


def change_table(handle: TableHandle, change: Callable[[TableDef], TableDef]) -> CommitResult:
    """Publish a change of the definition; it is computed anew from each head that is met."""

    def draft(state: TableState) -> Decision:
        return Decision(
            instant=handle.new_instant(state),
            action=Action.PROPERTY,
            operation=Operation.PROPERTY,
            base=state.version,
            table=change(state.table).to_dict(),
            client=client(),
        )

    decision = publish_service(handle, draft)
    if decision is None:
        raise InvariantError("a change of the table was not decided")
    return CommitResult(decision.version, decision.instant, decision.stats)
