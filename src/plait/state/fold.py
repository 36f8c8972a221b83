"""Events brought together: what is there, and since and until when."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.model.changes import MASKED, PATHS
from plait.model.plan import LIVE
from plait.state.events import Events, Succession


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
        bounds = [field for field in files.schema if field.name not in LIVE.names]
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
        files, masks = (
            table.filter(pc.is_in(table["path"], value_set=names))
            for table in (self.files, self.masks)
        )
        return replace(self, files=files, masks=masks)


_MASK = {"masked": "rows"} | {f.name: f.name for f in MASKED if f.name not in ("path", "rows")}
"""Columns of LIVE that a mask sets, and where they stand in its events."""
_FIRST = LIVE.field("first_version")


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
class Shown:
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


def compact(events: Events, *, shown: Shown, oldest: bool) -> Events:
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


def _still_needed(folded: Folded, events: Events, shown: Shown) -> pa.ChunkedArray:
    """Tell which masks a readable version sees, or have a file that a clean must still find."""
    masks = folded.masks
    condemned = events.condemned["path"].combine_chunks()
    waiting = pc.invert(pc.is_in(masks["dv_path"], value_set=condemned))
    return pc.or_(shown.covers(masks), pc.and_(pc.is_valid(masks["dv_path"]), waiting))
