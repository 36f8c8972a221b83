"""What published metadata says, read without Plait, as literally as an engine reads it.

It knows the protocol of Delta and the specification of Iceberg, and nothing of who wrote the files:
no name, size or mark of ours. Engines read real directories; here any store does, so schedules,
crashes and histories are judged by the same words. ``tests/integration/interop`` compares it with
engines.
"""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from plait.files import roaring
from plait.storage.port import Store

Json = dict[str, Any]
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet")
_METADATA = re.compile(r"metadata/v(\d+)\.metadata\.json")
_FROM_Z85 = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)


class UnreadableError(Exception):
    """An engine that reads this raises an error."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What one version is, by the metadata alone."""

    version: int
    """Of the table: what a commit of Plait says of itself, or the id of a snapshot."""
    columns: tuple[str | int, ...]
    """How to find each column in a file: by its stored name in Delta, by its id in Iceberg."""
    files: tuple[tuple[str, frozenset[int]], ...]
    """The data files, by their paths in the store, each with the positions of its hidden rows."""

    def rows(
        self, store: Store, columns: Sequence[str | int] | None = None
    ) -> list[tuple[object, ...]]:
        """Return the rows, sorted; some of their columns, if they are named.

        Raises:
            UnreadableError: a file is missing.
        """
        found: list[tuple[object, ...]] = []
        for path, hidden in self.files:
            data = _parquet(_body(store, path))
            rows = zip(*(_column(data, each) for each in columns or self.columns), strict=True)
            found += [row for at, row in enumerate(rows) if at not in hidden]
        return sorted(found, key=repr)

    def missing(self, store: Store) -> list[str]:
        """Return the data files that are not there."""
        return [path for path, _ in self.files if store.find(path) is None]


def _column(data: pa.Table, key: str | int) -> list[object]:
    """Return the values of a column; a file from before it was there has none."""
    for field, column in zip(data.schema, data.columns, strict=True):
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if key in (field.name, None if number is None else int(number)):
            found: list[object] = column.to_pylist()
            return found
    return [None] * data.num_rows


def _body(store: Store, path: str) -> bytes:
    body = store.find(path)
    if body is None:
        raise UnreadableError(f"{path} is missing")
    return body


@lru_cache(512)
def _parquet(body: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(body))


def read_records(body: bytes) -> tuple[Json, ...]:
    """Read the records of an Avro file."""
    return _avro(body)


@lru_cache(256)
def _avro(body: bytes) -> tuple[Json, ...]:
    return tuple(fastavro.reader(io.BytesIO(body)))  # type: ignore[arg-type]  # records


# --- Delta --------------------------------------------------------------------------------------


def delta_numbers(store: Store) -> list[int]:
    """Return the numbers of the commits that an engine can be asked for, rising."""
    return sorted(int(m[1]) for each in store.list("_delta_log") if (m := _match(_COMMIT, each)))


def delta_mark(store: Store, number: int) -> int | None:
    """Return the version that a commit says to show; None for a commit of others."""
    info = _actions(_body(store, _commit_path(number)))[0].get("commitInfo", {})
    return info["plait"]["version"] if "plait" in info else None


def delta_beginnings(store: Store, number: int) -> list[int | None]:
    """Return the checkpoints with which a reader of a commit may begin, newest first.

    An engine begins with the newest; one that follows the log began with an older one, of a commit
    of Plait. Without any, some begin with the oldest commit, whatever its number: they must not
    show something wrong then.
    """
    found = (_match(_CHECKPOINT, each) for each in store.list("_delta_log"))
    numbers = sorted((at for m in found if m and (at := int(m[1])) <= number), reverse=True)
    followed = [at for at in numbers[1:] if _is_ours(store, at)]
    return [*numbers[:1], *followed] or [None]


def _is_ours(store: Store, number: int) -> bool:
    return store.find(_commit_path(number)) is not None and delta_mark(store, number) is not None


