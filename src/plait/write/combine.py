"""Combine what several operations, or several tasks, staged into one decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import InvariantError
from plait.expr import from_json, to_json
from plait.expr.tree import any_of
from plait.files.data_file import parse_path, unmasked, with_masks
from plait.model.bucket import Partition, partition_parse, partition_path
from plait.model.changes import LOOKUPS, PATHS, TOUCHED, Changes, WriteStats, WriteStatus, no_rows
from plait.model.decision import SCOPE_APPEND, SCOPE_BUCKETS, SCOPE_PARTITIONS, SCOPE_TABLE, Scope
from plait.model.instant import Instant
from plait.model.plan import Snapshot
from plait.storage.port import Store
from plait.timeline.pending import load_pending


def combine_tasks(statuses: Sequence[WriteStatus], *, keyed: bool) -> WriteStatus:
    """Combine the statuses of several tasks.

    Raises:
        InvariantError: two tasks staged one bucket of a table with a key.
    """
    whole = WriteStatus.concat(statuses)
    touched = whole.changes.touched
    places = touched.select(["partition", "bucket"]).group_by(["partition", "bucket"])
    if places.aggregate([]).num_rows == touched.num_rows:
        return whole
    if keyed:
        message = "two tasks staged the same bucket, so their rows would overwrite each other"
        raise InvariantError(message)
    # Tasks that only add files meet in every partition.
    columns = {
        field.name: None if field.nullable else touched[field.name].combine_chunks()
        for field in TOUCHED
    }
    plain = pa.table({n: c for n, c in columns.items() if c is not None})
    one = plain.group_by(["partition", "bucket"]).aggregate([("keys", "min"), ("key_count", "sum")])
    arrays = {"keys": one["keys_min"], "key_count": one["key_count_sum"]}
    rows = [
        arrays[f.name]
        if f.name in arrays
        else one[f.name]
        if f.name in one.column_names
        else pa.nulls(one.num_rows, f.type)
        for f in TOUCHED
    ]
    changes = replace(whole.changes, touched=pa.table(rows, schema=TOUCHED))
    return replace(whole, changes=changes)


def with_garbage(status: WriteStatus, paths: Iterable[str]) -> WriteStatus:
    """Return the status with more files named as garbage, unless it uses them."""
    known = set(status.changes.garbage["path"].to_pylist())
    garbage = sorted((known | set(paths)).difference(status.changes.named()))
    changes = replace(status.changes, garbage=pa.table({"path": garbage}, schema=PATHS))
    return replace(status, changes=changes)


def as_sent(status: WriteStatus) -> WriteStatus:
    """Return the status of rows that sinks got: each key that came in counts as written.

    A sink takes a row that changes nothing in the table, such as the removal of a key that is not
    there, before or after the row of another writer; nothing but a conflict tells in which order.
    """
    lookups = status.changes.lookups
    named = lookups.filter(lookups["partition"].is_valid()).cast(TOUCHED)
    if not named.num_rows:
        return status
    touched = pa.concat_tables([status.changes.touched, named])
    return replace(status, changes=replace(status.changes, touched=touched))


def leftovers(statuses: Iterable[WriteStatus]) -> set[str]:
    """Return every file of statuses that were replaced by later ones."""
    return set().union(*(status.changes.written() for status in statuses))


def places_of(status: WriteStatus) -> set[Partition]:
    """Return the partitions that a status has files in."""
    changes = status.changes
    lookups = changes.lookups.filter(changes.lookups["key_path"].is_valid())
    columns = [table["partition"] for table in (changes.added, changes.touched, lookups)]
    texts = {text for column in columns for text in column.to_pylist()}
    return {() if text is None else partition_parse(text) for text in texts}


def files_of(store: Store, instant: Instant, partitions: Iterable[Partition]) -> set[str]:
    """List the files of an instant in these partitions."""
    paths: set[str] = set()
    for directory in {partition_path(partition) for partition in partitions}:
        for info in store.list(directory):
            name = parse_path(info.path)
            if name is not None and name.instant.nonce == instant.nonce:
                paths.add(info.path)
    return paths


def announced_places(store: Store, instant: Instant) -> set[Partition]:
    """Return the partitions that the records of an instant name."""
    mine = (entry for entry in load_pending(store) if entry.instant.nonce == instant.nonce)
    return {place for entry in mine for place in entry.partitions}


def advance(snapshot: Snapshot, changes: Changes) -> Snapshot:
    """Return the snapshot that readers would see if the changes were committed on it."""
    files = pa.concat_tables(
        [
            _without(snapshot.files, changes.removed["path"]),
            unmasked(changes.added, version=snapshot.version + 1, staged=True),
        ]
    )
    return replace(snapshot, files=with_masks(files, changes.masked))


def combine_operations(statuses: Sequence[WriteStatus], *, reads: bool) -> WriteStatus:
    """Combine statuses, each of which was staged on the result of the ones before it.

    Files that a later status replaces are garbage from the start. So are files that no part needs
    any more, such as looked-up keys when reads do not count.
    """
    whole = statuses[0]
    for status in statuses[1:]:
        whole = _after(whole, status)
    changes = whole.changes if reads else replace(whole.changes, lookups=no_rows(LOOKUPS))
    garbage = leftovers(statuses).difference(changes.named())
    every = replace(changes, garbage=pa.table({"path": sorted(garbage)}, schema=PATHS))
    counts = WriteStats(
        rows_in=whole.stats.rows_in,
        rows_inserted=whole.stats.rows_inserted,
        rows_updated=whole.stats.rows_updated,
        rows_deleted=whole.stats.rows_deleted,
        keys_unchanged=whole.stats.keys_unchanged,
        files_added=changes.added.num_rows,
        files_removed=changes.removed.num_rows,
        bytes_written=sum(changes.added["bytes"].to_pylist()),
        flushes=whole.stats.flushes,
    )
    return WriteStatus(every, counts)


def combined_scope(scopes: Sequence[Scope], schema: pa.Schema, *, serializable: bool) -> Scope:
    """Return the widest of the scopes; its predicate is the OR of theirs.

    Where one replaces what its predicate chooses, and reads do not count, the predicates of the
    others are left out: they chose among the rows that were there, and replace none that came.
    """
    kinds = {scope.kind for scope in scopes}
    kind = next(
        (wide for wide in (SCOPE_TABLE, SCOPE_PARTITIONS) if wide in kinds),
        SCOPE_APPEND if kinds == {SCOPE_APPEND} else SCOPE_BUCKETS,
    )
    places = dict.fromkeys(place for scope in scopes for place in scope.partitions)
    choosing = [s for s in scopes if serializable or kind in (s.kind, SCOPE_TABLE)]
    predicates = [from_json(s.predicate, schema) for s in choosing if s.predicate is not None]
    return Scope(kind, tuple(places), to_json(any_of(*predicates)) if predicates else None)


def _after(first: WriteStatus, then: WriteStatus) -> WriteStatus:
    one, other = first.changes, then.changes
    mine = set(one.added["path"].to_pylist())
    ended = [path for path in other.removed["path"].to_pylist() if path not in mine]
    masked = _without(_without(one.masked, other.masked["path"]), other.removed["path"])
    changes = Changes(
        added=pa.concat_tables([_without(one.added, other.removed["path"]), other.added]),
        masked=pa.concat_tables([masked, other.masked]),
        touched=pa.concat_tables([one.touched, other.touched]),
        lookups=pa.concat_tables([one.lookups, other.lookups]),
        removed=pa.concat_tables([one.removed, pa.table({"path": ended}, schema=PATHS)]),
    )
    return WriteStatus(changes, first.stats + then.stats)


def _without(table: pa.Table, paths: pa.ChunkedArray) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["path"], value_set=paths.combine_chunks())))
