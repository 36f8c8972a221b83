"""Copy the visible rows of some files into others, and note where each row goes.

Masks have chosen the rows already, so no row is compared with another: rows of a table with a
record key are merged by it, others follow each other, or are put in an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from plait.arrow.distribute import Distribution
from plait.arrow.existing import Existing
from plait.arrow.memory import MemoryLimits, combined, taken
from plait.arrow.output import Announce, Output, touched_row
from plait.arrow.runs import sliced
from plait.files import keys
from plait.files.data_file import MAP, LiveFile
from plait.files.row_map import RowMapBuilder, RowMapWriter
from plait.model.bucket import UNKEYED, BucketId
from plait.model.changes import (
    ADDED,
    BASE,
    KEYS_NONE,
    LOG,
    MOVED,
    PATHS,
    PLACED,
    TOUCHED,
    Changes,
    WriteStats,
    WriteStatus,
)
from plait.model.order import KEY_ORDER, NO_ORDER, Order
from plait.model.plan import Snapshot
from plait.model.request import FileSet, WritePlan
from plait.read.join import aligned, repeated_key
from plait.storage.port import Store


def rewrite_files(
    plan: WritePlan,
    snapshot: Snapshot,
    sets: Iterable[tuple[int, FileSet]],
    announce: Announce,
    *,
    store: Store,
    task: str = "0",
) -> WriteStatus:
    """Put the visible rows of each set of files into one file.

    Args:
        plan: of the instant.
        snapshot: the table, or the files of these sets.
        sets: each with its number among those of the instant.
        announce: see ``Engine.staging``.
        store: the table's.
        task: tells those apart that work for one instant.
    """
    output = Output(store, plan, MemoryLimits.of(plan.options), task, announce)
    rewriter = Rewriter(output, Existing(store, snapshot, plan.spec, output.limits.group))
    for number, each in sets:
        output.check_alive()
        wanted = set(each.sources)
        live = [file for file in rewriter.existing.files(each.bucket) if file.path in wanted]
        wanted_order = None if each.order is None else each.order.id
        if len(live) == 1 and not live[0].masked and wanted_order in (None, live[0].order):
            continue  # it is as it should be
        if each.order is not None and live:
            rewriter.cluster(each.bucket, live, number, each.order)
        elif live:
            rewriter.copy(each.bucket, live, number)
    return rewriter.status()


@dataclass(slots=True)
class Rewriter:
    """Copies groups of files, one after another, for one instant or one task of it."""

    output: Output
    existing: Existing
    _added: list[pa.Table] = field(default_factory=list)
    _removed: list[str] = field(default_factory=list)
    _touched: dict[BucketId, pa.Table] = field(default_factory=dict)
    _placed: list[dict[str, object]] = field(default_factory=list)
    _maps: RowMapWriter | None = None

    def copy(self, bucket: BucketId, sources: Sequence[LiveFile], group: int) -> None:
        """Copy the visible rows of some files of a bucket, the oldest first.

        Raises:
            CorruptMetadataError: a file is damaged, or a key occurs twice (INV-08).
        """
        keyed = self.output.spec.keyed
        builders = [RowMapBuilder(file.rows) for file in sources]
        rows = self._merged(sources, builders) if keyed else self._chained(sources, builders)
        kind, order = self._kind(bucket, sources), KEY_ORDER if keyed else NO_ORDER
        self._place(self.output.write(bucket, kind, rows, order=order), group, 0)
        self._replace(bucket, sources, builders, group)

    def cluster(
        self, bucket: BucketId, sources: Sequence[LiveFile], group: int, order: Order
    ) -> None:
        """Sort the visible rows of some files.

        Those of a bucket go into one file, those of a partition into files of the target size.

        Raises:
            CorruptMetadataError: a file is damaged.
            StorageError: the local disk is full or not there.
        """
        keyed, limits = self.output.spec.keyed, self.output.limits
        size = None if keyed else self.output.plan.options.size("file.size.target")
        rows = Distribution.plan(self.existing, sources, order, size=size, memory=limits.buffer)
        builders = [RowMapBuilder(file.rows) for file in sources]
        kind, first = self._kind(bucket, sources), 0
        for target in rows.targets(builders):
            blocks = (block for part in target for block in sliced(part, limits.slice))
            record = self.output.write(bucket, kind, blocks, order=order.id)
            self._place(record, group, first)
            first += 0 if record is None else record["rows"][0].as_py()
        self._replace(bucket, sources, builders, group)

    def _kind(self, bucket: BucketId, sources: Sequence[LiveFile]) -> str:
        """Return what the target is: the base file, if a source is or if there is no other file."""
        whole = len(sources) == len(self.existing.files(bucket))
        base = whole or not self.output.spec.keyed or any(file.kind == BASE for file in sources)
        return BASE if base else LOG

    def _place(self, record: pa.Table | None, group: int, first: int) -> None:
        """Note a target."""
        if record is not None:
            self._added.append(record)
            placed = {"path": record["path"][0].as_py(), "rows": record["rows"][0].as_py()}
            self._placed.append({**placed, "group": group, "first": first})

    def _replace(
        self,
        bucket: BucketId,
        sources: Sequence[LiveFile],
        builders: Sequence[RowMapBuilder],
        group: int,
    ) -> None:
        """Note the sources, and where their rows went."""
        maps = self._open_maps(bucket)
        for file, builder in zip(sources, builders, strict=True):
            maps.add(file.path, group, builder.build())
        self._removed += [file.path for file in sources]
        self._touched[bucket] = touched_row(bucket, KEYS_NONE, 0)

    def status(self) -> WriteStatus:
        """Finish the row maps; return what was done, with every file durable."""
        moved = MOVED.empty_table() if self._maps is None else self._maps.close()
        maps = [] if self._maps is None else self._maps.paths
        changes = Changes(
            added=pa.concat_tables([ADDED.empty_table(), *self._added]),
            touched=pa.concat_tables([TOUCHED.empty_table(), *self._touched.values()]),
            removed=pa.table({"path": self._removed}, schema=PATHS),
            garbage=pa.table({"path": maps}, schema=PATHS),
            moved=moved,
            placed=pa.Table.from_pylist(self._placed, schema=PLACED),
        )
        self.output.store.persist([*changes.named(), *maps])
        stats = WriteStats(
            rows_in=sum(changes.placed["rows"].to_pylist()),
            files_added=changes.added.num_rows,
            files_removed=len(self._removed),
            bytes_written=sum(changes.added["bytes"].to_pylist()),
        )
        return WriteStatus(changes, stats)

    def _open_maps(self, bucket: BucketId) -> RowMapWriter:
        if self._maps is None:
            path = self.output.name((bucket[0], UNKEYED), MAP)
            self._maps = RowMapWriter(self.output.store, path)
        return self._maps

    def _merged(
        self, sources: Sequence[LiveFile], builders: Sequence[RowMapBuilder]
    ) -> Iterator[pa.Table]:
        """Return rows in the order of their keys."""
        spec, limits, first = self.output.spec, self.output.limits, 0
        existing = [self.existing.source(file, spec.copied) for file in sources]
        for parts in aligned(existing, spec.key, limits.round):
            order, starts = keys.grouped(keys.concat([part.keys for _, part in parts]))
            if not starts.all():
                raise repeated_key()
            new = np.empty(len(order), dtype=np.int64)
            new[order] = np.arange(first, first + len(order))
            at = 0
            for source, part in parts:
                count = part.rows.num_rows
                if part.positions is not None:
                    builders[source].add(part.positions, new[at : at + count])
                at += count
            first += len(order)
            rows = pa.concat_tables([part.rows for _, part in parts])
            yield rows if len(parts) == 1 else taken(combined(rows), order)

    def _chained(
        self, sources: Sequence[LiveFile], builders: Sequence[RowMapBuilder]
    ) -> Iterator[pa.Table]:
        """Return rows as they come."""
        first, names = 0, self.output.spec.copied
        for file, builder in zip(sources, builders, strict=True):
            for block in self.existing.blocks(file, names):
                last = first + block.rows.num_rows
                if block.positions is not None:
                    builder.add(block.positions, np.arange(first, last))
                first = last
                yield block.rows
