"""Carry over: what was staged on an older version is moved to the head by the places of rows.

A rewrite (compaction, clustering) changes no row, it moves rows into other files. A writer that hid
rows of a file that is gone hides the same rows where they went (``txn/follow.py``). A rewrite hides
in its own files what writers hid meanwhile where it copied from (``services/rewrite.py``). Both
read row maps and deletion vectors and no row, and stage nothing again (INV-14, INV-15, RFC 0018).
An expiry hides rows where they are, so a writer joins its vectors with those of the expiry.
The rules are those of the model ``rewrite``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.data_file import MASK, LiveFile, data_path, live_files
from plait.files.deletion import MaskWriter
from plait.files.roaring import Positions
from plait.model.bucket import UNKEYED, BucketId, Partition
from plait.model.changes import MASKED, PATHS, Changes, WriteStatus
from plait.model.decision import Decision
from plait.model.instant import Instant
from plait.read.wanted import wanted_in
from plait.state.state import TableState
from plait.storage.port import Store
from plait.txn.table_handle import TableHandle

Announce = Callable[[Iterable[Partition]], None]
Row = Mapping[str, object]


class Carrier(Protocol):
    """Moves what an engine staged to a newer head."""

    def carry(
        self, staged: WriteStatus, head: TableState, services: Sequence[Decision]
    ) -> WriteStatus:
        """Return the status to publish on ``head``.

        Args:
            staged: as the engine staged it, never a result of this method.
            head: the newest state.
            services: their decisions since the engine staged, oldest first.

        Raises:
            CorruptMetadataError: places cannot be followed; the buckets must be staged again.
            Obsolete: nothing is left to publish.
        """
        ...


@dataclass(slots=True)
class MaskFiles:
    """The deletion vectors of one instant that carrying over writes."""

    handle: TableHandle
    instant: Instant
    announce: Announce
    """Called before a file appears in a partition."""
    written: set[str] = field(default_factory=set)
    """Every file so far; those that the last status does not name are garbage."""
    _rounds: int = 0

    def write(self, partition: Partition, masks: Mapping[str, Positions]) -> pa.Table:
        """Write vectors, by the path of their file; return their records (MASKED)."""
        if not masks:
            return MASKED.empty_table()
        self.announce([partition])
        self._rounds += 1
        # a nonce, since another process may resume the same instant
        attempt = f"c{self._rounds}-{self.handle.ports.ids.nonce()}"
        path = data_path(partition, UNKEYED, self.instant, attempt, MASK)
        writer = MaskWriter(self.handle.store, path)
        self.written.add(path)
        for masked, positions in sorted(masks.items()):
            writer.add(masked, positions)
        records = writer.close()
        if writer.paths:
            self.handle.store.persist(writer.paths)
        else:
            self.written.discard(path)
        return records

    def garbage(self, staged: Changes, carried: Changes) -> pa.Table:
        """Return the files of the instant that the carried changes do not name (PATHS)."""
        left = (staged.written() | self.written).difference(carried.named())
        return pa.table({"path": sorted(left)}, schema=PATHS)


def restated(staged: WriteStatus, changes: Changes) -> WriteStatus:
    """Return a status with other changes; the files that it adds and removes are counted again."""
    added, removed = changes.added.num_rows, changes.removed.num_rows
    stats = replace(staged.stats, files_added=added, files_removed=removed)
    return replace(staged, changes=changes, stats=stats)


def rows_of_group(table: pa.Table, group: int) -> list[Row]:
    """Return the rows of one group of MOVED or PLACED; targets in their order."""
    chosen = table.filter(pc.equal(table["group"], group))
    if "first" in chosen.schema.names:
        chosen = chosen.sort_by("first")
    rows: list[Row] = chosen.to_pylist()
    return rows


def count_rows(targets: Iterable[Row]) -> int:
    """Return the rows of the targets of a group (PLACED), together."""
    return sum(int(str(target["rows"])) for target in targets)


def divided(positions: Positions, targets: Iterable[Row]) -> Iterator[tuple[str, Positions]]:
    """Divide sorted positions in a group among its targets (PLACED)."""
    for target in targets:
        first, rows = int(str(target["first"])), int(str(target["rows"]))
        low, high = np.searchsorted(positions, [first, first + rows])
        if high > low:
            yield str(target["path"]), positions[low:high] - np.uint64(first)


def find_live(
    state: TableState, store: Store, buckets: frozenset[BucketId], paths: Iterable[str]
) -> dict[str, LiveFile]:
    """Return those of some files that are live, by path."""
    places = {partition for partition, _ in buckets}
    files = state.snapshot(store, wants=wanted_in(places)).files
    named = pc.is_in(files["path"], value_set=pa.array(sorted(paths), pa.string()))
    return {file.path: file for file in live_files(files.filter(named))}
