"""Put the reports of tasks together into one status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from plait.errors import InvariantError
from plait.files.names import parse_path
from plait.model.bucket import Partition, partition_parse, partition_path
from plait.model.changes import PATHS, TOUCHED, WriteStatus
from plait.model.instant import Instant
from plait.storage.port import Store
from plait.timeline.pending import load_pending


def together(statuses: Sequence[WriteStatus], *, keyed: bool) -> WriteStatus:
    """Put statuses together.

    Raises:
        InvariantError: two tasks staged one bucket of a table with a key.
    """
    whole = WriteStatus.concat(statuses)
    touched = whole.changes.touched
    places = touched.select(["partition", "bucket"]).group_by(["partition", "bucket"])
    if places.aggregate([]).num_rows == touched.num_rows:
        return whole
    if keyed:
        message = "two tasks staged one bucket: its rows would overwrite each other"
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
    """Name more files as garbage, unless the status uses them."""
    known = set(status.changes.garbage["path"].to_pylist())
    garbage = sorted((known | set(paths)).difference(status.changes.named()))
    changes = replace(status.changes, garbage=pa.table({"path": garbage}, schema=PATHS))
    return replace(status, changes=changes)


def leftovers(statuses: Iterable[WriteStatus]) -> set[str]:
    """Give every file of statuses that others have taken the place of."""
    return set().union(*(status.changes.written() for status in statuses))


def places_of(status: WriteStatus) -> set[Partition]:
    """Give the partitions that a status has files in."""
    texts = {
        *status.changes.added["partition"].to_pylist(),
        *status.changes.touched["partition"].to_pylist(),
    }
    return {partition_parse(text) for text in texts}


def files_of(store: Store, instant: Instant, partitions: Iterable[Partition]) -> set[str]:
    """List the files of an instant in these partitions."""
    found: set[str] = set()
    for directory in {partition_path(partition) for partition in partitions}:
        for info in store.list(directory):
            name = parse_path(info.path)
            if name is not None and name.instant.nonce == instant.nonce:
                found.add(info.path)
    return found


def announced_places(store: Store, instant: Instant) -> set[Partition]:
    """Give the partitions that the records of an instant name."""
    mine = (entry for entry in load_pending(store) if entry.instant.nonce == instant.nonce)
    return {place for entry in mine for place in entry.partitions}
