"""Sorted runs in a local temporary directory, merged once when the writer stages.

A run never leaves this process: it is Arrow's own file format, uncompressed, as fast as the
local disk. One file holds the runs of all buckets of one hand-over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.buffer import Buffer, FlushBatch
from plait.arrow.memory import MemoryLimits, combined, taken
from plait.arrow.merge import DuplicateRule, Merge, Round, SortedBatch, Source
from plait.arrow.split import Group
from plait.errors import StorageError
from plait.files import keys
from plait.files.stats import Range
from plait.model.value import Raw, to_raw


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Bounds of a column, both inclusive."""

    column: str
    lower: Raw
    upper: Raw

    @classmethod
    def of(cls, column: str, first: pa.Scalar, last: pa.Scalar) -> Self | None:
        """Take the bounds from scalars; None where there is nothing to compare."""
        lower, upper = to_raw(first), to_raw(last)
        return None if lower is None or upper is None else cls(column, lower, upper)

    def meets(self, ranges: Mapping[str, Range]) -> bool:
        """Tell whether rows with such ranges can have a key in this one."""
        known = ranges.get(self.column, Range())
        below = known.upper is not None and known.upper < self.lower  # type: ignore[operator]  # one column, one type
        above = known.lower is not None and known.lower > self.upper  # type: ignore[operator]  # as above
        return not (below or above)


def hull(ranges: Iterable[KeyRange | None]) -> KeyRange | None:
    """Return the smallest range that holds all of these; None if one is not known."""
    found: KeyRange | None = None
    for each in ranges:
        if each is None:
            return None
        if found is None:
            found = each
            continue
        lower = min(found.lower, each.lower)
        upper = max(found.upper, each.upper)
        found = KeyRange(each.column, lower, upper)
    return found


FAN_IN: Final = 32
"""A bucket with more runs than this has them merged into one on the way."""


def merged_order(
    order: FlushBatch, merge: Merge, limits: MemoryLimits, size_bytes: int
) -> Iterator[pa.Table]:
    """Return the rows of a bucket sorted, one row a key, in blocks of about ``size_bytes``.

    Each of its batches is sorted already, so that nothing larger than a round is copied.
    """
    if order.size <= limits.round:
        whole = combined(pa.Table.from_batches(order.batches))
        found = keys.merge_order(keys.encode(whole, merge.key))
        sources = [Source(iter([SortedBatch(taken(whole, found))]), unique=False)]
    else:
        sources = pieces(order)
    for each in merge.rounds(sources, limits.round):
        yield from kept_rows(each, size_bytes)


def pieces(order: FlushBatch) -> list[Source]:
    """Return the batches of a bucket as sorted sources, the oldest first."""
    tables = (pa.Table.from_batches([batch]) for batch in order.batches)
    return [Source(iter([SortedBatch(table)]), unique=False) for table in tables]


def kept_rows(merged: Round, size_bytes: int) -> Iterator[pa.Table]:
    """Return the rows of a round that stay, in blocks; copied only where some do not stay."""
    rows = merged.rows
    step = max(1, rows.num_rows * size_bytes // max(1, rows.nbytes))
    if merged.order is None:
        for start in range(0, rows.num_rows, step):
            yield rows.slice(start, step)
        return
    rows = combined(rows)
    for start in range(0, len(merged.order), step):
        yield taken(rows, merged.order[start : start + step])


def key_range(batches: Sequence[pa.RecordBatch], column: str) -> KeyRange | None:
    """Return the range of a column."""
    ends = pc.min_max(pa.Table.from_batches(batches).column(column))
    return KeyRange.of(column, ends["min"], ends["max"])


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
    limits: MemoryLimits
    directory: str | None = None
    """Where to make the temporary directory; None: where the system keeps temporary files."""
    rule: DuplicateRule = DuplicateRule.REPLACE
    """What becomes of a key that comes in twice."""
    runs: dict[Group, list[Run]] = field(default_factory=dict)
    _place: tempfile.TemporaryDirectory[str] | None = None
    _files: int = 0

    def flush(self, orders: Sequence[FlushBatch]) -> None:
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

    def _write(self, orders: Sequence[FlushBatch]) -> None:
        schema = orders[0].batches[0].schema
        merge = Merge(self.key, self.ordering, self.rule)
        with _RunFile(self._new_path(), schema) as file:
            for order in orders:
                found = key_range(order.batches, self.key[0])
                blocks = merged_order(order, merge, self.limits, self.limits.block)
                self.runs.setdefault(order.group, []).append(file.write(blocks, found))
                order.done()
        for order in orders:
            if len(self.runs[order.group]) > FAN_IN:
                self._fold(order.group, schema)

    def _fold(self, group: Group, schema: pa.Schema) -> None:
        """Merge the runs of a bucket into one, so that never too many are open at once."""
        runs = self.runs[group]
        sources = [Source(SortedBatch(rows) for rows in run.blocks()) for run in runs]
        merge = Merge(self.key, self.ordering, self.rule)
        blocks = (
            block
            for each in merge.rounds(sources, self.limits.round)
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


@dataclass(slots=True)
class Incoming:
    """Gives the rows of a bucket as sorted sources, as often as they are asked for."""

    sink: RunSink
    kept: dict[Group, FlushBatch] = field(default_factory=dict)

    def settle(self, buffer: Buffer) -> None:
        """Keep what is left in the buffer: it is sorted and can be merged where it is."""
        self.kept = {order.group: order for order in buffer.rest()}

    def groups(self) -> list[Group]:
        """Return the buckets that rows came for, in the order of their first flush."""
        return list(dict.fromkeys([*self.sink.runs, *self.kept]))

    def sources(self, group: Group) -> list[Source]:
        """Return the rows of a bucket, oldest first; none if nothing came for it."""
        runs = self.sink.runs.get(group, ())
        found = [Source(SortedBatch(rows) for rows in run.blocks()) for run in runs]
        order = self.kept.get(group)
        return found if order is None else found + pieces(order)

    def range(self, group: Group) -> KeyRange | None:
        """Return the range of the first key column of what came for a bucket; None: not known."""
        column = self.sink.key[0]
        found = [run.range for run in self.sink.runs.get(group, ())]
        order = self.kept.get(group)
        if order is not None:
            found.append(key_range(order.batches, column))
        return hull(found)

    def close(self) -> None:
        """Drop everything."""
        for order in self.kept.values():
            order.done()
        self.kept.clear()
        self.sink.close()
