"""Damage by hand: decisions that nobody would publish, sealed as if somebody had."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import xxhash

from plait.model.decision import Decision
from plait.model.document import checksum_of, unseal
from plait.model.instant import Action, Instant, Operation, time_ms
from plait.model.schema import FIELD_ID, Schema
from plait.state.cache import StateCache
from plait.state.state import statistics_after_decision
from plait.storage.local import LocalStore
from plait.storage.port import Store
from plait.testing import sim_ports
from plait.timeline import codec, paths
from plait.timeline.log import Timeline

NONCE = "f" * 16


def decision_at(store: Store, version: int) -> Decision:
    """Load a decision that must be there."""
    found = Timeline(store).find(version)
    assert found is not None
    return found


def forge(store: Store, change: Callable[[Decision], Decision], *, like: int) -> str:
    """Put a changed copy of a decision on top of the head; give the path of its slot.

    Version, seal, chain, times and nonce fit, unless ``change`` makes them not fit. The sums over
    live files always do.
    """
    state = StateCache(store, sim_ports()).refresh()
    copy = replace(
        decision_at(store, like),
        version=state.version + 1,
        base=state.version,
        previous=state.checksum,
        completed_ms=state.completed_ms + 1,
        instant=Instant.at(time_ms(state.newest_time) + 1, NONCE),
        commit_id=None,
    )
    path = paths.slot(state.version + 1)
    forged = change(copy)
    forged = replace(forged, live=statistics_after_decision(store, state, forged.changes))
    assert store.put_if_absent(path, codec.encode(forged))
    return path


def forge_column(store: Store, name: str) -> Schema:
    """Put a decision on top of the head that adds a column of whole numbers; give the schema."""
    old = StateCache(store, sim_ports()).refresh().table.spec.schema
    field = pa.field(name, pa.int64(), metadata={FIELD_ID: str(max(old.ids.values()) + 1)})
    return forge_schema(store, lambda arrow: arrow.append(field))


def forge_schema(store: Store, edit: Callable[[pa.Schema], pa.Schema]) -> Schema:
    """Put a decision on top of the head that changes the columns; give the schema."""
    shape = StateCache(store, sim_ports()).refresh().table
    old = shape.spec.schema
    newer = Schema(old.id + 1, edit(old.arrow))
    spec = replace(shape.spec, schema=newer)
    whole = replace(shape, spec=spec, schemas={**shape.schemas, newer.id: newer})

    def change(decision: Decision) -> Decision:
        return replace(
            decision,
            action=Action.SCHEMA,
            operation=Operation.SCHEMA,
            schema_id=newer.id,
            table=whole.to_dict(),
        )

    forge(store, change, like=0)
    return newer


def reseal(store: Store, version: int, change: Callable[[Decision], Decision]) -> str:
    """Replace a slot by a changed decision with a seal of its own; give its path."""
    path = paths.slot(version)
    store.put(path, codec.encode(change(decision_at(store, version))))
    return path


def rewrite(store: Store, version: int, edit: Callable[[dict[str, object]], object]) -> str:
    """Change the document in a slot, whatever comes of it, and seal it again; give its path."""
    path = paths.slot(version)
    _, document = unseal(store.find(path) or b"", path=path)
    edit(document)
    store.put(path, seal(document))
    return path


def reseal_checkpoint(store: Store, at: int, **fields: object) -> str:
    """Change fields of a checkpoint, and seal it again; give its path."""
    path = paths.checkpoint(at)
    body = json.dumps({**json.loads(json.loads(store.find(path) or b"")["state"]), **fields})
    sealed = {"checksum": checksum_of(body.encode()), "state": body}
    store.put(path, json.dumps(sealed).encode())
    return path


def seal(document: object) -> bytes:
    """Seal any JSON value as if it were a decision."""
    body = json.dumps(document).encode()
    return b'{"checksum":"%s",\n"decision":%s}\n' % (checksum_of(body).encode(), body)


def footer_hash(body: bytes) -> int:
    """Return what a decision must say of the footer of this Parquet file."""
    return xxhash.xxh64_intdigest(body[-8 - int.from_bytes(body[-8:-4], "little") :])


def flip(store: LocalStore, path: str, at: int) -> None:
    """Flip one bit of a file; from the end if ``at`` is negative."""
    file = Path(store.root, path)
    body = bytearray(file.read_bytes())
    body[at] ^= 0x04
    file.write_bytes(body)
