"""What decisions did to files, as columnar events, and what these come to.

The state of a table is a list of events in the order of versions; no Python object a file.
Checkpoints keep them in parts, the newest decisions in a tail, and ``fold`` gives the same for any
cut. A restore, and the undo of a repush, add files again that were removed: so a path may be added,
masked and removed several times, and what an event means follows from the order of versions.
"""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.model.changes import (
    ADDED,
    KEYS_SIDECAR,
    MASKED,
    PATHS,
    Changes,
    default_no_rows,
)
from plait.model.decision import Decision, Token
from plait.model.instant import Instant
from plait.model.plan import LIVE

Numbers = npt.NDArray[np.int64]
_VERSION = pa.field("version", pa.int64(), nullable=False)
PATH_AT = pa.schema([*PATHS, _VERSION])
CONDEMNED = pa.schema([*PATHS, pa.field("removed", pa.int64(), nullable=False)])
COMMITS = pa.schema(
    [
        _VERSION,
        pa.field("instant", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("base", pa.int64(), nullable=False),
        pa.field("completed_ms", pa.int64(), nullable=False),
        pa.field("schema_id", pa.int32(), nullable=False),
        pa.field("commit_id", pa.string()),
        pa.field("ended", pa.string()),  # the instants that a rollback ended, a space between two
        pa.field("files", pa.int64(), nullable=False),  # live files: how many more than before
        pa.field("stats", pa.string(), nullable=False),
        pa.field("client", pa.string(), nullable=False),
    ]
)
TOKENS = pa.schema(
    [
        _VERSION,
        pa.field("application", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("token", pa.string(), nullable=False),  # JSON, as in its decision
    ]
)

TABLES: Mapping[str, pa.Schema] = {
    "added": pa.schema([*ADDED, _VERSION]),
    "removed": PATH_AT,
    "masked": pa.schema([*MASKED, _VERSION]),
    "aux": PATH_AT,  # key sidecars: needed by windows that begin before their version
    "condemned": CONDEMNED,
    "deleted": PATHS,
    "commits": COMMITS,
    "tokens": TOKENS,
}

_MASK = {"masked": "rows"} | {f.name: f.name for f in MASKED if f.name not in ("path", "rows")}
"""By column of LIVE that a mask sets, the column of its events that has the value."""
_FIRST = LIVE.field("first_version")
_SCHEMA = operator.attrgetter("schema")


@dataclass(frozen=True, slots=True)
class Events:
    """Events of some consecutive versions."""

    added: pa.Table = field(default_factory=default_no_rows(TABLES["added"]))
    removed: pa.Table = field(default_factory=default_no_rows(TABLES["removed"]))
    masked: pa.Table = field(default_factory=default_no_rows(TABLES["masked"]))
    aux: pa.Table = field(default_factory=default_no_rows(TABLES["aux"]))
    condemned: pa.Table = field(default_factory=default_no_rows(TABLES["condemned"]))
    deleted: pa.Table = field(default_factory=default_no_rows(TABLES["deleted"]))
    commits: pa.Table = field(default_factory=default_no_rows(TABLES["commits"]))
    tokens: pa.Table = field(default_factory=default_no_rows(TABLES["tokens"]))

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables by name."""
        return {name: getattr(self, name) for name in TABLES}

    @property
    def rows(self) -> int:
        """Events in all."""
        return sum(table.num_rows for table in self.tables().values())

    @classmethod
    def concat(cls, parts: Iterable[Events]) -> Events:
        """Put consecutive events together."""
        every = list(parts)
        if len(every) == 1:
            return every[0]
        if not every:
            return cls()
        return cls(**{n: joined(list(map(operator.attrgetter(n), every))) for n in TABLES})


_NOTHING: Mapping[str, pa.Table] = Events().tables()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Put tables of one kind together; typed bounds that one does not have are null there."""
    first = tables[0].schema
    if all(map(first.equals, map(_SCHEMA, tables))):  # nothing to promote
        filled = list(itertools.compress(tables, map(len, tables))) or tables[:1]
        return filled[0] if len(filled) == 1 else pa.concat_tables(filled)
    return pa.concat_tables(tables, promote_options="default")


@dataclass(slots=True)
class LiveEntry:
    """A decision in the tail of a state, or several brought together.

    Its events are made when they are first asked for: a client that only adds rows to a busy
    table takes in what others decide, and never looks at their files.
    """

    version: int
    """The last one in it."""
    decision: Decision | None
    made: Events | None = None

    @property
    def events(self) -> Events:
        """Events of its changes to files."""
        if self.made is None:
            self.made = Events() if self.decision is None else events_of([self.decision])
        return self.made


def tail_events(tail: Sequence[LiveEntry]) -> Events:
    """Bring the events of a tail together; those that nobody asked for yet are made at once."""
    parts: list[Events] = []
    fresh: list[Decision] = []
    for entry in tail:
        if entry.made is None and entry.decision is not None:
            fresh.append(entry.decision)
            continue
        if fresh:
            parts.append(events_of(fresh))
            fresh = []
        parts.append(entry.events)
    if fresh:
        parts.append(events_of(fresh))
    return Events.concat(parts)


def events_of(decisions: Sequence[Decision]) -> Events:
    """Return the events of consecutive decisions."""
    condemned: list[tuple[str, int]] = []
    deleted: list[str] = []
    versions = [decision.version for decision in decisions]
    for decision in decisions:
        if decision.cleaned is not None:
            condemned += decision.cleaned.condemned
            deleted += decision.cleaned.deleted
        # Garbage is condemned by the decision that names it. A clean deletes it later, once no
        # pending instant may still write or need it (INV-05).
        elif decision.changes.garbage.num_rows:
            paths = decision.changes.garbage["path"].to_pylist()
            condemned += [(path, decision.version) for path in paths]
    return Events(
        added=_at("added", [d.changes.added for d in decisions], versions),
        removed=_at("removed", [d.changes.removed for d in decisions], versions),
        masked=_at("masked", [d.changes.masked for d in decisions], versions),
        aux=_at("aux", [_sidecars(d.changes) for d in decisions], versions),
        condemned=_condemned(condemned),
        deleted=_paths(deleted),
        commits=pa.Table.from_pylist([_commit(each) for each in decisions], schema=COMMITS),
        tokens=_tokens(decisions),
    )


def _at(name: str, parts: Sequence[pa.Table], versions: Sequence[int]) -> pa.Table:
    """Put tables together, each with its version."""
    rows = list(map(len, parts))
    if not any(rows):
        return _NOTHING[name]
    whole = pa.concat_tables(itertools.compress(parts, rows))
    each = pa.array(np.repeat(versions, rows), pa.int64())
    return whole.append_column(_VERSION, each).cast(TABLES[name])


def _sidecars(changes: Changes) -> pa.Table:
    tables = []
    for keys in (changes.touched, changes.lookups):
        if keys["key_path"].null_count < keys.num_rows:
            named = keys.filter(pc.equal(keys["keys"], KEYS_SIDECAR))
            tables.append(named.select(["key_path"]).rename_columns(["path"]))
    return pa.concat_tables(tables) if tables else _NOTHING["deleted"]


def _condemned(entries: Sequence[tuple[str, int]]) -> pa.Table:
    if not entries:
        return _NOTHING["condemned"]
    paths = pa.array([path for path, _ in entries], pa.string())
    removed = pa.array([version for _, version in entries], pa.int64())
    return pa.table([paths, removed], schema=CONDEMNED)


def _paths(paths: Sequence[str]) -> pa.Table:
    if not paths:
        return _NOTHING["deleted"]
    return pa.table([pa.array(paths, pa.string())], schema=PATHS)


def _tokens(decisions: Sequence[Decision]) -> pa.Table:
    rows = [
        {"version": d.version, "application": t.application, "epoch": t.epoch, "token": _text(t)}
        for d in decisions
        for t in d.tokens
    ]
    return pa.Table.from_pylist(rows, schema=TOKENS) if rows else _NOTHING["tokens"]


def _text(token: Token) -> str:
    return json.dumps(token.to_dict(), separators=(",", ":"), sort_keys=True)


def _commit(decision: Decision) -> dict[str, object]:
    ended = [str(each.instant) for each in decision.rolled_back]
    return {
        "version": decision.version,
        "instant": str(decision.instant),
        "action": decision.action.value,
        "operation": decision.operation.value,
        "base": decision.base,
        "completed_ms": decision.completed_ms,
        "schema_id": decision.schema_id,
        "commit_id": decision.commit_id,
        "ended": " ".join(ended) or None,
        "files": decision.changes.added.num_rows - decision.changes.removed.num_rows,
        "stats": json.dumps(decision.stats.to_dict()),
        "client": json.dumps(decision.client),
    }


def ends(commits: pa.Table, instant: Instant) -> pa.Array:
    """Tell which of these decisions rolled an instant back."""
    ends = pc.match_substring(commits["ended"], instant.nonce)
    return pc.fill_null(ends, False)  # noqa: FBT003 - arrow's fill value


@dataclass(frozen=True, slots=True)
class Folded:
    """Each file with the versions that added and removed it, and its masks."""

    files: pa.Table  # added + "until": version that removed it, or null; a file that a restore
    # added again has a row for each time
    masks: pa.Table  # masked + "until": version of the next mask of the file, or null
    aux: pa.Table
    condemned: pa.Table

    def live(self, version: int) -> pa.Table:
        """Return the files that a reader at a version sees, with their masks (INV-04).

        LIVE, and the typed bounds that were loaded.
        """
        files = self.files.filter(_seen(self.files, version)).drop_columns(["until"])
        masks = self.masks.filter(_seen(self.masks, version))
        for name, column in _masks_of(files["path"], masks).items():
            files = files.append_column(LIVE.field(name), column)
        files = files.append_column(_FIRST, pa.nulls(files.num_rows, _FIRST.type))
        bounds = [each for each in files.schema if each.name not in LIVE.names]
        wanted = pa.schema([*LIVE, *bounds])
        found = files.select(wanted.names)
        return found if found.schema.equals(wanted) else found.cast(wanted)

    def paths(self) -> pa.Array:
        """Return every path that it names: live, kept for older versions, or condemned."""
        columns: list[pa.ChunkedArray] = [self.files["path"], self.masks["dv_path"]]
        columns += [self.aux["path"], self.condemned["path"]]
        chunks = [chunk for column in columns for chunk in column.chunks]
        return pa.chunked_array(chunks, pa.string()).combine_chunks().drop_null()

    def named(self, names: pa.Array) -> Folded:
        """Return what is known of some data files alone."""
        files = self.files.filter(pc.is_in(self.files["path"], value_set=names))
        masks = self.masks.filter(pc.is_in(self.masks["path"], value_set=names))
        return replace(self, files=files, masks=masks)


def _masks_of(paths: pa.ChunkedArray, masks: pa.Table) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return for each file what its mask says."""
    if not masks.num_rows:  # nothing to look up
        nothing = {name: pa.nulls(len(paths), LIVE.field(name).type) for name in _MASK}
        return nothing | {"masked": pa.repeat(pa.scalar(0, pa.int64()), len(paths))}
    at = pc.index_in(paths, value_set=masks["path"].combine_chunks())
    found = {name: pc.take(masks[source], at) for name, source in _MASK.items()}
    return found | {"masked": pc.fill_null(found["masked"], 0)}


def _seen(table: pa.Table, version: int) -> pa.ChunkedArray:
    begun = pc.less_equal(table["version"], version)
    return pc.and_(begun, pc.fill_null(pc.greater(table["until"], version), True))  # noqa: FBT003 - arrow's fill value


def fold(events: Events) -> Folded:
    """Bring events together.

    A file leaves for good once it is condemned; until then it keeps the version that removed
    it, so that any version that is retained can be read from the same tables. A restore adds files
    again, so additions and removals of a path are paired in the order of versions.
    """
    gone = events.condemned["path"]
    kept = _without(events.added, "path", gone)
    files = kept.append_column("until", _removed_at(kept, events.removed))
    masked = pc.is_in(kept["path"], value_set=events.masked["path"].combine_chunks())
    known = kept["path"].filter(masked).combine_chunks()  # memory follows the masks, not the files
    # Masks of files that are not in these events belong to an older part. They are left out here,
    # and `compact` keeps them for the fold with that part.
    masks = events.masked.filter(pc.is_in(events.masked["path"], value_set=known))
    # A mask that is condemned ended before the horizon.
    return Folded(
        files,
        _without(_with_until(masks), "dv_path", gone),
        _without(events.aux, "path", gone),
        _without(events.condemned, "path", events.deleted["path"]),
    )


def _without(rows: pa.Table, column: str, paths: pa.ChunkedArray) -> pa.Table:
    """Return the rows whose path is none of these; no row is copied if there is nothing to do."""
    if not rows.num_rows or not len(paths):
        return rows
    return rows.filter(pc.invert(pc.is_in(rows[column], value_set=paths.combine_chunks())))


def _removed_at(added: pa.Table, removed: pa.Table) -> pa.Array:
    """Return for each addition the version of the first removal of its path after it, or null."""
    if not removed.num_rows:
        return pa.nulls(added.num_rows, pa.int64())
    at = Succession.of(removed).find_next(added["path"], added["version"].to_numpy())
    return pc.take(removed["version"].combine_chunks(), pa.array(at, mask=at < 0))


def _with_until(masks: pa.Table) -> pa.Table:
    ordered = masks.sort_by([("path", "ascending"), ("version", "ascending")])
    count = ordered.num_rows
    if not count:
        return ordered.append_column("until", pa.nulls(0, pa.int64()))
    code = ordered["path"].combine_chunks().dictionary_encode().indices.to_numpy()
    version = ordered["version"].to_numpy()
    until = np.zeros(count, np.int64)
    until[:-1] = version[1:]
    last = np.ones(count, np.bool_)
    last[:-1] = code[1:] != code[:-1]
    return ordered.append_column("until", pa.array(until, mask=last))


@dataclass(frozen=True, slots=True)
class ReadableVersions:
    """The versions that can be read: all from the horizon on, and some before it."""

    horizon: int
    saved: tuple[int, ...] = ()
    """Versions before the horizon that savepoints or a repush keep, rising."""

    def covers(self, spans: pa.Table) -> pa.ChunkedArray:
        """Tell which rows hold in one of these versions: from ``version`` to before ``until``."""
        found = pc.fill_null(pc.greater(spans["until"], self.horizon), True)  # noqa: FBT003 - arrow's fill value
        for version in self.saved:
            found = pc.or_(found, _seen(spans, version))
        return found


def compact(events: Events, *, shown: ReadableVersions, oldest: bool) -> Events:
    """Return fewer events that fold to the same for every version that can be read.

    ``oldest``: no events lie before these, so what they end can be dropped with its ending.
    """
    folded = fold(events)
    masks = folded.masks.filter(_still_needed(folded, events, shown)).drop_columns(["until"])
    if oldest:
        paths = folded.files["path"].combine_chunks()
        removed = events.removed.filter(pc.is_in(events.removed["path"], paths))
        condemned, deleted = folded.condemned, PATHS.empty_table()
    else:
        removed, condemned, deleted = events.removed, events.condemned, events.deleted
        known = folded.files["path"].combine_chunks()
        # The files of these masks were added in an older part: only a fold with that part can tell
        # whether they are still needed.
        foreign = pc.invert(pc.is_in(events.masked["path"], known))
        masks = pa.concat_tables([masks, events.masked.filter(foreign)])
    return Events(
        added=folded.files.drop_columns(["until"]),
        removed=removed.combine_chunks(),
        masked=masks.combine_chunks(),
        aux=folded.aux.combine_chunks(),
        condemned=condemned.combine_chunks(),
        deleted=deleted.combine_chunks(),
        commits=events.commits.combine_chunks(),
        tokens=events.tokens.combine_chunks(),
    )


def _still_needed(folded: Folded, events: Events, shown: ReadableVersions) -> pa.ChunkedArray:
    """Tell which masks a readable version sees, or have a file that a clean must still find."""
    masks = folded.masks
    condemned = events.condemned["path"].combine_chunks()
    waiting = pc.invert(pc.is_in(masks["dv_path"], value_set=condemned))
    return pc.or_(shown.covers(masks), pc.and_(pc.is_valid(masks["dv_path"]), waiting))


@dataclass(frozen=True, slots=True)
class Succession:
    """Events, sorted by path and version; a path has one event at most in each version."""

    places: Numbers
    """Row number of each event in its table."""
    _paths: pa.Array
    _versions: Numbers
    """Each version once, rising."""
    _keys: Numbers
    """One number for each pair of path and version, in rising order."""

    @classmethod
    def of(cls, events: pa.Table) -> Succession:
        """Take a table with the columns ``path`` and ``version``."""
        encoded = events["path"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        versions, ranks = np.unique(events["version"].to_numpy(), return_inverse=True)
        # One integer for path and version sorts and searches all paths at once. Ranks instead of
        # versions keep it below 64 bits, however large versions are.
        keys = codes * (len(versions) + 1) + ranks + 1
        places = np.argsort(keys, kind="stable")
        return cls(places, encoded.dictionary, versions, keys[places])

    def find_next(self, paths: pa.ChunkedArray, versions: Numbers) -> Numbers:
        """Return the place of the first event of each path after a version; -1 for none."""
        return self._found(paths, versions, 0)

    def find_last(self, paths: pa.ChunkedArray, versions: Numbers) -> Numbers:
        """Return the place of the last event of each path at or before a version; -1 for none."""
        return self._found(paths, versions, -1)

    def _found(self, paths: pa.ChunkedArray, versions: Numbers, step: int) -> Numbers:
        width = len(self._versions) + 1
        known = pc.fill_null(pc.index_in(paths, value_set=self._paths), -1)
        codes = known.to_numpy().astype(np.int64)
        ranks = np.searchsorted(self._versions, versions, side="right")
        at = np.searchsorted(self._keys, codes * width + ranks, side="right") + step
        keys = np.append(self._keys, -1)  # beyond the last: no path's
        at = np.clip(at, -1, len(self._keys))
        same = (keys[at] > codes * width) & (keys[at] < (codes + 1) * width) & (codes >= 0)
        return np.where(same, np.append(self.places, -1)[at], -1)


def with_first_versions(files: pa.Table, every: pa.Table) -> pa.Table:
    """Return live files (LIVE); of those that were added again, the first version too.

    Args:
        files: live files.
        every: all additions of their paths, each with its version.
    """
    every = every.filter(pc.is_in(every["path"], files["path"].combine_chunks()))
    since = every.group_by("path").aggregate([("version", "min")])
    at = pc.index_in(files["path"], value_set=since["path"].combine_chunks())
    first = pc.take(since["version_min"].combine_chunks(), at)
    older = pc.if_else(pc.less(first, files["version"]), first, pa.scalar(None, pa.int64()))
    name = "first_version"
    return files.set_column(files.schema.get_field_index(name), LIVE.field(name), older)
