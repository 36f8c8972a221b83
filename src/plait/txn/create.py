"""Making a table: its identity, then version 0, which defines it."""

from __future__ import annotations

import json

from plait.errors import TableExistsError
from plait.locks.identity import FORMAT_VERSION
from plait.model.decision import Decision
from plait.model.instant import Action, Instant, Operation, time_text
from plait.ports import Ports
from plait.state.state import TableDef, TableState
from plait.storage.port import Store
from plait.timeline import codec, paths
from plait.timeline.log import Timeline
from plait.txn.table_handle import client


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
        Timeline(store).find_bytes(0)  # raises if it was lost: nothing is made over what is left
    now = store.now_ms()
    decision = Decision(
        version=0,
        instant=Instant(time_text(now), ports.ids.nonce()),
        action=Action.CREATE,
        operation=Operation.CREATE,
        base=-1,
        schema_id=table.spec.schema.id,
        bucket_spec_id=table.spec.buckets.id,
        completed_ms=now,
        attempt=ports.ids.nonce(),
        previous="",
        table=table.to_dict(),
        client=client(),
    )
    body = codec.encode(decision)
    if not store.put_if_absent(paths.slot(0), body):
        theirs = Timeline(store).find_bytes(0)
        if theirs != body:
            uri = store.spec.uri
            message = f"a table already exists at {uri}"
            raise TableExistsError(message, hint="open it, or pass if_not_exists=True", uri=uri)
    return TableState.create(Timeline(store).decode(0, body), where=paths.slot(0))
