"""Sorted runs on the local disk: flushed buckets that are merged once, when the writer stages.

A run never leaves this process: it is Arrow's own file format, uncompressed, as fast as the local
disk. One file holds the runs of all buckets of one hand-over. Keys that were removed make a run of
their own, which comes before the rows of its hand-over: rows that came before a removal of their
key are not in it any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.buffer import Buffer, FlushBatch
from plait.arrow.ingest import Group
from plait.arrow.memory import MemoryLimits, combined, taken
from plait.arrow.merge import DuplicateRule, Merge, Round
from plait.files import keys
from plait.files.footer import Range, joined
from plait.model.schema import WRITTEN_COLUMN, unwritten
from plait.model.value import to_raw
from plait.read.join import SortedBatch, Source
from plait.storage.scratch import Scratch

FAN_IN: Final = 32
"""A bucket with more runs than this has them merged into one on the way."""


def merged_order(
    order: FlushBatch, merge: Merge, limits: MemoryLimits, size_bytes: int
) -> Iterator[pa.Table]:
    """Return the rows of a bucket sorted, one row a key, in blocks of about ``size_bytes``.

    Without those that one of its removals takes away. Each of its batches is sorted already, so
    that nothing larger than a round is copied.
    """
    if order.size <= limits.round and not order.removals:
        whole = combined(pa.Table.from_batches(order.batches))
        order_by_key = keys.merge_order(keys.encode(whole, merge.key))
        sources = [Source(iter([SortedBatch(taken(whole, order_by_key))]), unique=False)]
    else:
        sources = pieces(order)
    for each in merge.rounds(sources, limits.round):
        yield from kept_rows(each, size_bytes)


def pieces(order: FlushBatch) -> list[Source]:
    """Return the batches of a bucket as sorted sources, the oldest first."""
    return [
        Source(_one_block(batch), unique=False, removes=removes) for batch, removes in order.parts()
    ]


def _dated(rows: pa.Table) -> pa.Table:
    """Return rows with the hidden column; some came with it (``WriteRequest.with_row_version``)."""
    return rows if WRITTEN_COLUMN in rows.schema.names else unwritten(rows)


def _as_copied(source: Source) -> Source:
    if source.removes:
        return source
    blocks = (SortedBatch(_dated(each.rows), each.positions) for each in source.blocks)
    return replace(source, blocks=blocks)


def merged_removals(
    order: FlushBatch, key: Sequence[str], limits: MemoryLimits, size_bytes: int
) -> Iterator[pa.Table]:
    """Return the keys that a bucket's removals name, sorted, each once."""
    sources = [Source(_one_block(batch), unique=False) for _, batch in order.removals]
    return _merged_keys(sources, key, limits, size_bytes)


def _merged_keys(
    sources: Sequence[Source], key: Sequence[str], limits: MemoryLimits, size_bytes: int
) -> Iterator[pa.Table]:
    for each in Merge(key, None, DuplicateRule.REPLACE).rounds(sources, limits.round):
        yield from kept_rows(each, size_bytes)


def _one_block(batch: pa.RecordBatch) -> Iterator[SortedBatch]:
    return iter([SortedBatch(pa.Table.from_batches([batch]))])


def kept_rows(merged: Round, size_bytes: int) -> Iterator[pa.Table]:
    """Return the rows of a round that stay, in blocks; copied only where some do not stay."""
    if merged.order is None:
        yield from sliced(merged.rows, size_bytes)
        return
    rows, step = combined(merged.rows), _rows_of(merged.rows, size_bytes)
    for start in range(0, len(merged.order), step):
        yield taken(rows, merged.order[start : start + step])


def sliced(rows: pa.Table, size_bytes: int) -> Iterator[pa.Table]:
    """Return rows in slices of about ``size_bytes``, without a copy."""
    step = _rows_of(rows, size_bytes)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _rows_of(rows: pa.Table, size_bytes: int) -> int:
    count: int = rows.num_rows * size_bytes // max(1, rows.nbytes)
    return max(1, count)


