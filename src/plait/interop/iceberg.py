"""Publish versions of a table as Iceberg metadata: in order, each once, by whoever comes first.

A snapshot's id is its version. ``put_if_absent`` of the next ``v<number>.metadata.json`` decides
who was first (``iceberg_metadata.py``); what a loser wrote for that number is named by nobody, and
goes with the next clean. So any number of publishers may run at once, and may die anywhere.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError, StorageError
from plait.files.data_file import parse_path
from plait.files.deletion import encode, load_masked
from plait.interop.iceberg_files import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    EXISTING,
    POSITIONS,
    VECTORS,
    Json,
    data_entry,
    deletes_entry,
    every_type,
    has_initials,
    load_avro,
    positions_body,
    read_list,
    read_manifest,
    schema_json,
    vector_body,
    write_list,
    write_manifest,
)
from plait.interop.iceberg_metadata import (
    DIRECTORY,
    MARK,
    OWN,
    SNAPSHOTS_MAX,
    Metadata,
    MetadataDirectory,
    NewestMetadata,
    metadata_path,
)
from plait.interop.iceberg_sweep import KeptVersions, find_own, own_name, sweep, versions_of
from plait.interop.publisher import (
    LOSSES_MAX,
    CaughtUp,
    DecidedVersion,
    Foreign,
    FormatPublisher,
    KeptRange,
    PublishedVersion,
    commits_since,
    was_unpublished,
)
from plait.model.plan import CHANGED, MOR
from plait.model.schema import ids_in
from plait.ports import Ids
from plait.state.delta import changed_since
from plait.state.state import TableState
from plait.storage.port import Store

TARGET: Final = "iceberg"
"""The format as the property ``publish`` names it."""
DELETES_OPTION: Final = "publish.iceberg.deletes"
BEHIND_MAX: Final = SNAPSHOTS_MAX
"""The most versions that are published one by one: of more, the older ones would drop out."""
ENTRIES_MAX: Final = 400
"""The most entries of a manifest; one with more is split."""
_SPARSE: Final = ENTRIES_MAX // 8
_MANIFESTS_FEW: Final = 16
_KEY_BITS: Final = 64


class _Range(NamedTuple):
    """The keys whose files a manifest holds: those that begin with the first bits of ``low``."""

    low: int
    bits: int

    def holds(self, key: int) -> bool:
        return (key ^ self.low) >> (_KEY_BITS - self.bits) == 0

    def meets(self, other: _Range) -> bool:
        return self.holds(other.low) or other.holds(self.low)

    def half(self, key: int) -> _Range:
        """Return the half in which a key is."""
        shift = _KEY_BITS - self.bits - 1
        return _Range(key >> shift << shift, self.bits + 1)


def key_of(path: str) -> int:
    """Return where a file stands among the manifests: by partition, bucket, and then its name.

    So a commit that touches one bucket, or one partition, rewrites few manifests.
    """
    name = parse_path(path)
    directory, bucket = (path, 0) if name is None else (name.directory, name.bucket)
    first, last = zlib.crc32(directory.encode()), zlib.crc32(path.encode())
    return (first & 0xFFFFFF) << 40 | (bucket & 0xFFFFF) << 20 | last & 0xFFFFF


@dataclass(slots=True)
class _Edit:
    """What a version changes in the manifests of one content."""

    added: list[tuple[int, Json]] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)
    """Data files that go, or whose deletes go, as manifests name them; with their keys."""


@dataclass(slots=True)
class _Attempt:
    """One attempt to publish under a number: what it writes bears its nonce."""

    number: int
    nonce: str
    location: str
    kind: int
    commit: DecidedVersion
    schema: Json
    next_row: int
    oldest: int
    files: int = 0

    def list_name(self) -> str:
        return f"{DIRECTORY}/snap-{self.commit.version}-{self.number}-{self.nonce}.avro"

    def manifest_name(self, content: int, part: _Range) -> str:
        letter = "m" if content == DATA else "d"
        return f"{DIRECTORY}/{letter}-{self.number}-{part.low:016x}-{part.bits}-{self.nonce}.avro"

    def deletes_name(self) -> str:
        self.files += 1
        extension = "parquet" if self.kind == POSITIONS else "puffin"
        return f"{DIRECTORY}/x-{self.number}-{self.files}-{self.nonce}.{extension}"


class IcebergPublisher(FormatPublisher[NewestMetadata]):
    """Brings the Iceberg metadata of one table up to date; remembers the newest."""

    target = TARGET
    directory = DIRECTORY
    title = "Iceberg metadata"

    def __init__(self, store: Store, identity: str, ids: Ids) -> None:
        """Take the table's store and its identity; nothing is read yet."""
        super().__init__(store, identity)
        self._ids = ids
        self._directory = MetadataDirectory(store, identity)

    # --- where it ends -------------------------------------------------------------------------

    def _find_end(self, is_ours: Callable[[PublishedVersion], bool]) -> NewestMetadata:
        return self._directory.look(is_ours)

    def _find_problem(self, end: NewestMetadata) -> str | None:
        """Every path in metadata is absolute, so a table that was moved is published anew."""
        here = self._location()
        if end.ours is None or end.ours.location == here:
            return None
        return f"its paths are of {end.ours.location}, and the table is in {here}"

    def _require_library(self) -> None:
        load_avro()

    def _settle(self, state: TableState, end: NewestMetadata) -> None:
        """Let the hint name it, in case whoever published it died, or is about to."""
        del state
        with suppress(StorageError):
            self._directory.point_to(end.number)

    def newest(
        self, state: TableState, refresh: Callable[[], TableState]
    ) -> tuple[str, Json] | None:
        """Return where the newest metadata of ours is, and what it says; None if there is none.

        Raises:
            PublishRefusedError: as ``look``.
        """
        tip, _ = self.look(state, refresh)
        if tip.ours is None:
            return None
        return f"{self._location()}/{metadata_path(tip.ours.number)}", tip.ours.said

    # --- catching up ---------------------------------------------------------------------------

    def _guess(self, state: TableState) -> NewestMetadata | None:
        found = self._directory.guess()
        if found is None or not self._is_of(state, found):
            return None
        return NewestMetadata(found.number, found)

    def _publish(
        self, state: TableState, tip: NewestMetadata, progress: CaughtUp, *, whole: bool
    ) -> Iterator[NewestMetadata]:
        del whole  # what is large is published on a thread, too
        ours = tip.ours
        missing = commits_since(self._store, state, -1 if ours is None else ours.version)
        if ours is None or self._find_problem(tip) or self._must_leap(state, ours, missing):
            newest = commits_since(self._store, state, state.version - 1)[-1]
            then = self._put(state, tip, newest, None, progress)
            if then is not None:
                left = newest.version - 1 - (newest.version - 1 if ours is None else ours.version)
                progress.left_out += max(0, left)
                yield then
            return
        if not missing:  # publish the newest version again, to undo what others wrote
            newest = commits_since(self._store, state, ours.version - 1)[0]
            then = self._put(state, tip, newest, CHANGED.empty_table(), progress)
            yield from () if then is None else (then,)
            return
        times = {each.version: each.completed_ms for each in missing}
        changed = changed_since(self._store, state, times)
        for commit in missing:
            files = changed.filter(pc.equal(changed["at"], commit.version))
            then = self._put(state, tip, commit, files, progress)
            if then is None:
                return
            tip = then
            yield then

    def _must_leap(
        self, state: TableState, ours: Metadata, missing: Sequence[DecidedVersion]
    ) -> bool:
        """Tell whether to begin anew at the newest version, and name no older one."""
        if len(missing) > BEHIND_MAX or (missing and ours.version < state.horizon):
            return True
        return was_unpublished(self._store, missing, TARGET)

    def _location(self) -> str:
        place = self._store.location(DIRECTORY).removesuffix(f"/{DIRECTORY}")
        # One place for all who publish, whatever links they came by.
        return f"file://{os.path.realpath(place)}" if place.startswith("/") else place

    # --- one version ---------------------------------------------------------------------------

    def _put(
        self,
        state: TableState,
        tip: NewestMetadata,
        commit: DecidedVersion,
        changed: pa.Table | None,
        progress: CaughtUp,
        *,
        oldest: int = 0,
    ) -> NewestMetadata | None:
        """Publish a version; None if others were first.

        Args:
            state: at this version, or later.
            tip: where the publication ends.
            commit: the version.
            changed: its files; None to begin anew.
            progress: where to note what was done.
            oldest: the oldest version to name, beside those of savepoints.
        """
        base = None if changed is None else tip.ours
        schema = state.table.schemas[commit.schema_id]
        attempt = _Attempt(
            tip.number + 1,
            self._ids.nonce(),
            self._location(),
            self._kind(state, commit, base),
            commit,
            schema_json(schema),
            0 if base is None else int(str(base.said.get("next-row-id", 0))),
            max(oldest, state.horizon),
        )
        snapshots = [] if base is None else base.snapshots
        if (base is None or base.version < commit.version) and commit.version > 0:
            snapshots.append(self._snapshot(state, attempt, base, changed))
        said = self._metadata(state, attempt, snapshots, tip)
        put = self._directory.put(attempt.number, said)
        if put is None:
            theirs = self._directory.find(attempt.number)
            wanted = (commit.version, commit.instant)
            if theirs is None or (theirs.version, theirs.instant) != wanted or not tip.clean:
                return None
            if theirs.location != attempt.location:  # by a client that knows it by another path
                return None
            return tip.then(theirs)  # the same version, by another publisher
        if base is None or base.version < commit.version:
            progress.published += 1
        if not tip.clean:
            progress.undone.append(self._undone(tip, attempt.number))
        return tip.then(put)

    def _kind(self, state: TableState, commit: DecidedVersion, base: Metadata | None) -> int:
        """Return the format version. It never goes down, since readers may not be told so."""
        schema = state.table.schemas[commit.schema_id]
        merged = state.table.spec.layout.table_type == MOR
        wanted = merged and state.table.options.choice(DELETES_OPTION) == "vectors"
        needed = VECTORS if wanted or has_initials(schema) else POSITIONS
        return needed if base is None else max(needed, base.kind)

    def _undone(self, tip: NewestMetadata, number: int) -> Foreign:
        found = [name for at in tip.foreign for name in self._directory.foreign_operations(at)]
        return Foreign(number, tip.foreign, (*found, *tip.strange))

    def _metadata(
        self, state: TableState, attempt: _Attempt, snapshots: Sequence[Json], tip: NewestMetadata
    ) -> Json:
        """Return what is published: the versions that can be read, the newest of them current."""
        commit = attempt.commit
        kept = self._kept(state, snapshots, attempt)
        ids = {each["snapshot-id"] for each in kept}
        schemas = {commit.schema_id, *(int(str(each["schema-id"])) for each in kept)}
        known = state.table.schemas
        refs: Json = {
            each.name: {"snapshot-id": each.version, "type": "tag"}
            for each in state.lineage.savepoints
            if each.version in ids
        }
        if ids:
            refs["main"] = {"snapshot-id": commit.version, "type": "branch"}
        latest = max((int(str(each["timestamp-ms"])) for each in kept), default=0)
        said: Json = {
            "format-version": attempt.kind,
            "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"plait:{self._identity}")),
            "location": attempt.location,
            "last-sequence-number": commit.version,
            "last-updated-ms": max(commit.completed_ms, latest),
            "last-column-id": max(
                number for each in known.values() for number in ids_in(each.arrow)
            ),
            "current-schema-id": commit.schema_id,
            "schemas": [schema_json(known[each]) for each in sorted(schemas)],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {
                "gc.enabled": "false",
                "write.metadata.delete-after-commit.enabled": "false",
                f"{MARK}table": self._identity,
                f"{MARK}version": str(commit.version),
                f"{MARK}instant": commit.instant,
                f"{MARK}undone": ",".join(tip.noted),
            },
            "current-snapshot-id": commit.version if ids else -1,
            "snapshots": kept,
            "snapshot-log": [
                {"timestamp-ms": each["timestamp-ms"], "snapshot-id": each["snapshot-id"]}
                for each in kept
            ],
            "metadata-log": [],
            "refs": refs,
        }
        if attempt.kind == VECTORS:
            said["next-row-id"] = attempt.next_row
        return said

    def _kept(self, state: TableState, snapshots: Sequence[Json], attempt: _Attempt) -> list[Json]:
        saved, few = _saved(state), len(snapshots) - SNAPSHOTS_MAX
        return [
            each
            for at, each in enumerate(snapshots)
            if (version := int(str(each["snapshot-id"]))) in saved
            or version == attempt.commit.version
            or (at >= few and version >= attempt.oldest)
        ]

    def _snapshot(
        self, state: TableState, attempt: _Attempt, base: Metadata | None, changed: pa.Table | None
    ) -> Json:
        """Write manifests and their list; return the snapshot."""
        commit, first_row = attempt.commit, attempt.next_row
        manifests = None
        if base is not None and changed is not None and self._goes_on(state, attempt, base):
            manifests = self._changed_manifests(state, attempt, base, changed)
        if manifests is None:
            manifests = self._all_manifests(state, attempt)
        parent = base.snapshots[-1]["snapshot-id"] if base is not None and base.snapshots else None
        snapshot: Json = {
            "snapshot-id": commit.version,
            "sequence-number": commit.version,
            "timestamp-ms": commit.completed_ms,
            "schema-id": commit.schema_id,
            "manifest-list": f"{attempt.location}/{attempt.list_name()}",
            "summary": {"operation": _operation(commit, changed), f"{MARK}instant": commit.instant},
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        if attempt.kind == VECTORS:
            snapshot |= {"first-row-id": first_row, "added-rows": attempt.next_row - first_row}
        body = write_list(manifests, attempt.kind, snapshot)
        self._store.put_if_absent(attempt.list_name(), body)
        return snapshot

    def _goes_on(self, state: TableState, attempt: _Attempt, base: Metadata) -> bool:
        """Tell whether the manifests of the version before can be kept.

        Bounds have the types of the schema under which their manifest was written. Engines differ
        in whether they understand narrower ones.
        """
        if (base.kind, base.location) != (attempt.kind, attempt.location):
            return False
        types = {at: dict(every_type(schema)) for at, schema in state.table.schemas.items()}
        before, after = types[base.schema_id], types[attempt.commit.schema_id]
        came_back = after.keys() - before.keys()  # by a restore; its bounds may be of any time
        return all(before.get(number, kind) == kind for number, kind in after.items()) and all(
            each.get(number, after[number]) == after[number]
            for each in types.values()
            for number in came_back
        )

    # --- manifests -----------------------------------------------------------------------------

    def _all_manifests(self, state: TableState, attempt: _Attempt) -> list[Json]:
        """Write all manifests anew, from what the table knows."""
        version = attempt.commit.version
        live = state.folded(self._store, version, bounds=True).live(version).to_pylist()
        every = (self._entries(state, attempt, live), self._hidden(attempt, live))
        manifests = []
        for content, entries in enumerate(every):
            for _, entry in entries:
                if content == DATA:
                    entry["status"] = EXISTING
            manifests += self._write(attempt, content, _Range(0, 0), entries)
        return manifests

    def _changed_manifests(
        self, state: TableState, attempt: _Attempt, base: Metadata, changed: pa.Table
    ) -> list[Json] | None:
        """Write the manifests that a version touches; None if all have to be written anew."""
        rows = changed.to_pylist()
        gone = {str(each["path"]): each for each in rows if not each["after"]}
        shown = [each for each in rows if each["after"]]
        stay = {str(each["path"]) for each in shown} & gone.keys()
        edits = (_Edit(), _Edit())
        added = [each for each in shown if each["path"] not in stay]
        edits[DATA].added = self._entries(state, attempt, added)
        edits[DELETES].added = self._hidden(attempt, shown)
        for path, file in gone.items():
            named = f"{attempt.location}/{path}"
            if path not in stay:
                edits[DATA].removed[named] = key_of(path)
            if file["masked"]:
                edits[DELETES].removed[named] = key_of(path)
        try:
            manifests = self._listed(base)
            found = [
                self._edited(attempt, [m for m in manifests if m["content"] == content], edit)
                for content, edit in enumerate(edits)
            ]
        except (ValueError, KeyError, TypeError, CorruptMetadataError):
            return None  # damaged, or not what we wrote
        together = [each for manifests in found for each in manifests]
        live = sum(map(_live, together))
        many = len(together) > _MANIFESTS_FEW and live < len(together) * _SPARSE
        return None if many else together

    def _listed(self, base: Metadata) -> list[Json]:
        """Read the manifests of the newest snapshot that have files."""
        if not base.snapshots:
            return []
        path = str(base.snapshots[-1]["manifest-list"])
        found = read_list(self._own(path, base.location), base.kind)
        return [each for each in found if _live(each)]

    def _own(self, path: str, location: str) -> bytes:
        """Read a file that we wrote to the directory; nothing else is ever opened."""
        return find_own(self._store, own_name(path, location))

    def _edited(self, attempt: _Attempt, manifests: Sequence[Json], edit: _Edit) -> list[Json]:
        """Return the manifests of one content after an edit, and write those that it touches."""
        content = DATA if not manifests else int(str(manifests[0]["content"]))
        if edit.added:
            content = int(edit.added[0][1]["data_file"]["content"])  # type: ignore[index]  # an entry
        ranges = {_range_of(each): each for each in manifests}
        work: dict[_Range, _Edit] = {}
        for key, entry in edit.added:
            work.setdefault(_place(key, (*ranges, *work)), _Edit()).added.append((key, entry))
        for named, key in edit.removed.items():
            work.setdefault(_place(key, (*ranges, *work)), _Edit()).removed[named] = key
        result = [each for part, each in ranges.items() if part not in work]
        for part, piece in work.items():
            entries = []
            missing = dict(piece.removed)
            for entry in self._live_entries(ranges[part], attempt) if part in ranges else ():
                named = _data_file(entry, content)
                if missing.pop(named, None) is not None:
                    entry |= {"status": DELETED, "snapshot_id": attempt.commit.version}
                else:
                    entry["status"] = EXISTING
                entries.append((key_of(named.removeprefix(f"{attempt.location}/")), entry))
            if missing:
                raise ValueError("a manifest lacks a file of ours")
            result += self._write(attempt, content, part, [*entries, *piece.added])
        return result

    def _live_entries(self, manifest: Mapping[str, object], attempt: _Attempt) -> list[Json]:
        """Read the entries of a manifest of files that are there, with what they inherit."""
        body = self._own(str(manifest["manifest_path"]), attempt.location)
        entries = [e for e in read_manifest(body, attempt.kind) if e["status"] != DELETED]
        row = manifest.get("first_row_id")
        for entry in entries:
            file = entry["data_file"]
            if not isinstance(file, dict) or row is None or file["first_row_id"] is not None:
                continue
            file["first_row_id"] = row
            row = int(str(row)) + int(file["record_count"])
        return entries

    def _write(
        self, attempt: _Attempt, content: int, part: _Range, entries: Sequence[tuple[int, Json]]
    ) -> list[Json]:
        """Write entries as one manifest, or as several if they are too many."""
        if not entries:
            return []
        if len(entries) > ENTRIES_MAX and part.bits < _KEY_BITS:
            low, high = part.half(part.low), part.half(part.low | 1 << (_KEY_BITS - part.bits - 1))
            return [
                each
                for half in (low, high)
                for each in self._write(
                    attempt, content, half, [pair for pair in entries if half.holds(pair[0])]
                )
            ]
        found = [entry for _, entry in entries]
        name = attempt.manifest_name(content, part)
        body = write_manifest(found, attempt.kind, content, attempt.schema)
        self._store.put_if_absent(name, body)
        counts = {what: [e for e in found if e["status"] == status] for status, what in _STATES}
        rows = {what: sum(_rows(e) for e in each) for what, each in counts.items()}
        alive = [int(str(e["sequence_number"])) for e in found if e["status"] != DELETED]
        said: Json = {
            "manifest_path": f"{attempt.location}/{name}",
            "manifest_length": len(body),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": attempt.commit.version,
            "min_sequence_number": min(alive, default=attempt.commit.version),
            "added_snapshot_id": attempt.commit.version,
            **{f"{what}_files_count": len(each) for what, each in counts.items()},
            **{f"{what}_rows_count": each for what, each in rows.items()},
        }
        if attempt.kind == VECTORS:
            said["first_row_id"] = attempt.next_row if content == DATA else None
            attempt.next_row += rows["added"] + rows["existing"] if content == DATA else 0
        return [said]

    # --- files ---------------------------------------------------------------------------------

    def _entries(
        self, state: TableState, attempt: _Attempt, files: Iterable[Mapping[str, object]]
    ) -> list[tuple[int, Json]]:
        schemas = state.table.schemas
        now = schemas[attempt.commit.schema_id]
        return [
            (key_of(str(each["path"])), data_entry(each, attempt.location, schemas, now))
            for each in files
        ]

    def _hidden(
        self, attempt: _Attempt, files: Iterable[Mapping[str, object]]
    ) -> list[tuple[int, Json]]:
        """Write a file of deletes for each data file with hidden rows; return their entries."""
        entries = []
        for file in files:
            if not file["masked"]:
                continue
            masked = {**file, "rows": file["masked"]}
            positions = load_masked(self._store, masked, rows=int(str(file["rows"])))
            named, name = f"{attempt.location}/{file['path']}", attempt.deletes_name()
            if attempt.kind == VECTORS:
                body = vector_body(named, encode(positions), len(positions))
            else:
                body = positions_body(named, positions)
            self._store.put_if_absent(name, body.body)
            path = f"{attempt.location}/{name}"
            entry = deletes_entry(attempt.kind, named, path, len(body.body), body)
            version = attempt.commit.version
            entry |= dict.fromkeys(_NUMBERS, version)
            entries.append((key_of(str(file["path"])), entry))
        return entries

    # --- clean ---------------------------------------------------------------------------------

    def _trim(
        self, state: TableState, kept: KeptRange, refresh: Callable[[], TableState]
    ) -> list[str]:
        """Publish metadata that does not name what goes; then sweep.

        Older metadata goes, if it names a version whose files go; then lists of such versions; and
        then what no list names. So what a crash leaves names nothing that is gone.

        What is deleted was written for a number that is decided. Whoever publishes later begins
        with the newest metadata, so he names none of it.
        """
        for _ in range(LOSSES_MAX):
            tip, state = self.look(state, refresh)
            if tip.ours is None or tip.ours.version < kept.horizon:
                return []
            shown = KeptVersions(kept.horizon, _saved(state))
            if tip.clean and all(shown.has(each) for each in versions_of(tip.ours)):
                final = KeptVersions(kept.final, _saved(state))
                return sweep(self._store, self._directory, tip.ours, final)
            newest = commits_since(self._store, state, tip.ours.version - 1)[0]
            unchanged = CHANGED.empty_table()
            self._put(state, tip, newest, unchanged, CaughtUp(), oldest=kept.horizon)
        message = f"other publishers were first {LOSSES_MAX} times"
        raise StorageError(message, hint="nothing was deleted; run the clean again")


def _saved(state: TableState) -> frozenset[int]:
    return frozenset((*state.lineage.saved, *state.table.kept))


_NUMBERS: Final = ("snapshot_id", "sequence_number", "file_sequence_number")
_STATES: Final = ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted"))


def _operation(commit: DecidedVersion, changed: pa.Table | None) -> str:
    if not commit.changes_rows:
        return "replace"
    if changed is None:
        return "overwrite"
    before = pc.any(pc.invert(changed["after"])).as_py()
    return "overwrite" if before else "append"


def _range_of(manifest: Mapping[str, object]) -> _Range:
    path = str(manifest["manifest_path"])
    match = OWN.fullmatch(f"{DIRECTORY}/{path.rpartition('/')[2]}")
    if match is None or match["low"] is None:
        raise ValueError(f"{path[:200]!r} is no manifest of ours")
    return _Range(int(match["low"], 16), int(match["bits"]))


def _place(key: int, known: Iterable[_Range]) -> _Range:
    """Return the range that holds a key; a new one, as large as there is room for, if none does."""
    every = tuple(known)
    for each in every:
        if each.holds(key):
            return each
    part = _Range(0, 0)
    while any(part.meets(each) for each in every):
        part = part.half(key)
    return part


def _live(manifest: Mapping[str, object]) -> int:
    return int(str(manifest["added_files_count"])) + int(str(manifest["existing_files_count"]))


def _rows(entry: Mapping[str, object]) -> int:
    file = entry["data_file"]
    return int(file["record_count"]) if isinstance(file, dict) else 0


def _data_file(entry: Mapping[str, object], content: int) -> str:
    """Return the data file that an entry is of, as manifests name it."""
    file = entry["data_file"]
    if not isinstance(file, dict):
        raise TypeError(file)
    return str(file["file_path" if content == DATA else "referenced_data_file"])