def read_delta(store: Store, number: int, begin: int | None) -> Shown:
    """Read the log up to a commit, from a checkpoint on.

    Raises:
        UnreadableError: the log has a gap, or no schema, or a file of vectors is missing.
    """
    commits = [each for each in delta_numbers(store) if each <= number]
    needed = [each for each in commits if begin is None or each > begin]
    first = needed[0] if begin is None else begin + 1
    if needed != list(range(first, number + 1)):
        raise UnreadableError(f"the log has a gap below {number}")
    actions = [] if begin is None else _checkpointed(_body(store, _checkpoint_path(begin)))
    for each in needed:
        actions += _actions(_body(store, _commit_path(each)))
    live: dict[tuple[str, str], Json] = {}
    schema, protocol = None, False
    for action in actions:
        if action.get("add"):
            live[_identity(action["add"])] = action["add"]
        if action.get("remove"):
            live.pop(_identity(action["remove"]), None)
        if action.get("metaData"):
            schema = json.loads(action["metaData"]["schemaString"])
        protocol = protocol or bool(action.get("protocol"))
    if schema is None or not protocol:
        raise UnreadableError("the log has no schema or no protocol")
    columns = tuple(_physical(each) for each in schema["fields"])
    files = ((unquote(each["path"]), _vector(store, each)) for each in live.values())
    version = delta_mark(store, number)
    return Shown(number if version is None else version, columns, tuple(sorted(files)))


def _match(pattern: re.Pattern[str], info: Any) -> re.Match[str] | None:
    return pattern.fullmatch(info.path)


def _commit_path(number: int) -> str:
    return f"_delta_log/{number:020d}.json"


def _checkpoint_path(number: int) -> str:
    return f"_delta_log/{number:020d}.checkpoint.parquet"


@lru_cache(1024)
def _actions(body: bytes) -> tuple[Json, ...]:
    return tuple(json.loads(line) for line in body.splitlines())


def _checkpointed(body: bytes) -> list[Json]:
    found: list[Json] = _parquet(body).to_pylist()
    return found


def _identity(file: Json) -> tuple[str, str]:
    vector = file.get("deletionVector")
    if not vector:
        return file["path"], ""
    name = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    offset = vector.get("offset")
    return file["path"], name if offset is None else f"{name}@{offset}"


def _physical(field: Json) -> str:
    return str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))


def _vector(store: Store, file: Json) -> frozenset[int]:
    vector = file.get("deletionVector")
    if not vector:
        return frozenset()
    text, size = vector["pathOrInlineDv"], vector["sizeInBytes"]
    if vector["storageType"] == "i":
        body = _from_z85(text)[:size]
    else:
        whole = _body(store, _vector_file(text))
        at = vector["offset"]
        if struct.unpack(">i", whole[at : at + 4])[0] != size:
            raise UnreadableError("a vector has another size")
        body = whole[at + 4 : at + 4 + size]
    return _positions(body, vector["cardinality"])


def vector_copies(store: Store) -> set[str]:
    """Return the files of vectors that commits and checkpoints name."""
    actions: list[Json] = []
    for info in store.list("_delta_log"):
        body = _body(store, info.path)
        if _match(_COMMIT, info):
            actions += _actions(body)
        elif _match(_CHECKPOINT, info):
            actions += _checkpointed(body)
    files = (action.get("add") or action.get("remove") or {} for action in actions)
    vectors = (each["deletionVector"] for each in files if each.get("deletionVector"))
    named = (each["pathOrInlineDv"] for each in vectors if each["storageType"] == "u")
    return {_vector_file(each) for each in named}


def _vector_file(text: str) -> str:
    return f"{text[:-20]}/deletion_vector_{uuid.UUID(bytes=_from_z85(text[-20:]))}.bin"


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_FROM_Z85))


def _positions(body: bytes, count: int) -> frozenset[int]:
    if body[:4] != struct.pack("<i", 1681511377):
        raise UnreadableError("a vector has another magic number")
    return frozenset(int(each) for each in roaring.decode(body[4:], count=count))


# --- Iceberg ------------------------------------------------------------------------------------


def iceberg_numbers(store: Store) -> list[int]:
    """Return the numbers of the metadata, rising."""
    return sorted(int(m[1]) for each in store.list("metadata") if (m := _match(_METADATA, each)))


def iceberg_metadata(store: Store, number: int) -> Json:
    """Read metadata by its number."""
    found: Json = json.loads(_body(store, f"metadata/v{number}.metadata.json"))
    return found


