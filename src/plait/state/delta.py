"""Which files commits changed, one by one or all together: before and after, columnar.

Read off the same events as what is live at a version: nothing is written for it at commit time,
and no Python object a file is made.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.model.changes import MASKED
from plait.model.plan import CHANGED, LIVE
from plait.state.events import Folded, Numbers, Succession, fold, tail_events
from plait.state.state import TableState, named_events
from plait.storage.port import Store

_NEVER = np.iinfo(np.int64).max
IN_ORDER = [
    (name, "ascending") for name in ("at", "partition", "bucket", "after", "version", "path")
]
"""How CHANGED is sorted: what one commit did to one bucket stands together."""


def changed_files(folded: Folded, completed: Mapping[int, int]) -> pa.Table:
    """Return the files that commits changed, with their masks before and after: CHANGED.

    A file that a commit added stands there once, ``after``; one that it removed once, before it;
    one whose hidden rows it changed stands there twice. A restore may add and mask a file again.

    Args:
        folded: every file event.
        completed: the commits asked for, by version, and when each was completed.
    """
    files, masks = folded.files.combine_chunks(), folded.masks.combine_chunks()
    wanted = np.array(sorted(completed), dtype=np.int64)
    begun, ended = _numbers(files["version"]), _numbers(files["until"])
    masked_at = _numbers(masks["version"])
    hidden = Succession.of(masks)

    added = np.flatnonzero(np.isin(begun, wanted))
    removed = np.flatnonzero(np.isin(ended, wanted))
    later = np.flatnonzero(np.isin(masked_at, wanted))
    # what a mask is of: the addition before it, if the file is not gone and was there before
    # A restore may have added the file more than once, and each addition has masks of its own.
    owner = Succession.of(files).find_last(
        masks["path"].take(pa.array(later)), masked_at[later] - 1
    )
    there = (owner >= 0) & (ended[owner] > masked_at[later])
    later, owner = later[there], owner[there]

    def mask_at(chosen: Numbers, versions: Numbers) -> Numbers:
        return hidden.find_last(files["path"].take(pa.array(chosen)), versions)

    file_at = np.concatenate([removed, owner, added, owner])
    mask_of = np.concatenate(
        [
            mask_at(removed, ended[removed] - 1),
            mask_at(owner, masked_at[later] - 1),
            mask_at(added, begun[added]),
            later,
        ]
    )
    at = np.concatenate([ended[removed], masked_at[later], begun[added], masked_at[later]])
    after = np.arange(len(at)) >= len(removed) + len(later)
    times = np.array([completed[version] for version in wanted.tolist()], dtype=np.int64)
    columns = {
        "at": pa.array(at),
        "completed_ms": pa.array(times[np.searchsorted(wanted, at)] if len(at) else at),
        "after": pa.array(after),
    }
    columns |= _described(files, masks, file_at, mask_of)
    return pa.table({name: columns[name] for name in CHANGED.names}).cast(CHANGED).sort_by(IN_ORDER)


def changed_since(store: Store, state: TableState, completed: Mapping[int, int]) -> pa.Table:
    """Return the files that the last versions changed: CHANGED, with their bounds as JSON.

    Where these versions are in the tail of the state, the cost is that of what they changed.

    Args:
        store: the table's.
        state: it may be newer.
        completed: all versions after some version, and when each was completed.
    """
    since = min(completed) - 1
    if state.parts and state.parts[-1].last > since:
        return changed_files(state.folded(store, bounds=True), completed)
    events = tail_events([entry for entry in state.tail if entry.version > since])
    touched = [events.added["path"], events.removed["path"], events.masked["path"]]
    chunks = [chunk for each in touched for chunk in each.chunks]
    names = pa.chunked_array(chunks, pa.string()).unique()
    return changed_files(fold(named_events(store, state, names, bounds=True)), completed)


def net_files(then: pa.Table, now: pa.Table, until: int, completed_ms: int) -> pa.Table:
    """Return the files that are not the same at two versions, as if one commit had changed them.

    CHANGED, with the later version as its commit. What was written between the two and is gone
    again is in neither; files that a service wrote anew are in both, with their rows.

    Args:
        then: the files of the earlier version (LIVE).
        now: those of the later one.
        until: the later version.
        completed_ms: when that was completed.
    """
    sides = []
    for mine, other, after in ((then, now, False), (now, then, True)):
        kept = mine.filter(pc.invert(_same(mine, other)))
        columns = {name: kept[name] for name in LIVE.names}
        columns["at"] = pa.repeat(pa.scalar(until, pa.int64()), kept.num_rows)
        columns["completed_ms"] = pa.repeat(pa.scalar(completed_ms, pa.int64()), kept.num_rows)
        columns["after"] = pa.repeat(pa.scalar(after), kept.num_rows)
        sides.append(pa.table({name: columns[name] for name in CHANGED.names}).cast(CHANGED))
    return pa.concat_tables(sides).sort_by(IN_ORDER)


def _same(mine: pa.Table, other: pa.Table) -> pa.Array:
    """Tell which files are on the other side too, with the same mask."""
    at = pc.index_in(mine["path"], value_set=other["path"].combine_chunks())
    same = pc.is_valid(at)
    for name in ("masked", *(f.name for f in MASKED if f.name not in ("path", "rows"))):
        one, two = mine[name], pc.take(other[name], at)
        alike = pc.fill_null(pc.equal(one, two), False)  # noqa: FBT003 - arrow's fill value
        same = pc.and_(same, pc.or_(alike, pc.and_(pc.is_null(one), pc.is_null(two))))
    return same


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    numbers: Numbers = pc.fill_null(column.cast(pa.int64()), _NEVER).to_numpy()
    return numbers


def _described(
    files: pa.Table, masks: pa.Table, file_at: Numbers, mask_of: Numbers
) -> dict[str, pa.ChunkedArray]:
    """Return the columns of LIVE for these files with these masks."""
    chosen = files.take(pa.array(file_at))
    hidden = masks.take(pa.array(mask_of, mask=mask_of < 0))
    columns = {name: chosen[name] for name in chosen.column_names if name != "until"}
    columns["masked"] = pc.fill_null(hidden["rows"], 0)
    columns |= {f.name: hidden[f.name] for f in MASKED if f.name not in ("path", "rows")}
    columns["first_version"] = pa.nulls(len(file_at), pa.int64())  # rows that changed are new
    return columns
