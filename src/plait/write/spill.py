"""Sorted runs in a local temporary directory, merged once when the writer stages.

A run never leaves this process: it is Arrow's own file format, uncompressed, as fast as the
local disk. One file holds the runs of all buckets of one hand-over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from plait.errors import StorageError
from plait.write import keys
from plait.write.buffer import Order
from plait.write.limits import Limits
from plait.write.merge import Block, Merge, Round, Rule, Source
from plait.write.ranges import KeyRange, hull
from plait.write.resolve import winners
from plait.write.split import Group

FAN_IN: Final = 96
"""A bucket with more runs than this has them merged into one on the way."""


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows of one bucket in memory, sorted by key in the order given, one row a key."""

    rows: pa.Table
    order: keys.Indices

    def range(self, column: str) -> KeyRange | None:
        """Give the range of the first key column."""
        if not len(self.order):
            return None
        values = self.rows.column(column)
        return KeyRange.of(column, values[int(self.order[0])], values[int(self.order[-1])])

    def blocks(self, size_bytes: int) -> Iterator[pa.Table]:
        """Give the rows in order, copied in blocks of about ``size_bytes``."""
        count = len(self.order)
        step = max(1, self.rows.num_rows * size_bytes // max(1, self.rows.nbytes))
        for start in range(0, count, step):
            yield self.rows.take(pa.array(self.order[start : start + step]))


def sort_rows(
    batches: Sequence[pa.RecordBatch], key: Sequence[str], ordering: str | None
) -> SortedRows:
    """Sort rows that came in this order; of equal keys only the winner stays."""
    rows = pa.Table.from_batches(batches).combine_chunks()
    found = keys.encode(rows, key)
    order = keys.sort_order(found)
    first = keys.starts(keys.take(found, order))
    ranks = None
    if ordering is not None and ordering in rows.column_names and not first.all():
        ranks = rows.column(ordering).combine_chunks()
    return SortedRows(rows, winners(order, first, ranks))


def kept_rows(merged: Round, size_bytes: int) -> Iterator[pa.Table]:
    """Give the rows of a round that stay, copied in blocks where they are not all."""
    if merged.order is None:
        yield merged.rows
    elif len(merged.order):
        yield from SortedRows(merged.rows.combine_chunks(), merged.order).blocks(size_bytes)


def segments(batches: Sequence[pa.RecordBatch], size_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Divide batches into stretches of about equal size, none much larger than ``size_bytes``."""
    total = sum(batch.nbytes for batch in batches)
    rows = sum(batch.num_rows for batch in batches)
    parts = max(1, -(-total // size_bytes))
    wanted = -(-rows // parts)
    current: list[pa.RecordBatch] = []
    room = wanted
    for batch in batches:
        rest = batch
        while rest.num_rows:
            piece = rest.slice(0, room)
            rest = rest.slice(piece.num_rows)
            current.append(piece)
            room -= piece.num_rows
            if not room:
                yield current
                current, room = [], wanted
    if current:
        yield current


@dataclass(frozen=True, slots=True)
class Run:
    """Where one sorted run lies."""

    path: Path
    first: int
    count: int
    rows: int
    range: KeyRange | None

    def blocks(self) -> Iterator[pa.Table]:
        """Read the run in order, in the blocks in which it was written."""
        with pa.OSFile(str(self.path)) as source, pa.ipc.open_file(source) as reader:
            for at in range(self.first, self.first + self.count):
                yield pa.Table.from_batches([reader.get_batch(at)])


class _RunFile:
    """A file that takes one run after another."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)
        self._count = 0

    def write(self, blocks: Iterable[pa.Table], key_range: KeyRange | None) -> Run:
        first, rows = self._count, 0
        for block in blocks:
            for batch in block.to_batches():
                self._writer.write_batch(batch)
                self._count += 1
                rows += batch.num_rows
        return Run(self._path, first, self._count - first, rows, key_range)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()
        self._sink.close()


@dataclass(slots=True)
class RunSink:
    """Spills flushed buckets as sorted runs; gone with ``close``."""

    key: Sequence[str]
    ordering: str | None
    limits: Limits
    directory: str | None = None
    """Where to make the temporary directory; None: where the system keeps temporary files."""
    runs: dict[Group, list[Run]] = field(default_factory=dict)
    _place: tempfile.TemporaryDirectory[str] | None = None
    _files: int = 0

    def flush(self, orders: Sequence[Order]) -> None:
        """Write the runs of these buckets into one file.

        Raises:
            StorageError: the local disk is full or not there.
        """
        try:
            self._write(orders)
        except OSError as error:
            message = f"cannot spill rows to a local directory: {error}"
            hint = "make room there, or point TMPDIR at a larger disk"
            raise StorageError(message, hint=hint, path=str(self._place)) from error

    def _write(self, orders: Sequence[Order]) -> None:
        schema = orders[0].batches[0].schema
        with _RunFile(self._new_path(), schema) as file:
            for order in orders:
                runs = self.runs.setdefault(order.group, [])
                for part in segments(order.batches, self.limits.segment):
                    rows = sort_rows(part, self.key, self.ordering)
                    runs.append(file.write(rows.blocks(self.limits.block), rows.range(self.key[0])))
                order.done()
        for order in orders:
            if len(self.runs[order.group]) > FAN_IN:
                self._fold(order.group, schema)

    def _fold(self, group: Group, schema: pa.Schema) -> None:
        """Merge the runs of a bucket into one, so that never too many are open at once."""
        runs = self.runs[group]
        sources = [Source(Block(rows) for rows in run.blocks()) for run in runs]
        merge = Merge(self.key, self.ordering, Rule.REPLACE)
        size = 2 * FAN_IN * self.limits.block
        blocks = (
            block
            for each in merge.rounds(sources, size)
            for block in kept_rows(each, self.limits.block)
        )
        with _RunFile(self._new_path(), schema) as file:
            self.runs[group] = [file.write(blocks, hull(run.range for run in runs))]

    def _new_path(self) -> Path:
        if self._place is None:
            self._place = tempfile.TemporaryDirectory(prefix="plait-", dir=self.directory)
        self._files += 1
        return Path(self._place.name) / f"{self._files:06d}.arrow"

    def close(self) -> None:
        """Remove the directory."""
        self.runs.clear()
        if self._place is not None:
            self._place.cleanup()
            self._place = None