def iceberg_hint(store: Store) -> int | None:
    """Return the number that the hint names; None if there is none."""
    body = store.find("metadata/version-hint.text")
    return None if body is None else int(body)


def read_iceberg(store: Store, said: Json) -> Iterator[Shown]:
    """Read each snapshot that metadata names.

    Raises:
        UnreadableError: a list, a manifest or a file of deletes is missing.
    """
    return (_snapshot(store, said, each) for each in said["snapshots"])


def _snapshot(store: Store, said: Json, snapshot: Json) -> Shown:
    def inside(path: str) -> bytes:
        return _body(store, _relative(path, said))

    manifests = [
        _avro(inside(m["manifest_path"])) for m in _avro(inside(snapshot["manifest-list"]))
    ]
    entries = [e["data_file"] for each in manifests for e in each if e["status"] != 2]
    hidden: dict[str, set[int]] = {}
    for each in (file for file in entries if file["content"] == 1):
        for path, at in _deleted(each, inside(each["file_path"])):
            hidden.setdefault(path, set()).add(at)
    files = [
        (_relative(each["file_path"], said), frozenset(hidden.get(each["file_path"], ())))
        for each in entries
        if each["content"] == 0
    ]
    schemas = {each["schema-id"]: each for each in said["schemas"]}
    columns = tuple(each["id"] for each in schemas[snapshot["schema-id"]]["fields"])
    return Shown(snapshot["snapshot-id"], columns, tuple(sorted(files)))


def iceberg_files(store: Store, said: Json) -> set[str]:
    """Return the lists, manifests and files of deletes that metadata leads to, in the store."""
    found: set[str] = set()
    for snapshot in said["snapshots"]:
        found.add(name := _relative(snapshot["manifest-list"], said))
        for manifest in _avro(_body(store, name)):
            found.add(name := _relative(manifest["manifest_path"], said))
            if manifest["content"] == 1:
                files = (each["data_file"] for each in _avro(_body(store, name)))
                found |= {_relative(each["file_path"], said) for each in files}
    return found


def _relative(path: str, said: Json) -> str:
    name = path.removeprefix(f"{said['location']}/")
    if name == path:
        raise UnreadableError(f"{path} is outside of the table")
    return name


def _deleted(file: Json, body: bytes) -> Sequence[tuple[str, int]]:
    if file["file_format"] == "PARQUET":
        rows = _parquet(body).to_pylist()
        return [(row["file_path"], row["pos"]) for row in rows]
    at, length = file["content_offset"], file["content_size_in_bytes"]
    blob = body[at : at + length]
    if struct.unpack(">i", blob[:4])[0] != length - 8:
        raise UnreadableError("a vector has another size")
    found = _positions(blob[4:-4], file["record_count"])
    return [(file["referenced_data_file"], each) for each in found]


# --- both ---------------------------------------------------------------------------------------


def published(store: Store) -> Iterator[tuple[str, Shown | UnreadableError]]:
    """Read every version that is published, with the file that publishes it."""
    for number in delta_numbers(store):
        if delta_mark(store, number) is not None:
            newest_first = delta_beginnings(store, number)
            for begin in newest_first:
                try:
                    yield _commit_path(number), read_delta(store, number, begin)
                except UnreadableError as error:
                    if begin == newest_first[0]:  # who follows the log begins anew then
                        yield _commit_path(number), error
    for number in iceberg_numbers(store):
        name, said = f"metadata/v{number}.metadata.json", iceberg_metadata(store, number)
        ours = "plait.version" in said.get("properties", {})
        for snapshot in said["snapshots"] if ours else ():
            try:
                yield name, _snapshot(store, said, snapshot)
            except UnreadableError as error:
                yield name, error


def newest(store: Store, target: str) -> int | None:
    """Return the newest version that is published in a format; None for none."""
    if target == "delta":
        marks = [delta_mark(store, each) for each in delta_numbers(store)]
        return max((each for each in marks if each is not None), default=None)
    every = [iceberg_metadata(store, number) for number in iceberg_numbers(store)]
    ours = [each for each in every if "plait.version" in each.get("properties", {})]
    return ours[-1]["current-snapshot-id"] if ours else None
