"""Sums over live files: what a decision adds to them, and which directories they are in.

A decision tells the sums at its version, so that a checkpoint that is whole and wrong is found when
it is loaded (INV-11). The hash of a file covers what readers and writers are told of it, with its
deletion vector. Bounds are left out: a checkpoint may know bounds that no decision tells.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.data_file import unmasked, with_masks
from plait.files.digest import row_hashes
from plait.files.hash import Hashes
from plait.model.changes import Changes
from plait.model.decision import TableStatistics
from plait.model.plan import LIVE
from plait.state.part_file import PLACES, directories_of

_NOT_HASHED: Final = ("stats", "first_version")
"""Columns that are left out of the hash: they follow from other decisions, or from the file."""
_HASHED: Final = [field.name for field in LIVE if field.name not in _NOT_HASHED]
_SUMMED: Final = ("files", "live", "rows", "hash")


def statistics_of(live: pa.Table) -> TableStatistics:
    """Return the sums over live files (LIVE)."""
    return statistics_after(TableStatistics(), LIVE.empty_table(), live)


def changed_paths(changes: Changes) -> pa.Array:
    """Return the files that changes remove, or whose hidden rows they change."""
    masked = changes.masked["path"].filter(
        pc.invert(pc.is_in(changes.masked["path"], changes.added["path"].combine_chunks()))
    )
    return pa.concat_arrays([masked.combine_chunks(), changes.removed["path"].combine_chunks()])


def changed_files(known: pa.Table, changes: Changes, version: int) -> tuple[pa.Table, pa.Table]:
    """Return the live files that a decision changes, as they are before it and after it (LIVE).

    Args:
        known: the files of ``changed_paths`` as they were live before it (LIVE).
        changes: what it changes.
        version: its own.
    """
    added = unmasked(changes.added, version=version)
    if not changes.masked.num_rows:  # every known file is removed
        return known, added
    removed = pc.is_in(known["path"], value_set=changes.removed["path"].combine_chunks())
    kept = known.filter(pc.invert(removed))
    return known, with_masks(pa.concat_tables([kept.select(LIVE.names), added]), changes.masked)


def statistics_after(
    statistics: TableStatistics, before: pa.Table, after: pa.Table
) -> TableStatistics:
    """Return sums, less those over some live files and with those over others (LIVE)."""
    files = pa.concat_tables([before.select(LIVE.names), after.select(LIVE.names)])
    if not files.num_rows:
        return statistics
    # Once over all of them: for a few files each pass costs more than the rows do.
    hashes = _hashes(files)
    rows = files["rows"].to_numpy() - files["masked"].to_numpy()
    end = before.num_rows
    less = TableStatistics(end, int(rows[:end].sum()), int(hashes[:end].sum(dtype=np.uint64)))
    more = TableStatistics(
        after.num_rows, int(rows[end:].sum()), int(hashes[end:].sum(dtype=np.uint64))
    )
    # Hashes are added modulo 2**64, so their order does not matter and a file can be taken out
    # again.
    return statistics - less + more


def changed_places(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the change of the sums (PLACES), given the live files before and after it (LIVE)."""
    return add_places([_places_of_live(after, 1), _negated(_places_of_live(before, 1))])


def without_counts(places: pa.Table) -> pa.Table:
    """Return places that count no file as added."""
    at = PLACES.get_field_index("files")
    return places.set_column(at, PLACES.field(at), pa.repeat(0, places.num_rows).cast(pa.int64()))


def add_places(tables: list[pa.Table]) -> pa.Table:
    """Add the sums of places together (PLACES); a place of which nothing is left goes."""
    joined = pa.concat_tables([PLACES.empty_table(), *tables])
    grouped = joined.group_by(["directory", "partition"], use_threads=False).aggregate(
        [(name, "sum") for name in _SUMMED]
    )
    renamed = grouped.select(["directory", "partition", *(f"{name}_sum" for name in _SUMMED)])
    places = renamed.rename_columns(PLACES.names).cast(PLACES)
    something = [
        pc.not_equal(places[name], pa.scalar(0, PLACES.field(name).type)) for name in _SUMMED
    ]
    left = something[0]
    for each in something[1:]:
        left = pc.or_(left, each)
    return places.filter(left)


def statistics_at(places: pa.Table, directories: frozenset[str] | None = None) -> TableStatistics:
    """Return the sums over the files in some directories, by default in all."""
    if directories is not None:
        chosen = pa.array(sorted(directories), pa.string())
        places = places.filter(pc.is_in(places["directory"], value_set=chosen))
    files, rows = (int(pc.sum(places[name]).as_py() or 0) for name in ("live", "rows"))
    return TableStatistics(files, rows, int(places["hash"].to_numpy().sum(dtype=np.uint64)))


def _hashes(live: pa.Table) -> Hashes:
    """Return the hash of each file: that of a row of a stream (``files/digest.py``)."""
    hashed = live.select(_HASHED).combine_chunks()
    unknown = pa.nulls(hashed.num_rows, pa.int64())
    masked = pc.if_else(pc.equal(hashed["masked"], 0), unknown, hashed["masked"])
    hashed = hashed.set_column(hashed.schema.get_field_index("masked"), "masked", masked)
    footer = pc.cast(hashed["footer"], pa.int64(), safe=False)
    hashed = hashed.set_column(hashed.schema.get_field_index("footer"), "footer", footer)
    parts = [row_hashes(batch) for batch in hashed.to_batches()]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _places_of_live(live: pa.Table, sign: int) -> pa.Table:
    count = live.num_rows
    return _placed(
        directories_of(live),
        live["partition"],
        pa.repeat(0, count),
        pa.repeat(sign, count),
        pc.subtract(live["rows"], live["masked"]),
        pa.array(_hashes(live)),
    )


def _placed(*columns: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return places from their columns, each once."""
    return add_places([pa.table(list(columns), names=PLACES.names).cast(PLACES)])


def _negated(places: pa.Table) -> pa.Table:
    columns = [places["directory"], places["partition"], pa.repeat(0, places.num_rows)]
    columns += [pc.negate(places[name]) for name in ("live", "rows")]
    hashes = np.uint64(0) - places["hash"].to_numpy()
    return pa.table([*columns, pa.array(hashes)], names=PLACES.names).cast(PLACES)
