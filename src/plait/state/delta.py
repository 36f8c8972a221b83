"""Which files each commit of a stretch of versions changed: before it and after it, columnar.

Read off the same events as what is live at a version: nothing is written for it at commit time,
and no Python object a file is made.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.model.changes import MASKED
from plait.model.plan import CHANGED
from plait.state.events import Folded

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).max
IN_ORDER = [
    (name, "ascending") for name in ("at", "partition", "bucket", "after", "version", "path")
]
"""How CHANGED is sorted: what one commit did to one bucket stands together."""


def changed_files(folded: Folded, completed: Mapping[int, int]) -> pa.Table:
    """Return the files that commits changed, with their masks before and after: CHANGED.

    A file that a commit added stands there once, ``after``; one that it removed once, before it;
    one whose hidden rows it changed stands there twice.

    Args:
        folded: every file event; masks sorted by file and version, as ``fold`` leaves them.
        completed: the commits asked for, by version, and when each was completed.
    """
    files, masks = folded.files.combine_chunks(), folded.masks.combine_chunks()
    wanted = np.array(sorted(completed), dtype=np.int64)
    begun, ended = _numbers(files["version"]), _numbers(files["until"])
    owner = _numbers(pc.index_in(masks["path"], value_set=files["path"].combine_chunks()))
    masked_at = _numbers(masks["version"])
    first, last = _ends(owner, files.num_rows)

    added = np.flatnonzero(np.isin(begun, wanted))
    removed = np.flatnonzero(np.isin(ended, wanted))
    own = _known(first, masked_at)[added] == begun[added]  # rows that were hidden from the start
    later = np.flatnonzero(
        np.isin(masked_at, wanted) & (begun[owner] < masked_at) & (ended[owner] > masked_at)
    )
    before = np.where(np.arange(len(owner)) > first[owner], np.arange(len(owner)) - 1, -1)[later]
    file_at = np.concatenate([removed, owner[later], added, owner[later]])
    mask_at = np.concatenate([last[removed], before, np.where(own, first[added], -1), later])
    at = np.concatenate([ended[removed], masked_at[later], begun[added], masked_at[later]])
    after = np.arange(len(at)) >= len(removed) + len(later)
    times = np.array([completed[version] for version in wanted.tolist()], dtype=np.int64)
    columns = {
        "at": pa.array(at),
        "completed_ms": pa.array(times[np.searchsorted(wanted, at)] if len(at) else at),
        "after": pa.array(after),
    }
    columns |= _described(files, masks, file_at, mask_at)
    return pa.table({name: columns[name] for name in CHANGED.names}).cast(CHANGED).sort_by(IN_ORDER)


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    numbers: Numbers = pc.fill_null(column.cast(pa.int64()), _NEVER).to_numpy()
    return numbers


def _ends(owner: Numbers, files: int) -> tuple[Numbers, Numbers]:
    """Return for each file the places of its first and last mask; -1 for none."""
    first, last = np.full(files, -1), np.full(files, -1)
    places = np.arange(len(owner))
    last[owner] = places  # of several the last one stays
    first[owner[::-1]] = places[::-1]
    return first, last


def _known(places: Numbers, values: Numbers) -> Numbers:
    """Return the values at these places; where there is no place, one that is never met."""
    return np.append(values, -1)[places]


def _described(
    files: pa.Table, masks: pa.Table, file_at: Numbers, mask_at: Numbers
) -> dict[str, pa.ChunkedArray]:
    """Return the columns of LIVE for these files with these masks."""
    chosen = files.take(pa.array(file_at))
    hidden = masks.take(pa.array(mask_at, mask=mask_at < 0))
    columns = {name: chosen[name] for name in chosen.column_names if name != "until"}
    columns["masked"] = pc.fill_null(hidden["rows"], 0)
    columns |= {f.name: hidden[f.name] for f in MASKED if f.name not in ("path", "rows")}
    return columns
