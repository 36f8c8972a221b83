"""The Delta log beside a table: where it ends, the next commit, checkpoints, and what is trimmed.

Whatever lies in ``_delta_log/`` may have been written by anybody, so nothing there is trusted: a
commit of ours is known by what it says of itself, sizes are bounded, and no path is ever followed.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from plait.errors import CorruptMetadataError, StorageError
from plait.files.data_file import reading
from plait.interop.delta_actions import Json, log_id
from plait.interop.publisher import NUMBERS_MAX, require_near
from plait.model.texts import is_text
from plait.storage.port import Store

DIRECTORY: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{DIRECTORY}/_last_checkpoint"
MARK: Final = "plait"
"""The key of ``commitInfo`` under which a commit says which version it shows."""
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint(?:\.[\w.-]+)?\.parquet", re.ASCII)
LOOKS_MAX: Final = 100
"""The most times that a directory is listed anew, because a clean deleted what was listed."""
_NUMBER_MAX = (1 << 63) - 2
CODEC: Final = "SNAPPY"
"""Compression of checkpoints, as Parquet names it."""
MARK_BYTES_MAX: Final = 64 << 10
"""The longest first line that can be ours: it has a few numbers and names."""
_LOOKED_AT_MAX = 1_000
"""The most commits of others, from the newest down, among which one look finds one of ours."""
_NAME_CHARS = 100
_COMMIT_BYTES_MAX = 1 << 30
_DELETED_AT_ONCE = 50
"""A store may delete what it is given at once in any order."""
_TIME_MS_MAX = 1 << 50
"""A later time of others is absurd; ours grow from the latest, so it is not followed."""


def commit_path(number: int) -> str:
    """Return where a commit is.

    >>> commit_path(7)
    '_delta_log/00000000000000000007.json'
    """
    return f"{DIRECTORY}/{number:020d}.json"


def checkpoint_path(number: int) -> str:
    """Return where a checkpoint of one file is."""
    return f"{DIRECTORY}/{number:020d}.checkpoint.parquet"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a commit of ours says of itself."""

    table: str
    """The identity of the table."""
    version: int
    instant: str
    """The instant that the version completed: two histories of one table differ in it."""
    schema_id: int
    features: frozenset[str]
    """The features of Delta that the log has by then."""
    start: int
    """The number with which the log began."""
    start_ms: int
    time_ms: int
    """``inCommitTimestamp``."""

    def to_dict(self) -> Json:
        """Return what is written under ``MARK``."""
        return {
            "table": self.table,
            "version": self.version,
            "instant": self.instant,
            "schema": self.schema_id,
            "features": sorted(self.features),
            "start": self.start,
            "startTime": self.start_ms,
        }