def key_range(batches: Sequence[pa.RecordBatch], column: str) -> Range:
    """Return the range of a column."""
    ends = pc.min_max(pa.Table.from_batches(batches).column(column))
    return Range(to_raw(ends["min"]), to_raw(ends["max"]))


def hull(ranges: Sequence[Range]) -> Range:
    """Return the smallest range that holds all of these, as far as it is known."""
    return joined(ranges, [1] * len(ranges))


@dataclass(frozen=True, slots=True)
class Run:
    """Where one sorted run lies."""

    scratch: Scratch
    name: str
    first: int
    count: int
    rows: int
    range: Range
    removes: bool = False
    """Whether it has keys that were removed, and no rows."""

    @property
    def path(self) -> str:
        """The file that it is in."""
        return f"{self.scratch.path}/{self.name}"

    def blocks(self) -> Iterator[pa.Table]:
        """Read the run in order, in the blocks in which it was written."""
        for batch in self.scratch.batches(self.name, self.first, self.count):
            yield pa.Table.from_batches([batch])

    def source(self) -> Source:
        """Return what is in the run."""
        return Source(map(SortedBatch, self.blocks()), removes=self.removes)


class _RunFile:
    """A file that takes one run after another."""

    def __init__(self, scratch: Scratch, name: str, schema: pa.Schema) -> None:
        self._scratch, self._name = scratch, name
        self._writer = scratch.writer(name, schema)
        self._count = 0

    def write(self, blocks: Iterable[pa.Table], key_range: Range, *, removes: bool = False) -> Run:
        first, rows = self._count, 0
        for block in blocks:
            for batch in block.to_batches():
                self._writer.write(batch)
                self._count += 1
                rows += batch.num_rows
        count = self._count - first
        return Run(self._scratch, self._name, first, count, rows, key_range, removes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._writer.__exit__(kind, *error)


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
    _place: Scratch | None = None
    _files: int = 0

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        """Write the runs of these buckets into one file, and what they remove into another.

        Raises:
            StorageError: the local disk is full or not there.
        """
        for order, run in self.spill_removals(orders):
            self.runs.setdefault(order.group, []).append(run)
        filled = [order for order in orders if order.batches]
        if filled:
            self._write(filled)
        for order in orders:
            if len(self.runs[order.group]) > FAN_IN:
                self._fold(order.group)

    def beside(self) -> RunSink:
        """Return another sink in a directory of its own, for rows of which each key has one."""
        return RunSink(self.key, None, self.limits, self.directory)

    def keep(self, group: Group, rows: pa.Table) -> None:
        """Write a run of rows that are sorted by key.

        Raises:
            StorageError: the local disk is full or not there.
        """
        with self._new_file(rows.schema) as file:
            within = key_range(rows.to_batches(), self.key[0])
            run = file.write(sliced(rows, self.limits.block), within)
        self.runs.setdefault(group, []).append(run)
        if len(self.runs[group]) > FAN_IN:
            self._fold(group)

    def spill_removals(self, orders: Sequence[FlushBatch]) -> list[tuple[FlushBatch, Run]]:
        """Write a run of the keys that each bucket removes; it comes before the bucket's rows.

        Raises:
            StorageError: the local disk is full or not there.
        """
        orders = [order for order in orders if order.removals]
        if not orders:
            return []
        limits, runs = self.limits, []
        with self._new_file(orders[0].removals[0][1].schema) as file:
            for order in orders:
                blocks = merged_removals(order, self.key, limits, limits.block)
                within = key_range([keys for _, keys in order.removals], self.key[0])
                runs.append((order, file.write(blocks, within, removes=True)))
        return runs

    def _write(self, orders: Sequence[FlushBatch]) -> None:
        schema = orders[0].batches[0].schema
        merge = Merge(self.key, self.ordering, self.rule)
        with self._new_file(schema) as file:
            for order in orders:
                keys_within = key_range(order.batches, self.key[0])
                blocks = merged_order(order, merge, self.limits, self.limits.block)
                self.runs.setdefault(order.group, []).append(file.write(blocks, keys_within))
                order.done()

    def _fold(self, group: Group) -> None:
        """Merge the runs of a bucket into one, so that never too many are open at once.

        What they remove makes another one, which comes first.
        """
        runs = self.runs[group]
        removals = [run for run in runs if run.removes]
        gone = [Source(map(SortedBatch, run.blocks())) for run in removals]
        keys_gone = _merged_keys(gone, self.key, self.limits, self.limits.block)
        folded = [self._new_run(keys_gone, removals)]
        merge = Merge(self.key, self.ordering, self.rule)
        blocks = (
            block
            for each in merge.rounds([run.source() for run in runs], self.limits.round)
            for block in kept_rows(each, self.limits.block)
        )
        folded.append(self._new_run(blocks, runs))
        self.runs[group] = [run for run in folded if run is not None]

    def _new_run(self, blocks: Iterator[pa.Table], of: Sequence[Run]) -> Run | None:
        """Write blocks that several runs were merged into; None if there are none."""
        first = next(blocks, None)
        if first is None:
            return None
        with self._new_file(first.schema) as file:
            within = hull([run.range for run in of])
            removes = all(run.removes for run in of)
            return file.write(itertools.chain([first], blocks), within, removes=removes)

    def _new_file(self, schema: pa.Schema) -> _RunFile:
        if self._place is None:
            self._place = Scratch("runs", self.directory)
        self._files += 1
        return _RunFile(self._place, f"{self._files:06d}.arrow", schema)

    def close(self) -> None:
        """Remove the directory."""
        self.runs.clear()
        if self._place is not None:
            self._place.close()
            self._place = None


@dataclass(slots=True)
class Incoming:
    """Reads the rows that came for a bucket as sorted sources; it can be read more than once."""

    sink: RunSink
    kept: dict[Group, FlushBatch] = field(default_factory=dict)

    def settle(self, buffer: Buffer) -> None:
        """Keep what is left in the buffer: it is sorted and can be merged where it is."""
        self.kept = {order.group: order for order in buffer.rest()}

    def groups(self) -> list[Group]:
        """Return the buckets that rows came for, in the order of their first flush."""
        return list(dict.fromkeys([*self.sink.runs, *self.kept]))

    def sources(self, group: Group, *, written: bool = False) -> list[Source]:
        """Return the rows and removals of a bucket, oldest first; none if nothing came for it.

        ``written``: rows have the hidden column, as those of files that they are merged with.
        """
        sources = [run.source() for run in self.sink.runs.get(group, ())]
        order = self.kept.get(group)
        sources += [] if order is None else pieces(order)
        return [_as_copied(each) for each in sources] if written else sources

    def rows(self, group: Group) -> int:
        """Count the rows and removals that came for a bucket, repeated ones too."""
        order = self.kept.get(group)
        removed = () if order is None else order.removals
        kept = 0 if order is None else order.rows + sum(keys.num_rows for _, keys in removed)
        return kept + sum(run.rows for run in self.sink.runs.get(group, ()))

    def forget(self, group: Group) -> None:
        """Free the memory of a bucket: nobody will ask for it again."""
        order = self.kept.pop(group, None)
        if order is not None:
            order.done()

    def range(self, group: Group) -> Range:
        """Return the range of the first key column of what came for a bucket."""
        column = self.sink.key[0]
        ranges = [run.range for run in self.sink.runs.get(group, ())]
        order = self.kept.get(group)
        if order is not None:
            removals = [keys for _, keys in order.removals]
            ranges += [key_range(each, column) for each in (order.batches, removals) if each]
        return hull(ranges)

    def close(self) -> None:
        """Drop everything."""
        for order in self.kept.values():
            order.done()
        self.kept.clear()
        self.sink.close()
