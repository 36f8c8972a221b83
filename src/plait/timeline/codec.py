"""Decisions as bytes: one JSON document a slot, columnar inside, sealed by a checksum."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from plait.definition.features import features_of, refuse_other_shape, require_readable
from plait.errors import (
    CommitError,
    CorruptMetadataError,
    FormatError,
    InvariantError,
    OptionError,
)
from plait.model.bucket import Partition
from plait.model.changes import SECTIONS, Changes, WriteStats
from plait.model.decision import (
    UNPUBLISHED,
    ArchiveFile,
    Cleaned,
    Decision,
    ReadSet,
    Replayed,
    Reserved,
    Restored,
    RolledBack,
    Savepoint,
    SavepointChange,
    Scope,
    SetBack,
    TableStatistics,
    Token,
)
from plait.model.document import NODES_MAX, count_nodes, seal, unseal
from plait.model.instant import TIME_MS_MAX, Action, Instant, Operation
from plait.model.sink_ledger import SinkLedger
from plait.storage.port import check_path
from plait.timeline import paths
from plait.timeline.columns import from_json, other_columns, strange_columns, to_json

SLOT_BYTES_MAX = 64 << 20
_INT_MAX, _ID_MAX = 1 << 63, 1 << 31

T = TypeVar("T")
Section = Callable[[object, pa.Schema], pa.Table]


def encode(decision: Decision, manifests: Mapping[str, object] | None = None) -> bytes:
    """Write a decision; sections named in ``manifests`` are replaced by those references.

    Raises:
        CommitError: it would be larger than what anybody reads.
        OptionError: a text in it cannot be written.
        InvariantError: it has no slot.
    """
    if decision.version == UNPUBLISHED:
        message = f"the decision of instant {decision.instant} has no slot to be written to"
        raise InvariantError(message)
    document = _document(decision)
    for name, table in decision.changes.tables().items():
        if manifests and name in manifests:
            document["changes"][name] = manifests[name]
        elif table.num_rows:
            document["changes"][name] = to_json(table)
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        data = seal(text.encode())
    except UnicodeEncodeError as error:
        shown = ascii(error.object[max(0, error.start - 20) : error.end + 20])
        message = f"a text has half of a character, a lone surrogate: {shown}"
        hint = "correct the name, the option or the id that has it"
        raise OptionError(message, hint=hint, key="text", value=shown) from error
    nodes = count_nodes(data)
    if nodes > NODES_MAX:
        message = f"the decision has {nodes} values and signs; at most {NODES_MAX} are allowed"
        hint = "write less at once"
        raise CommitError(message, hint=hint, bytes=len(data), bytes_max=SLOT_BYTES_MAX)
    if len(data) > SLOT_BYTES_MAX:
        message = f"the decision has {len(data)} bytes; at most {SLOT_BYTES_MAX} are allowed"
        hint = "write less at once, or use a smaller predicate or commit id"
        raise CommitError(message, hint=hint, bytes=len(data), bytes_max=SLOT_BYTES_MAX)
    return data


def decode(data: bytes, *, path: str, load: Section) -> Decision:
    """Read a decision; ``load`` fetches the sections that stand in manifests.

    Raises:
        CorruptMetadataError: the bytes are not a sealed decision.
        UnsupportedFeatureError: a newer Plait wrote it, or one from before the first release.
    """
    checksum, document = unseal(data, path=path)
    features = document.get("features")
    if not isinstance(features, list):
        features = []
    require_readable(features, path=path)
    try:
        decision = _decision(document, path, load)
    except CorruptMetadataError as error:
        refuse_other_shape([*_strangers(document), *strange_columns(error)], path=path)
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, FormatError) as error:
        refuse_other_shape(_strangers(document), path=path)
        message = f"{path} is not a decision: {type(error).__name__}: {error}"
        raise CorruptMetadataError(message, path=path) from error
    return replace(decision, checksum=checksum, features=tuple(map(str, features)))


def _strangers(document: Mapping[str, object]) -> list[str]:
    """Return the parts of a sealed document that this format does not have, and those it lacks.

    The seal proves that somebody wrote it so. If the parts are others than those of this format,
    it was a client of another format; bytes that were damaged look otherwise.
    """
    found = [f"no {name}" for name in _ALWAYS if name not in document]
    found += sorted(name for name in document if name not in (*_ALWAYS, *_SOMETIMES))
    stats, changes = document.get("stats"), document.get("changes")
    if isinstance(stats, Mapping):
        known = WriteStats.__dataclass_fields__
        found += sorted(f"stats.{name}" for name in stats if name not in known)
    for name, section in changes.items() if isinstance(changes, Mapping) else ():
        if name not in SECTIONS:
            found.append(f"changes.{name}")
        elif isinstance(section, Mapping) and "manifest" not in section:
            found += (f"changes.{name}.{each}" for each in other_columns(section, SECTIONS[name]))
    return found


_ALWAYS = (
    *("version", "instant", "action", "operation", "base", "completed_ms", "attempt", "previous"),
    *("features", "schema_id", "bucket_spec_id", "scope", "stats", "client", "changes"),
)
_SOMETIMES = (
    *("writer_features", "live", "commit_id", "read_set", "table", "tokens", "rolled_back"),
    *("cleaned", "reserved", "savepoint", "restored", "replay", "archived", "replicas"),
)


def _document(decision: Decision) -> dict[str, dict[str, object]]:
    needed = features_of(decision, decision.features, decision.writer_features)
    document: dict[str, object] = {
        "version": decision.version,
        "instant": str(decision.instant),
        "action": decision.action.value,
        "operation": decision.operation.value,
        "base": decision.base,
        "completed_ms": decision.completed_ms,
        "attempt": decision.attempt,
        "previous": decision.previous,
        "features": list(needed.readers),
        "schema_id": decision.schema_id,
        "bucket_spec_id": decision.bucket_spec_id,
        "scope": _scope(decision.scope),
        "stats": decision.stats.to_dict(),
        "client": decision.client,
        "changes": {},
    }
    optional = {
        "writer_features": list(needed.writers) or None,
        "live": decision.live and decision.live.to_list(),
        "commit_id": decision.commit_id,
        "read_set": _read_set(decision.read_set),
        "table": decision.table,
        "tokens": list(map(Token.to_dict, decision.tokens)) or None,
        "rolled_back": list(map(_rolled_back, decision.rolled_back)) or None,
        "cleaned": _cleaned(decision.cleaned),
        "reserved": None if decision.reserved is None else reserved_to_dict(decision.reserved),
        "savepoint": decision.savepoint and decision.savepoint.to_dict(),
        "restored": decision.restored and decision.restored.to_dict(),
        "replay": decision.replayed and decision.replayed.to_dict(),
        "archived": list(map(ArchiveFile.to_list, decision.archived)) or None,
        "replicas": decision.replicas and decision.replicas.to_dict(),
    }
    document.update({key: value for key, value in optional.items() if value is not None})
    return document  # type: ignore[return-value]  # "changes" is the one entry that is filled in


def _scope(scope: Scope) -> dict[str, object]:
    partitions = list(map(list, scope.partitions))
    return {"kind": scope.kind, "partitions": partitions, "predicate": scope.predicate}


def _parse_scope(value: Mapping[str, object]) -> Scope:
    predicate = _optional(value["predicate"], dict)
    return Scope(_typed(value["kind"], str), _partitions(value["partitions"]), predicate)


def _read_set(value: ReadSet | None) -> dict[str, object] | None:
    return None if value is None else {"version": value.version, "reads": list(value.reads)}


def _parse_read_set(value: Mapping[str, object]) -> ReadSet:
    reads = tuple(_optional(item, dict) for item in _typed(value["reads"], list))
    return ReadSet(_typed(value["version"], int), reads)


def reserved_to_dict(value: Reserved) -> dict[str, object]:
    """Write a reservation as JSON values, the form in decisions and checkpoints."""
    buckets = [[list(partition), number] for partition, number in value.buckets]
    return {"instant": str(value.holder), "scope": _scope(value.scope), "buckets": buckets}


def parse_reserved(value: Mapping[str, object]) -> Reserved:
    """Read what ``reserved_to_dict`` wrote; raise KeyError, TypeError, ValueError for nonsense."""
    buckets = []
    for item in _typed(value["buckets"], list):
        partition, number = _typed(item, list)
        buckets.append((_partitions([partition])[0], _typed(number, int)))
    holder = Instant.parse(_typed(value["instant"], str))
    return Reserved(holder, _parse_scope(_typed(value["scope"], dict)), tuple(buckets))


def parse_archive(value: object) -> tuple[ArchiveFile, ...]:
    """Read the files of an archive; raise TypeError or ValueError for nonsense.

    They follow each other from version 0 on without a gap.
    """
    files = tuple(_archive_file(_typed(each, list)) for each in _typed(value, list))
    if [file.first for file in files] != [0, *(file.last + 1 for file in files)][: len(files)]:
        raise ValueError("the files of the archive do not follow each other")
    return files


def _archive_file(value: list[object]) -> ArchiveFile:
    path, first, last, size, digest = value
    file = ArchiveFile(
        check_path(_typed(path, str)),
        _typed(first, int),
        _typed(last, int),
        _typed(size, int),
        _typed(digest, str),
    )
    name = paths.archive_of(file.path)
    if name is None or (name.first, name.last) != (file.first, file.last) or file.bytes <= 0:
        raise ValueError(f"not a file of the archive: {value!r:.160}")
    return file


def _rolled_back(value: RolledBack) -> dict[str, object]:
    partitions = [list(p) for p in value.partitions]
    return {"instant": str(value.instant), "reason": value.reason, "partitions": partitions}


def _cleaned(value: Cleaned | None) -> dict[str, object] | None:
    if value is None:
        return None
    undo = {} if value.undo is None else {"undo": value.undo}
    return {
        "horizon": value.horizon,
        "final": value.final,
        "condemned": [list(entry) for entry in value.condemned],
        "deleted": list(value.deleted),
        **undo,
    }


def _parse_savepoint(each: Mapping[str, object]) -> SavepointChange:
    savepoint = Savepoint(_typed(each["name"], str), _typed(each["version"], int))
    return SavepointChange(savepoint, _typed(each["drop"], bool))


def _parse_restored(value: Mapping[str, object]) -> Restored:
    pairs = [_typed(item, list) for item in _typed(value["undone"], list)]
    reverted = tuple((_typed(first, int), _typed(last, int)) for first, last in pairs)
    return Restored(_typed(value["to"], int), reverted)


def _parse_replayed(value: Mapping[str, object]) -> Replayed:
    applications = tuple(_set_back(_typed(e, dict)) for e in _typed(value["applications"], list))
    return Replayed(applications, _texts(value["commit_ids"]))


def _set_back(value: Mapping[str, object]) -> SetBack:
    token, version = value["token"], _optional(value["version"], int)
    if (token is None) != (version is None):
        raise ValueError(value)
    token = None if token is None else _token(token)
    return SetBack(_typed(value["application"], str), token, version)


def _decision(document: Mapping[str, object], path: str, load: Section) -> Decision:
    back, cleaned = document.get("rolled_back", []), document.get("cleaned")
    read, reserved = document.get("read_set"), document.get("reserved")
    savepoint, restored = document.get("savepoint"), document.get("restored")
    replayed, live = document.get("replay"), document.get("live")
    replicas, writers = document.get("replicas"), document.get("writer_features", [])
    return Decision(
        version=_typed(document["version"], int),
        instant=Instant.parse(_typed(document["instant"], str)),
        action=Action(_typed(document["action"], str)),
        operation=Operation(_typed(document["operation"], str)),
        base=_typed(document["base"], int),
        completed_ms=_time(document["completed_ms"]),
        attempt=_typed(document["attempt"], str),
        writer_features=_texts(writers),
        previous=_typed(document["previous"], str),
        changes=_changes(_typed(document["changes"], dict), path, load),
        scope=_parse_scope(_typed(document["scope"], dict)),
        read_set=None if read is None else _parse_read_set(_typed(read, dict)),
        schema_id=_id(document["schema_id"]),
        bucket_spec_id=_id(document["bucket_spec_id"]),
        commit_id=_optional(document.get("commit_id"), str),
        tokens=tuple(map(_token, _typed(document.get("tokens", []), list))),
        rolled_back=tuple(_parse_rolled_back(_typed(each, dict)) for each in _typed(back, list)),
        cleaned=None if cleaned is None else _parse_cleaned(_typed(cleaned, dict)),
        reserved=None if reserved is None else parse_reserved(_typed(reserved, dict)),
        savepoint=None if savepoint is None else _parse_savepoint(_typed(savepoint, dict)),
        restored=None if restored is None else _parse_restored(_typed(restored, dict)),
        replayed=None if replayed is None else _parse_replayed(_typed(replayed, dict)),
        archived=parse_archive(document["archived"]) if "archived" in document else (),
        replicas=None if replicas is None else SinkLedger.from_dict(_typed(replicas, dict)),
        live=None if live is None else TableStatistics.from_list(live),
        table=_optional(document.get("table"), dict),
        stats=_stats(document["stats"]),
        client=_typed(document["client"], dict),
    )


def _stats(value: object) -> WriteStats:
    counts = _typed(value, dict)
    for number in counts.values():
        _typed(number, int)
    return WriteStats(**counts)


def _changes(value: Mapping[str, object], path: str, load: Section) -> Changes:
    tables: dict[str, pa.Table] = {}
    for name, section in value.items():
        schema = SECTIONS[name]
        inline = not (isinstance(section, dict) and "manifest" in section)
        where = f"{path}#{name}"
        tables[name] = from_json(section, schema, where=where) if inline else load(section, schema)
    return Changes(**tables)


def _token(value: object) -> Token:
    return Token.from_dict(_typed(value, dict))


def _parse_rolled_back(value: Mapping[str, object]) -> RolledBack:
    instant = Instant.parse(_typed(value["instant"], str))
    return RolledBack(instant, _typed(value["reason"], str), _partitions(value["partitions"]))


def _parse_cleaned(value: Mapping[str, object]) -> Cleaned:
    condemned = tuple(_condemned(entry) for entry in _typed(value["condemned"], list))
    deleted = tuple(check_path(_typed(p, str)) for p in _typed(value["deleted"], list))
    horizon, final = _typed(value["horizon"], int), _typed(value["final"], int)
    if not 0 <= final <= horizon:
        message = f"the clean keeps versions from {horizon} on, but those before {final} are final"
        raise ValueError(message)
    return Cleaned(horizon, final, condemned, deleted, _optional(value.get("undo"), int))


def _condemned(value: object) -> tuple[str, int]:
    path, removed = _typed(value, list)
    return check_path(_typed(path, str)), _typed(removed, int)


def _partitions(value: object) -> tuple[Partition, ...]:
    return tuple(
        tuple(_optional(text, str) for text in _typed(item, list)) for item in _typed(value, list)
    )


def _typed(value: object, kind: type[T]) -> T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, found {value!r:.80}")
    if kind is int and not -_INT_MAX <= value < _INT_MAX:  # type: ignore[operator]  # it is one
        raise ValueError("a number of more than 64 bits")
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple([_typed(each, str) for each in _typed(value, list)])


def _time(value: object) -> int:
    ms = _typed(value, int)
    if not 0 <= ms <= TIME_MS_MAX:
        raise ValueError(f"{ms} ms since 1970 is not a valid completion time")
    return ms


def _id(value: object) -> int:
    number = _typed(value, int)
    if not 0 <= number < _ID_MAX:
        raise ValueError(f"{number} is not the id of a schema or bucket spec")
    return number


def _optional(value: object, kind: type[T]) -> T | None:
    return None if value is None else _typed(value, kind)