def read_mark(first_line: bytes) -> Mark | None:
    """Read what a commit says of itself; None if it is not one of ours."""
    if len(first_line) > MARK_BYTES_MAX:
        return None
    try:
        info = json.loads(first_line)["commitInfo"]
        said = info[MARK]
        numbers = [said["version"], said["schema"], said["start"], said["startTime"]]
        version, schema_id, start, start_ms = map(_whole, numbers)
        features = frozenset(map(str, said["features"]))
        table, instant = str(said["table"]), str(said["instant"])
        time_ms = _whole(info["inCommitTimestamp"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Mark(table, version, instant, schema_id, features, start, start_ms, time_ms)


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(value)
    return value


@dataclass(frozen=True, slots=True)
class Tip:
    """The end of the log, seen from the last commit that is ours."""

    number: int
    """The number of the last commit in the log; -1 if it has none."""
    ours: Mark | None = None
    """What the last commit of ours says; None if there is none."""
    foreign: tuple[int, ...] = ()
    """The numbers of the commits after it, oldest first, which others wrote."""
    checkpoint: int = -1
    """The greatest number of a checkpoint, as far as it was looked for."""
    known: bool = True
    """Whether some commit is of this table, or the log is empty."""

    @property
    def others(self) -> int:
        """How many commits of others are still to be undone."""
        return len(self.foreign)

    def then(self, number: int, mark: Mark) -> Tip:
        """Return the end once a commit of ours is the last one."""
        return replace(self, number=number, ours=mark, foreign=())


class _Names(NamedTuple):
    """What is in the directory of a log."""

    commits: list[int]
    """Rising."""
    checkpoints: dict[int, list[str]]
    """The files of each; others write some of several."""


class DeltaLog:
    """The log of one table, as one client sees it."""

    def __init__(self, store: Store, identity: str) -> None:
        """Take the table's store and its identity; nothing is read yet."""
        self._store, self._identity = store, identity

    def find(self, number: int, size_max: int = _COMMIT_BYTES_MAX) -> bytes | None:
        """Read a commit of at most so many bytes; None if there is none."""
        return self._store.find(commit_path(number), size_max=size_max)

    def mark_at(self, number: int) -> Mark | None:
        """Return what a commit of this very table says of itself; None for any other, or none."""
        return self._mark_of(self._head(number) or b"")

    def _mark_of(self, head: bytes) -> Mark | None:
        mark = read_mark(head.partition(b"\n")[0])
        return mark if mark is not None and mark.table == self._identity else None

    def _head(self, number: int) -> bytes | None:
        """Read a commit as far as its mark can reach, however large it is; None if it is gone."""
        path = commit_path(number)
        with suppress(CorruptMetadataError):  # it is longer
            return self._store.find(path, size_max=MARK_BYTES_MAX)
        files = self._store.filesystem()
        with reading(path), suppress(FileNotFoundError), files.open_input_file(path) as source:
            return bytes(source.read(MARK_BYTES_MAX + 1))
        return None

    def look(self, is_ours: Callable[[Mark], bool]) -> Tip:
        """Find the end of the log.

        ``is_ours`` tells of a version of this table whether it is one of its history: after a
        backup was put in its place, the log may show another one.

        Raises:
            StorageError: what was listed was gone again and again.
            CorruptMetadataError: a number is absurd, or so many commits of others are there that
                nobody can tell whose log it is.
        """
        for _ in range(LOOKS_MAX):
            tip = self._look(is_ours)
            if tip is not None:
                return tip
        message = f"{DIRECTORY} changed {LOOKS_MAX} times while it was read"
        raise StorageError(message, hint="try again", path=DIRECTORY)

    def _look(self, is_ours: Callable[[Mark], bool]) -> Tip | None:
        """Find the end by one listing; None if a clean deleted meanwhile what was listed."""
        names = self._names()
        numbers = names.commits
        checkpoint = max(names.checkpoints, default=-1)
        last = numbers[-1] if numbers else -1
        foreign: list[int] = []
        known = last == checkpoint == -1
        for number in reversed(numbers[-_LOOKED_AT_MAX:]):
            head = self._head(number)
            if head is None:
                return None
            mark = self._mark_of(head)
            known = known or mark is not None
            if mark is not None and is_ours(mark):
                _require_near(names, number)
                return Tip(last, mark, tuple(reversed(foreign)), checkpoint)
            foreign.append(number)
        _require_near(names, 0)
        if len(numbers) > len(foreign) and not known:
            self._require_own(numbers)
            known = True
        if not numbers:  # whoever died before the very first commit left its checkpoint
            known = all(self._is_own(path) for each in names.checkpoints.values() for path in each)
        return Tip(last, None, tuple(reversed(foreign)), checkpoint, known)

    def _require_own(self, numbers: Sequence[int]) -> None:
        """Raise CorruptMetadataError unless a log begins as ours do: with a commit of ours."""
        if self.mark_at(numbers[0]) is None:
            first = commit_path(numbers[-_LOOKED_AT_MAX])
            message = f"none of the commits since {first} is of this table"
            hint = f"delete those of others, or move {DIRECTORY} away if all of it is theirs"
            raise CorruptMetadataError(message, hint=hint, path=DIRECTORY)

    def _is_own(self, path: str) -> bool:
        """Tell whether a checkpoint has the id of this log; anything that is not plain has not."""
        try:
            body = self._store.find(path, size_max=_COMMIT_BYTES_MAX)
        except CorruptMetadataError:
            return False
        try:
            file = pq.ParquetFile(io.BytesIO(body or b""))
            columns = file.metadata.row_group(0)
            every = (columns.column(at) for at in range(columns.num_columns))
            if any(each.compression != CODEC for each in every):
                return False  # it could be small, and yet fill the memory
            ids = next(file.iter_batches(2, columns=["metaData.id"]))["metaData"].to_pylist()
        except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, StopIteration):
            return False
        found = [each["id"] for each in ids if each is not None]
        return found == [log_id(self._identity)]

    def commits(self) -> list[int]:
        """List the numbers of all commits, rising."""
        return self._names().commits

    def _names(self) -> _Names:
        """List the commits and the checkpoints, by one listing."""
        found = _Names([], {})
        for info in self._store.list(DIRECTORY):
            commit, checkpoint = _COMMIT.fullmatch(info.path), _CHECKPOINT.fullmatch(info.path)
            match = commit or checkpoint
            if match is None:
                continue
            number = int(match[1])
            if number > NUMBERS_MAX:
                message = f"{info.path} has an absurd number: no log is that long"
                raise CorruptMetadataError(message, hint="delete it", path=info.path)
            if commit:
                found.commits.append(number)
            else:
                found.checkpoints.setdefault(number, []).append(info.path)
        return found

    def put(self, number: int, actions: Iterable[Json]) -> bool:
        """Publish a commit, if nobody has that number yet. It alone makes a version visible."""
        return self._store.put_if_absent(commit_path(number), encode(actions))

    def checkpoint_lag(self, number: int) -> int:
        """Return how many commits a reader of the log reads after the last checkpoint."""
        return number - max(self._last_checkpoint(), *self.commits()[:1], 0)

    def put_checkpoint(self, number: int, actions: Sequence[Json], *, ahead: bool = False) -> None:
        """Write a checkpoint: all that is in force after a commit.

        Any publisher writes the same. What is there and differs was written by somebody else, or
        for a history that was cut off, and is replaced: a reader would start from it.

        Args:
            number: that of the commit.
            actions: all that is in force.
            ahead: the commit is put next. If it is there already, this publisher was not first, and
                the checkpoint is that of the one who was: it stays.
        """
        body, path = checkpoint_body(actions), checkpoint_path(number)
        if not self._store.put_if_absent(path, body) and not self._holds(path, body):
            if ahead and self._head(number) is not None:
                return
            self._store.put(path, body)
            self._store.persist([path])
        said = {"version": number, "size": len(actions), "sizeInBytes": len(body)}
        said["numOfAddFiles"] = sum("add" in each for each in actions)
        if number >= self._last_checkpoint():
            self._store.put(LAST_CHECKPOINT, json.dumps(said).encode())

    def _holds(self, path: str, body: bytes) -> bool:
        try:
            return self._store.find(path, size_max=len(body)) == body
        except CorruptMetadataError:  # it is larger
            return False

    def has_checkpoint(self, number: int) -> bool:
        """Tell whether a checkpoint of one file is there for a commit, whoever wrote it."""
        try:
            return self._store.find(checkpoint_path(number), size_max=0) is not None
        except CorruptMetadataError:  # it is larger
            return True

    def _last_checkpoint(self) -> int:
        """Return what the hint names; -1 if it is missing or damaged: it is only a hint."""
        try:
            found = self._store.find(LAST_CHECKPOINT, size_max=1 << 16)
            return -1 if found is None else _whole(json.loads(found)["version"])
        except (ValueError, KeyError, TypeError, RecursionError, CorruptMetadataError):
            return -1

    def is_oldest(self, number: int) -> bool:
        """Tell whether nothing in the log is older than a commit."""
        names = self._names()
        return min([*names.commits, *names.checkpoints], default=number) >= number

    def trim(self, number: int) -> list[str]:
        """Delete what is older than a checkpoint; return what was deleted.

        An engine may read a log whose beginning is missing as if it were whole. So commits go
        newest first, and then checkpoints: what a crash leaves is whole up to some version, and
        begins where it began.
        """
        names = self._names()
        every = [commit_path(at) for at in reversed(names.commits) if at < number]
        for at in sorted(names.checkpoints, reverse=True):
            every += names.checkpoints[at] if at < number else ()
        for start in range(0, len(every), _DELETED_AT_ONCE):
            self._store.delete(every[start : start + _DELETED_AT_ONCE])
        return every


def _require_near(names: _Names, ours: int) -> None:
    """Refuse numbers that are far beyond the last one of ours; 0 for none."""
    for number in names.commits[-1:]:
        require_near(commit_path(number), number, ours)
    for number in sorted(names.checkpoints)[-1:]:
        require_near(names.checkpoints[number][0], number, ours)


def encode(actions: Iterable[Json]) -> bytes:
    """Write actions as the lines of a commit."""
    return b"".join(map(_line, actions))


def _line(action: Json) -> bytes:
    """Write an action as UTF-8; what others wrote may have lone surrogates, which need escapes."""
    try:
        text = json.dumps(action, ensure_ascii=False, separators=(",", ":"))
        return f"{text}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(action, separators=(',', ':'))}\n".encode()


@dataclass(frozen=True, slots=True)
class ForeignActions:
    """What commits of others did to the log."""

    added: Mapping[tuple[str, str], Json]
    """What they added and did not remove again, by path, as it is spelled there, and vector."""
    paths: frozenset[str]
    """The files that they added or removed."""
    defines: bool
    """Whether one of them set the schema or the protocol."""
    operations: tuple[str, ...]
    latest_ms: int
    """The latest time that one of them says; 0 for none."""


def read_foreign(bodies: Iterable[bytes]) -> ForeignActions:
    """Read commits of others: what they did is to be undone, so it only has to be recognised.

    Raises:
        CorruptMetadataError: one of them is no commit.
    """
    found = _Found()
    for body in bodies:
        for action in _lines(body):
            found.take(action)
    return ForeignActions(
        found.added,
        frozenset(found.paths),
        found.defines,
        tuple(found.operations),
        found.latest_ms,
    )


@dataclass(slots=True)
class _Found:
    """What was seen in commits of others so far."""

    added: dict[tuple[str, str], Json] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    operations: list[str] = field(default_factory=list)
    defines: bool = False
    latest_ms: int = 0

    def take(self, action: Json) -> None:
        """Take in one action, whatever it says."""
        self._take_file(action.get("add"), added=True)
        self._take_file(action.get("remove"), added=False)
        self.defines = self.defines or "metaData" in action or "protocol" in action
        info = action.get("commitInfo")
        if isinstance(info, dict):
            self.operations.append(str(info.get("operation", "?"))[:_NAME_CHARS])
            time_ms = info.get("inCommitTimestamp")
            if type(time_ms) is int and time_ms < _TIME_MS_MAX:
                self.latest_ms = max(self.latest_ms, time_ms)

    def _take_file(self, file: object, *, added: bool) -> None:
        if not isinstance(file, dict):
            return
        # Engines compare paths as they are spelled, so another spelling is another file to them.
        spelled = str(file.get("path", ""))
        path = unquote(spelled)
        if is_text(path):
            self.paths.add(path)
        if added:
            self.added[spelled, vector_identity(file)] = file
        else:
            self.added.pop((spelled, vector_identity(file)), None)


def vector_identity(file: Mapping[str, object]) -> str:
    """Return what tells a file's vectors apart, as the protocol has it; "" without one."""
    vector = file.get("deletionVector")
    if not isinstance(vector, dict):
        return ""
    offset = vector.get("offset")
    name = f"{vector.get('storageType')}{vector.get('pathOrInlineDv')}"
    return name if offset is None else f"{name}@{offset}"


def _lines(body: bytes) -> Iterator[Json]:
    try:
        actions = [json.loads(line) for line in body.splitlines() if line.strip()]
        if not all(isinstance(each, dict) for each in actions):
            raise ValueError("a line is no object")
    except (ValueError, RecursionError) as error:
        message = f"a file in {DIRECTORY} is no commit of a Delta log: {str(error)[:_NAME_CHARS]}"
        hint = f"delete it: nothing in {DIRECTORY} belongs to the rows of the table"
        raise CorruptMetadataError(message, hint=hint, path=DIRECTORY) from error
    yield from actions


# --- checkpoints --------------------------------------------------------------------------------

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_CHECKPOINT_SCHEMA = pa.schema(
    [
        (
            "txn",
            pa.struct(
                [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    (
                        "format",
                        pa.struct([("provider", pa.string()), ("options", _TEXTS)]),
                    ),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)
_MAPS = ("partitionValues", "configuration", "options")


def checkpoint_body(actions: Sequence[Json]) -> bytes:
    """Write a classic checkpoint: one row an action."""
    rows = [{kind: _as_row(value) for kind, value in each.items()} for each in actions]
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=_CHECKPOINT_SCHEMA)
    pq.write_table(table, sink, compression=CODEC)
    return sink.getvalue()


def _as_row(value: object) -> object:
    """Write the maps of an action as Arrow takes them."""
    if not isinstance(value, dict):
        return value
    return {
        key: list(inner.items()) if key in _MAPS and isinstance(inner, dict) else _as_row(inner)
        for key, inner in value.items()
    }
