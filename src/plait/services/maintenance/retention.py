"""Retention: the oldest version that stays readable, and the files that it makes unnecessary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.services.maintenance.ages import current_before
from plait.state.events import Folded, ReadableVersions
from plait.state.state import TableState
from plait.txn.table_handle import TableHandle


def final_of(handle: TableHandle, state: TableState, horizon: int, grace_s: float) -> int:
    """Return the newest horizon whose grace is over: no undo can go behind it any more."""
    if not grace_s:
        return horizon
    current_then = current_before(handle, state, int(grace_s * 1000))
    over = [each.horizon for each in state.horizons.raised if each.version <= (current_then or 0)]
    return max([state.horizons.final, *over])


def horizon_of(handle: TableHandle, state: TableState) -> int:
    """Return the oldest version that the table's options keep readable.

    Each option proposes a version, and the oldest one wins. The result is never older than the
    table's horizon. If a newer horizon would let nothing go, the table's own stays. Otherwise each
    clean of an idle table would publish a decision, only to let go of the clean before it.

    Raises:
        ClockUnavailableError: the store reports no time.
    """
    options = state.table.options
    # the version that was current at the cut-off is still younger than the retention time
    age_ms = int(options.seconds("clean.retain.time") * 1000)
    current_then = current_before(handle, state, age_ms)
    if current_then is None:
        return state.horizon
    proposed = [current_then, state.version - options.count("clean.retain.versions") + 1]
    changes = options.count("clean.retain.file_versions")
    if changes:
        proposed.append(_since_changes(state.folded(handle.store), changes, state.horizon))
    if state.table.repush is not None:
        proposed.append(state.table.repush.base)  # it follows the changes since then
    horizon = max(state.horizon, min(proposed))
    return horizon if _lets_go(handle, state, horizon) else state.horizon


def _lets_go(handle: TableHandle, state: TableState, horizon: int) -> bool:
    """Tell whether a new horizon lets go of a file, a mask, or a look for late files."""
    folded = state.folded(handle.store)
    ends = (folded.files["until"], folded.masks["until"], folded.aux["version"])
    passed = (pc.and_(pc.greater(e, state.horizon), pc.less_equal(e, horizon)) for e in ends)
    late = any(state.horizon < entry.version <= horizon for entry in state.late)
    return late or any(pc.any(each).as_py() for each in passed)


def _since_changes(folded: Folded, count: int, horizon: int) -> int:
    """Return the oldest version since which no bucket has more than ``count`` versions.

    A version of a bucket ends when one of its files is removed or gets another mask. A change
    that only adds files lets none go.
    """
    files = folded.files.select(["partition", "bucket", "until"])
    at = pc.index_in(folded.masks["path"], value_set=folded.files["path"].combine_chunks())
    masked = files.take(at).set_column(2, "until", folded.masks["version"])
    later = pc.greater(folded.masks["version"], folded.files["version"].take(at))
    ends = pa.concat_tables([files, masked.filter(later)])
    ends = ends.filter(pc.greater(ends["until"], horizon))
    bucket = ["partition", "bucket"]
    ends = ends.group_by([*bucket, "until"]).aggregate([])
    ends = ends.sort_by([*((name, "ascending") for name in bucket), ("until", "descending")])
    sizes = ends.group_by(bucket, use_threads=False).aggregate([("until", "count")])
    counts = sizes["until_count"].to_numpy()
    nth = (np.cumsum(counts) - counts + count - 1)[counts >= count]
    return int(ends["until"].to_numpy()[nth].max()) if len(nth) else horizon


def unneeded(folded: Folded, shown: ReadableVersions) -> list[tuple[str, int]]:
    """Return files that no readable version shows, each with its end; masks and sidecars too."""
    needed = shown.covers(folded.files)
    ended = folded.files.filter(pc.invert(needed))
    known = pc.is_in(folded.files["path"], value_set=ended["path"].combine_chunks())
    again = folded.files["path"].filter(pc.and_(needed, known))  # a restore may add one again
    over = ended.filter(pc.invert(pc.is_in(ended["path"], value_set=again.combine_chunks())))
    ended_with_file: dict[str, int] = {}
    for path, until in pairs(over, "until"):
        ended_with_file[path] = max(until, ended_with_file.get(path, 0))
    in_files = folded.masks.filter(pc.is_valid(folded.masks["dv_path"]))
    keep: set[str] = set()
    vectors: dict[str, int] = {}
    columns = [in_files[name].to_pylist() for name in ("path", "dv_path", "until")]
    for path, dv_path, until, seen in zip(
        *columns, shown.covers(in_files).to_pylist(), strict=True
    ):
        if path not in ended_with_file and seen:
            keep.add(dv_path)
        else:
            end = ended_with_file.get(path, until)
            vectors[dv_path] = max(end, vectors.get(dv_path, 0))
    unmasked = [(path, end) for path, end in vectors.items() if path not in keep]
    aux = folded.aux.filter(pc.less_equal(folded.aux["version"], shown.horizon))
    return [*ended_with_file.items(), *unmasked, *pairs(aux, "version")]


def pairs(table: pa.Table, version: str) -> Iterator[tuple[str, int]]:
    """Return each path with a version."""
    return zip(table["path"].to_pylist(), table[version].to_pylist(), strict=True)
