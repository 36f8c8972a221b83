"""Carry over: move what was staged on an older version to the head by the places of rows.

No writer should fail or start again because of a service, nor a service because of a writer
(INV-14, INV-15, RFC 0018). A rewrite (compaction, clustering) changes no row; it moves rows into
other files. So a writer that hid rows of a replaced file hides the same rows where they went, and
a rewrite hides in its own files what writers hid meanwhile in the files that it copied
(``services/maintenance/rewrite.py``). An expiry hides rows where they are, so a writer joins its
deletion vectors with those of the expiry. A carry-over reads row maps and deletion vectors and no
row, so it can be repeated after each lost slot. The rules are those of the model ``rewrite``. This
module has the carrier of a writer, ``FollowRows``, and what the carriers of the services share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.files.data_file import MASK, LiveFile, data_path, live_files
from plait.files.deletion import MaskWriter, load_mask, load_masked, union
from plait.files.roaring import Positions
from plait.files.row_map import load_row_map
from plait.model.bucket import UNKEYED, BucketId, Partition
from plait.model.changes import MASKED, PATHS, Changes, WriteStatus
from plait.model.decision import Decision
from plait.model.instant import Instant, Operation
from plait.read.plan import filter_partitions
from plait.state.state import TableState
from plait.storage.port import Store
from plait.txn.conflict import touched_buckets
from plait.txn.table_handle import TableHandle

_ALL = None
"""Stands for every row of a file."""
Hidden = dict[str, Positions | None]
"""By path: sorted positions of rows that are hidden, or all rows."""


@dataclass(frozen=True, slots=True)
class FollowRows:
    """Carries a writer's changes: what it hid is hidden where rewrites put it.

    An expiry moves nothing: it hides further rows of the same files, or takes files away.
    Its own files stay as they are. What it hides was live when it staged, and nobody else changed
    it since: other commits to the same rows are conflicts, and their buckets are staged again.
    """

    masks: MaskFiles

    def carry(
        self, staged: WriteStatus, head: TableState, services: Sequence[Decision]
    ) -> WriteStatus:
        """Follow each hidden row through the decisions; see ``Carrier``."""
        store, changes = self.masks.handle.store, staged.changes
        hidden = HiddenRows.of(changes)
        # Oldest first: a target of one rewrite can be a source of the next, so what one step
        # reached is what the following step looks for.
        for service in services:
            if service.operation is Operation.EXPIRE:
                hidden.join(service.changes)
            else:
                hidden.follow(store, service.changes)
        followed = hidden.left or hidden.joined
        carried = self._hide(changes, hidden, head) if followed else changes
        # Also where nothing is followed any more: an earlier round may have written vectors.
        garbage = self.masks.garbage(changes, carried)
        return restated(staged, replace(carried, garbage=garbage))

    def _hide(self, changes: Changes, hidden: HiddenRows, head: TableState) -> Changes:
        """Return changes that hide on the head what was followed, in the files where it is now."""
        store = self.masks.handle.store
        # Where an expiry meets a file that we remove whole, nothing is to be joined: all of its
        # rows go anyway.
        joined = hidden.joined & hidden.masked.keys()
        reached = {*hidden.reached, *joined}
        files = find_live(head, store, touched_buckets(changes), reached)
        for path in joined:
            rows = _live(files, path).rows
            hidden.reached[path] = load_masked(store, hidden.masked[path], rows=rows)
        removed: list[str] = []
        masks: dict[str, Positions] = {}
        for path, positions in sorted(hidden.reached.items()):
            file = _live(files, path)
            # A decision replaces the whole vector of a file. So start from the vector of the head,
            # which others may have extended since we staged: ours alone would bring their hidden
            # rows back.
            every = positions if positions is _ALL else union(load_mask(store, file), positions)
            if every is _ALL or len(every) == file.rows:
                removed.append(path)
            else:
                masks[path] = every
        # Take every followed path off both lists before it is put on one of them. A path may be
        # named once, and a source of a rewrite is not live any more, so it cannot be removed again.
        gone = pa.array(sorted(hidden.left | hidden.reached.keys()), pa.string())
        kept, masked = (_without(t, gone) for t in (changes.removed, changes.masked))
        partition = next(iter(files.values())).partition if files else ()
        return replace(
            changes,
            removed=pa.concat_tables([kept, pa.table({"path": removed}, schema=PATHS)]),
            masked=pa.concat_tables([masked, self.masks.write(partition, masks)]),
        )


def _live(files: dict[str, LiveFile], path: str) -> LiveFile:
    file = files.get(path)
    if file is None:
        message = f"rows that this commit hides were moved to {path}, which is not live"
        raise CorruptMetadataError(message, path=path, expected="a live file", found="none")
    return file


def _without(table: pa.Table, paths: pa.Array) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["path"], value_set=paths)))


@dataclass(slots=True)
class HiddenRows:
    """The rows that a commit hides, followed from rewrite to rewrite."""

    hidden: Hidden
    masked: dict[str, Row]
    """By path: the record (MASKED) of what is hidden, not loaded yet."""
    left: set[str] = field(default_factory=set)
    """Files that rewrites replaced, or that have expired."""
    joined: set[str] = field(default_factory=set)
    """Files of which further rows have expired."""
    reached: Hidden = field(default_factory=dict)
    """What is hidden in files that rewrites wrote."""

    @classmethod
    def of(cls, changes: Changes) -> Self:
        """Take what a commit hides; of a file that it removes, all rows."""
        own = set(changes.added["path"].to_pylist())
        masked = {row["path"]: row for row in changes.masked.to_pylist() if row["path"] not in own}
        return cls(dict.fromkeys(changes.removed["path"].to_pylist(), _ALL), masked)

    def follow(self, store: Store, rewrite: Changes) -> None:
        """Put what is hidden in the targets of a rewrite in place of that in its sources.

        Raises:
            CorruptMetadataError: a row map is gone or damaged.
        """
        mine = pa.array([*self.hidden, *self.masked, *self.reached], pa.string())
        moved = rewrite.moved.filter(pc.is_in(rewrite.moved["path"], value_set=mine))
        # A target of which no row was visible when it was published is not there.
        there = pc.is_in(rewrite.placed["path"], rewrite.added["path"].combine_chunks())
        placed = rewrite.placed.filter(there)
        for group in moved["group"].unique().to_pylist():
            rows = count_rows(rows_of_group(rewrite.placed, group))
            self._follow(
                store, rows_of_group(rewrite.moved, group), rows_of_group(placed, group), rows
            )

    def join(self, expiry: Changes) -> None:
        """Take in which files and rows have expired: their places stay."""
        self.joined.update(expiry.masked["path"].to_pylist())
        for path in expiry.removed["path"].to_pylist():
            if self._hides(path):
                self.left.add(path)
                for known in (self.hidden, self.masked, self.reached):
                    known.pop(path, None)

    def _follow(
        self, store: Store, sources: Sequence[Row], targets: Sequence[Row], rows: int
    ) -> None:
        known = [row for row in sources if self._hides(str(row["path"]))]
        found = [self._take(store, row) for row in known]
        # If we remove every source of the group, every target goes whole and no map is read. So an
        # overwrite goes on even if a row map is lost.
        if len(found) == len(sources) and all(each is _ALL for each in found):
            self.reached.update(dict.fromkeys((str(row["path"]) for row in targets), _ALL))
            return
        for source, positions in zip(known, found, strict=True):
            moved = load_row_map(store, source, target_rows=rows)
            image = moved.whole() if positions is _ALL else moved.image(positions)
            for path, part in divided(image, targets):
                before = self.reached.get(path, part)
                self.reached[path] = _ALL if before is _ALL else union(before, part)

    def _hides(self, path: str) -> bool:
        return path in self.hidden or path in self.masked or path in self.reached

    def _take(self, store: Store, source: Row) -> Positions | None:
        """Return what is hidden in a source, and forget it: the file is gone."""
        path, rows = str(source["path"]), int(str(source["rows"]))
        self.left.add(path)
        parts: list[Positions | None] = []
        if path in self.masked:
            parts.append(load_masked(store, self.masked.pop(path), rows=rows))
        parts += [known.pop(path) for known in (self.hidden, self.reached) if path in known]
        sets = [part for part in parts if part is not _ALL]
        return np.unique(np.concatenate(sets)) if len(sets) == len(parts) else _ALL


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
    """Must be called before a file appears in a partition."""
    written: set[str] = field(default_factory=set)
    """Every file so far; those that the last status does not name are garbage."""
    _rounds: int = 0

    def write(self, partition: Partition, masks: Mapping[str, Positions]) -> pa.Table:
        """Write vectors, by the path of their file; return their records (MASKED)."""
        if not masks:
            return MASKED.empty_table()
        # Announce first: recovery looks for our files only in partitions that a record names.
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
    files = state.snapshot(store, file_filter=filter_partitions(places)).files
    named = pc.is_in(files["path"], value_set=pa.array(sorted(paths), pa.string()))
    return {file.path: file for file in live_files(files.filter(named))}
