"""Checkpoints: the state at a version on storage, so that opening never replays history.

A checkpoint is ``state.json`` and the parts that it names. Parts grow geometrically: the new
one takes in older ones that are not much larger, so that each event is rewritten O(log n)
times. A checkpoint costs time when it is missing, never correctness (INV-11).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.definition.features import ARCHIVE, RESTORES, divided, unknown_of
from plait.definition.table_def import TableDef
from plait.errors import CorruptMetadataError, FormatError, StorageError
from plait.files.bounds import Kinds, plain_kinds, with_bounds
from plait.model.bucket import Partition
from plait.model.decision import Token
from plait.model.document import NODES_MAX, checksum_of, load_document
from plait.model.stream import Position
from plait.ports import Ports
from plait.state.checkpoint_verification import CheckpointVerification
from plait.state.events import TABLES, Events, compact, fold, tail_events
from plait.state.lineage import Archived, Horizons, LateInstant, Lineage, Reservation
from plait.state.part_file import PART_TABLES, places_of
from plait.state.parts import COMMIT_TABLES, FILE_TABLES, Part, recover_part, write_part
from plait.state.selected import load_places
from plait.state.state import TableState, features_in_use, require_writable, tail_places
from plait.state.statistics import add_places, changed_places, without_counts
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.codec import parse_reserved, reserved_to_dict
from plait.timeline.log import Timeline

_log = logging.getLogger(__name__)

_VERSION = re.compile(r"\d{20}", re.ASCII)
_NAME = re.compile(rf"state\.json|[0-9a-f]{{16}}-\d+-({'|'.join(PART_TABLES)})\.parquet", re.ASCII)
_GROWTH = 4
"""A part is taken into the new one when it has at most this many times its rows."""
MERGED_ROWS_MAX = 1 << 16
"""A writer takes in no part that is larger: it must not pay for the size of the table."""
_STATE_BYTES_MAX = 256 << 20
_NODES_MAX = 2 * NODES_MAX
"""Maximum number of JSON nodes: a state has more than a decision."""
_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_HINT_BYTES_MAX = 64


def write_checkpoint(store: Store, state: TableState, ports: Ports) -> TableState:
    """Write the checkpoint of a state; return the state that rests on it.

    Nobody needs it for correctness. A crash leaves parts that no checkpoint names; a racing
    writer of the same checkpoint loses at ``state.json``, and its parts stay unnamed.

    Raises:
        UnsupportedFeatureError: what is unknown here would be left out.
    """
    if not state.tail or state.checkpoint == state.version:
        return state
    require_writable(state)
    try:
        return _write_merged(store, state, ports)
    except CorruptMetadataError as error:  # no part is built upon that does not tell its sums
        _log.warning("writing the checkpoint of version %d in one part: %s", state.version, error)
    alone = _write_whole(store, state, state.events(store), ports)
    return replace(state, checkpoint=state.version) if alone is None else alone


def _write_merged(store: Store, state: TableState, ports: Ports) -> TableState:
    """Write a checkpoint that rests on older parts, where they are large.

    Raises:
        CorruptMetadataError: the parts are wrong, or do not tell their sums.
    """
    # Never build on parts that are known to be wrong: the damage would be copied into a checkpoint
    # that looks new. The caller writes all events in one part instead, from the decisions.
    if state.verification.wrong:
        message = "the parts that it would rest on are wrong"
        raise CorruptMetadataError(message, path=paths.checkpoint(state.parts[-1].last))
    parts = list(state.parts)
    kinds = plain_kinds(state.table.spec, state.table.schemas.values())
    events = _typed(tail_events(state.tail), kinds)
    places = [tail_places(store, state)]
    kept = _kept(store, parts, frozenset(events.condemned["path"].to_pylist()))
    # From the newest part backwards, since a part covers consecutive versions. Parts from `kept` on
    # are taken in whatever their size: their files may be deleted at any time.
    while len(parts) > kept or (parts and _is_taken_in(parts[-1], events)):
        older = parts.pop()
        places.append(without_counts(load_places(store, older, state.cache)))
        tables = (*FILE_TABLES, *COMMIT_TABLES)
        events = Events.concat([_typed(recover_part(store, older, tables, kinds), kinds), events])
    based = _write(store, replace(state, parts=tuple(parts)), events, places, ports)
    if based is None:
        return replace(state, checkpoint=state.version)
    known = [Events.concat([*state.loaded, tail_events(state.tail)])] if state.loaded else []
    return replace(based, loaded=known)


def rewrite_checkpoint(
    store: Store, state: TableState, stats: pa.Table, ports: Ports
) -> TableState | None:
    """Write the checkpoint of a state in one part, with bounds that its decisions do not tell.

    Args:
        store: the table's.
        state: what is known.
        stats: ``path`` and ``stats`` of files whose bounds are not known.
        ports: where the part's name comes from.

    Returns:
        The state that rests on it; None if somebody else wrote the checkpoint of this version.
    """
    events = state.events(store)
    at = pc.index_in(events.added["path"], value_set=stats["path"].combine_chunks())
    stats_column = pc.coalesce(events.added["stats"], pc.take(stats["stats"], at))
    column = events.added.schema.get_field_index("stats")
    added = events.added.set_column(column, TABLES["added"].field("stats"), stats_column)
    return _write_whole(store, state, replace(events, added=added), ports)


def _write_whole(
    store: Store, state: TableState, events: Events, ports: Ports
) -> TableState | None:
    """Write the checkpoint of a state in one part; None if there is one already."""
    kinds = plain_kinds(state.table.spec, state.table.schemas.values())
    live = fold(events).live(state.version)
    places = changed_places(live.slice(0, 0), live)
    alone = replace(state, parts=(), loaded=[], seen=[])
    return _write(store, alone, _typed(events, kinds), [places], ports)


def _write(
    store: Store,
    state: TableState,
    events: Events,
    places: Sequence[pa.Table],
    ports: Ports,
) -> TableState | None:
    """Add a part to those of a state, and write the checkpoint; None if there is one already.

    Its name is its version. So where another table is in the place of ours now, it is taken away:
    the other table would begin from it.
    """
    shown = state.lineage.readable(state.horizons.final, state.table.kept)
    events = compact(events, shown=shown, oldest=not state.parts)
    nonce = ports.ids.nonce()
    counted = add_places([*places, places_of(events.added)])
    first = state.parts[-1].last + 1 if state.parts else 0
    part = write_part(store, events, counted, first=first, last=state.version, nonce=nonce)
    parts = (*state.parts, part)
    verification = CheckpointVerification(
        state.live, finished=state.verification.finished and not state.verification.wrong
    )
    based = replace(
        state, parts=parts, tail=(), checkpoint=state.version, verification=verification
    )
    body = json.dumps(_document(based), separators=(",", ":")).encode()
    sealed = json.dumps({"checksum": checksum_of(body), "state": body.decode()}).encode()
    # `state.json` comes after the parts that it names, so a checkpoint that can be seen is whole. A
    # crash before it leaves parts that nothing names.
    if not store.put_if_absent(paths.checkpoint(state.version), sealed):
        store.delete([file.path for file in part.files])
        return None
    # The hint comes last: one that is missing or old costs a listing, while one that came first
    # could name a checkpoint that is never written.
    store.put(paths.CHECKPOINT_HINT, str(state.version).encode())
    # Of an emptied slot, a reader finds out whether the checkpoint is of its table.
    if Timeline(store).holds(state.version, state.checksum, emptied=True):
        return based
    # The table was replaced while we wrote. Take the checkpoint back, and only if its bytes are
    # ours: the new table may have one of the same version.
    store.delete([paths.CHECKPOINT_HINT, *(file.path for file in part.files)])
    if store.find(paths.checkpoint(state.version), size_max=_STATE_BYTES_MAX) == sealed:
        store.delete([paths.checkpoint(state.version)])
    return None


def _is_taken_in(older: Part, events: Events) -> bool:
    most = min(_GROWTH * max(events.rows, 1), MERGED_ROWS_MAX - events.rows)
    return older.rows <= most


def _typed(events: Events, kinds: Kinds) -> Events:
    """Give the bounds of files types, once."""
    return replace(events, added=with_bounds(events.added, kinds))


def _kept(store: Store, parts: list[Part], condemned: frozenset[str]) -> int:
    """Count the parts before the first that is gone, or going: this client may have slept (INV-11).

    Others wrote checkpoints meanwhile that do not need it, and a clean has condemned its files. So
    that clean came after the parts that are known here: ``condemned`` has what the tail condemns.
    """
    there = {info.path for info in store.list(paths.CHECKPOINTS)} - condemned if parts else set()
    for number, part in enumerate(parts):
        if any(file.path not in there for file in part.files):
            return number
    return len(parts)


def load_newest(store: Store, *, least: int = 0) -> TableState | None:
    """Load the newest checkpoint that can be used: by the hint, else by listing.

    Of two writers the one with the older checkpoint may write the hint last. So where a version
    must be covered, a hint below ``least`` is not followed.
    """
    hinted = hinted_checkpoint(store)
    # A damaged checkpoint is skipped, not reported: an older one and the decisions show the same
    # (INV-11).
    if hinted is not None and hinted >= least:
        state = try_checkpoint(store, hinted)
        if state is not None:
            return state
    for version in reversed(list_checkpoints(store)):
        state = try_checkpoint(store, version)
        if state is not None:
            return state
    return None


def list_checkpoints(store: Store) -> list[int]:
    """List the versions that have a whole checkpoint, oldest first."""
    names = [info.path for info in store.list(paths.CHECKPOINTS)]
    whole = [checkpoint_of(path) for path in names if path.endswith("/state.json")]
    return sorted(version for version in whole if version is not None)


def checkpoint_of(path: str) -> int | None:
    """Tell to which version's checkpoint a file belongs; None for a file that is out of place.

    >>> checkpoint_of(".meta/checkpoints/00000000000000000007/state.json")
    7
    """
    directory, _, name = path.rpartition("/")
    number = directory.rpartition("/")[-1]
    if not _VERSION.fullmatch(number) or not _NAME.fullmatch(name):
        return None
    if paths.checkpoint(int(number), name) != path:
        return None
    return int(number)


def load_checkpoint(store: Store, version: int) -> TableState | None:
    """Load the checkpoint of a version; None if there is none.

    Raises:
        CorruptMetadataError: it is damaged.
    """
    path = paths.checkpoint(version)
    data = store.find(path, size_max=_STATE_BYTES_MAX)
    if data is None:
        return None
    try:
        sealed = load_document(data, nodes_max=_NODES_MAX)
        body = str(sealed["state"])
        if sealed["checksum"] != checksum_of(body.encode()):
            message = f"{path} is damaged: its checksum does not match its content"
            raise CorruptMetadataError(message, path=path)
        return _state(load_document(body.encode(), nodes_max=_NODES_MAX), version, path)
    except FormatError:
        raise
    except _NONSENSE as error:
        message = f"{path} is not a checkpoint: {type(error).__name__}: {error}"
        raise CorruptMetadataError(message, path=path) from error


def try_checkpoint(store: Store, version: int) -> TableState | None:
    """Load the checkpoint of a version; None if there is none that can be read."""
    try:
        return load_checkpoint(store, version)
    except (CorruptMetadataError, StorageError):
        return None


def hinted_checkpoint(store: Store) -> int | None:
    """Return the version that the hint names; None if it says nothing. It may be wrong."""
    try:
        body = store.find(paths.CHECKPOINT_HINT, size_max=_HINT_BYTES_MAX)
    except (CorruptMetadataError, StorageError):  # a hint may be anything
        return None
    text = (body or b"").decode("ascii", "replace").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _document(state: TableState) -> dict[str, object]:
    table = state.table.to_dict()
    needed = divided(frozenset(features_in_use(state)), frozenset(state.table.allowed or ()))
    return {
        "features": list(needed.readers),
        **({"writer_features": list(needed.writers)} if needed.writers else {}),
        "version": state.version,
        "decision": state.checksum,
        "completed_ms": state.completed_ms,
        "newest_time": state.newest_time,
        **state.horizons.to_dict(),
        "late": [[e.instant, e.version, [list(p) for p in e.partitions]] for e in state.late],
        "reservations": [[r.version, reserved_to_dict(r.reserved)] for r in state.reservations],
        "streams": [_position(p) for p in state.streams.values()],
        **({"lineage": state.lineage.to_dict()} if state.lineage.features else {}),
        **({"archived": state.archive.to_list()} if state.archive.files else {}),
        "files": state.files,
        "table": table,
        "parts": [part.to_dict() for part in state.parts],
    }


def _state(document: Mapping[str, object], version: int, path: str) -> TableState:
    features = document["features"]
    if not isinstance(features, list) or unknown_of(features):
        message = f"{path} uses features that this version of Plait does not support: {features}"
        raise CorruptMetadataError(message, path=path)
    table, parts = document["table"], document["parts"]
    writers = document.get("writer_features", [])
    if document["version"] != version:
        raise ValueError(document["version"])
    if not isinstance(table, dict):
        raise TypeError(table)
    if not isinstance(parts, list) or not isinstance(writers, list):
        raise TypeError(parts)
    return TableState(
        version=version,
        checksum=str(document["decision"]),
        completed_ms=int(str(document["completed_ms"])),
        newest_time=str(document["newest_time"]),
        table=TableDef.from_dict(table, where=path),
        horizons=Horizons.from_dict(document, newest=version),
        late=_late(document["late"]),
        reservations=_reservations(document["reservations"]),
        files=int(str(document["files"])),
        streams=_streams(document["streams"]),
        lineage=Lineage.from_dict(document["lineage"]) if RESTORES in features else Lineage(),
        archive=Archived.from_list(document["archived"]) if ARCHIVE in features else Archived(),
        writer_features=tuple(map(str, writers)),
        parts=tuple(Part.from_dict(part, where=path) for part in parts),
        checkpoint=version,
    )


def _late(value: object) -> tuple[LateInstant, ...]:
    if not isinstance(value, list):
        raise TypeError(value)
    entries = []
    for instant, version, partitions in value:
        places: list[Partition] = [tuple(p) for p in partitions]
        entries.append(LateInstant(str(instant), int(version), tuple(places)))
    return tuple(entries)


def _reservations(value: object) -> tuple[Reservation, ...]:
    if not isinstance(value, list):
        raise TypeError(value)
    return tuple(Reservation(int(version), parse_reserved(entry)) for version, entry in value)


def _position(position: Position) -> list[object]:
    since = [] if position.since is None else [position.since]
    return [position.token.to_dict(), position.version, *since]


def _streams(value: object) -> dict[str, Position]:
    if not isinstance(value, list):
        raise TypeError(value)
    positions = [
        Position(Token.from_dict(token), int(version), *map(int, since))
        for token, version, *since in value
    ]
    return {position.token.application: position for position in positions}
