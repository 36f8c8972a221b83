"""Which files each commit of a stretch of versions changed: before it and after it, columnar.

Read off the same events as what is live at a version: nothing is written for it at commit time,
and no Python object a file is made.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.model.changes import MASKED
from plait.model.plan import CHANGED
from plait.state.fold import Folded
from plait.state.succession import Numbers, Succession

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
