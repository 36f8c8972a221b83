"""Several operations, one decision: what they stage one after the other, put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.expr import from_json, to_json
from plait.expr.tree import any_of
from plait.files.live import unmasked
from plait.model.changes import PATHS, Changes, WriteStats, WriteStatus
from plait.model.decision import (
    SCOPE_APPEND,
    SCOPE_BUCKETS,
    SCOPE_PARTITIONS,
    SCOPE_TABLE,
    Scope,
)
from plait.model.plan import LIVE, Snapshot
from plait.write.staged import leftovers

_MASK = {"masked": "rows", "inline": "inline"} | {
    name: name for name in ("dv_path", "dv_offset", "dv_bytes")
}
"""Columns of LIVE that a mask sets, and where they stand in MASKED."""


def advance(snapshot: Snapshot, changes: Changes) -> Snapshot:
    """Give what readers would see if changes were committed on a snapshot."""
    files = pa.concat_tables(
        [
            _without(snapshot.files, changes.removed["path"]),
            unmasked(changes.added, version=snapshot.version + 1),
        ]
    )
    masked = changes.masked.combine_chunks()
    at = pc.index_in(files["path"], value_set=masked["path"].combine_chunks())
    hit = pc.is_valid(at)
    for name, source in _MASK.items():
        column = pc.if_else(hit, masked[source].take(at), files[name])
        files = files.set_column(LIVE.get_field_index(name), LIVE.field(name), column)
    return replace(snapshot, files=files)


def together(statuses: Sequence[WriteStatus]) -> WriteStatus:
    """Put statuses together, each of which was staged on what the ones before lead to.

    Files that a later one replaces are garbage at once; so is what no part needs any more.
    """
    whole = statuses[0]
    for status in statuses[1:]:
        whole = _after(whole, status)
    changes = whole.changes
    garbage = leftovers(statuses).difference(changes.named())
    every = replace(changes, garbage=pa.table({"path": sorted(garbage)}, schema=PATHS))
    counts = WriteStats(
        rows_in=whole.stats.rows_in,
        rows_inserted=whole.stats.rows_inserted,
        rows_updated=whole.stats.rows_updated,
        rows_deleted=whole.stats.rows_deleted,
        files_added=changes.added.num_rows,
        files_removed=changes.removed.num_rows,
        bytes_written=sum(changes.added["bytes"].to_pylist()),
        flushes=whole.stats.flushes,
    )
    return WriteStatus(every, counts)


def scope_of(scopes: Sequence[Scope], schema: pa.Schema) -> Scope:
    """Give the widest of the scopes, with a predicate that holds where any of theirs does."""
    kinds = {scope.kind for scope in scopes}
    kind = next(
        (wide for wide in (SCOPE_TABLE, SCOPE_PARTITIONS) if wide in kinds),
        SCOPE_APPEND if kinds == {SCOPE_APPEND} else SCOPE_BUCKETS,
    )
    places = dict.fromkeys(place for scope in scopes for place in scope.partitions)
    found = [from_json(s.predicate, schema) for s in scopes if s.predicate is not None]
    return Scope(kind, tuple(places), to_json(any_of(*found)) if found else None)


def _after(first: WriteStatus, then: WriteStatus) -> WriteStatus:
    one, other = first.changes, then.changes
    mine = set(one.added["path"].to_pylist())
    ended = [path for path in other.removed["path"].to_pylist() if path not in mine]
    masked = _without(_without(one.masked, other.masked["path"]), other.removed["path"])
    changes = Changes(
        added=pa.concat_tables([_without(one.added, other.removed["path"]), other.added]),
        masked=pa.concat_tables([masked, other.masked]),
        touched=pa.concat_tables([one.touched, other.touched]),
        removed=pa.concat_tables([one.removed, pa.table({"path": ended}, schema=PATHS)]),
    )
    return WriteStatus(changes, first.stats + then.stats)


def _without(table: pa.Table, paths: pa.ChunkedArray) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["path"], value_set=paths.combine_chunks())))
