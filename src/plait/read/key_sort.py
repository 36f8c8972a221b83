"""Sort rows that stand in another order by record key, in bounded memory.

A file that clustering put in an order of columns is not sorted by key. Where its rows are joined by
key, parts of it are sorted in memory, and written as runs to the local disk if there are several;
then the runs are merged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from plait.files import keys
from plait.files.keys import Indices
from plait.read.join import SortedBatch, Source, aligned
from plait.storage.scratch import Scratch

SORT_BYTES: Final = 16 << 20
"""Rows that are sorted in memory at once."""
_FAN_IN: Final = 32
"""Number of runs that are merged into one on the way."""


def each_sorted(blocks: Iterable[SortedBatch], key: Sequence[str]) -> Iterator[SortedBatch]:
    """Sort each block by itself."""
    return (_in_order([block], key) for block in blocks if block.rows.num_rows)


def sorted_by_key(
    blocks: Iterable[SortedBatch], key: Sequence[str], size_bytes: int = SORT_BYTES
) -> Iterator[SortedBatch]:
    """Sort rows in any order by key; about ``size_bytes`` are in memory at a time.

    Raises:
        StorageError: the local disk is full or not there.
    """
    chunks = _chunks(blocks, key, size_bytes)
    first = list(itertools.islice(chunks, 2))
    if len(first) < 2:  # noqa: PLR2004 - one needs no run
        yield from first
        return
    with Scratch("sort") as scratch:
        runs = _Runs(scratch, key, size_bytes)
        while first:
            runs.add(iter([first.pop(0)]))
        for chunk in chunks:
            runs.add(iter([chunk]))
        yield from runs.merged()


def _chunks(
    blocks: Iterable[SortedBatch], key: Sequence[str], size_bytes: int
) -> Iterator[SortedBatch]:
    held: list[SortedBatch] = []
    size = 0
    for block in blocks:
        if block.rows.num_rows:
            held.append(block)
            size += block.rows.nbytes
        if size >= size_bytes:
            yield _in_order(held, key)
            held, size = [], 0
    if held:
        yield _in_order(held, key)


def _in_order(blocks: Sequence[SortedBatch], key: Sequence[str]) -> SortedBatch:
    rows = pa.concat_tables([block.rows for block in blocks])
    return _taken(blocks, rows, keys.sort_order(keys.encode(rows, key)))


def _taken(parts: Sequence[SortedBatch], rows: pa.Table, order: Indices) -> SortedBatch:
    positions = [part.positions for part in parts if part.positions is not None]
    chosen = rows.combine_chunks().take(pa.array(order))
    return SortedBatch(chosen, np.concatenate(positions)[order] if positions else None)


@dataclass(slots=True)
class _Runs:
    """Sorted runs in a directory; where rows have positions, these are the last column."""

    scratch: Scratch
    key: Sequence[str]
    size_bytes: int
    count: int = 0
    levels: list[list[str]] = field(default_factory=list)
    """Runs that were merged as often as the number of their level says."""
    placed: bool = False

    def add(self, blocks: Iterator[SortedBatch]) -> None:
        """Write a run."""
        self._put(0, self._write(blocks))

    def _put(self, level: int, run: str) -> None:
        """Keep a run. Many of one level become one of the next, so few are ever open at once.

        Each row is then written again as often as there are levels, which grows with the logarithm
        of the rows.
        """
        if level == len(self.levels):
            self.levels.append([])
        runs = self.levels[level]
        runs.append(run)
        if len(runs) == _FAN_IN:
            merged = self._write(self._merged(runs))
            for name in runs:
                self.scratch.remove(name)
            runs.clear()
            self._put(level + 1, merged)

    def _write(self, blocks: Iterator[SortedBatch]) -> str:
        name = f"{self.count:06d}.arrow"
        self.count += 1
        first = next(blocks)
        self.placed = first.positions is not None
        step = max(1, self.size_bytes // _FAN_IN)
        rows = _with_positions(first)
        with self.scratch.writer(name, rows.schema) as writer:
            for block in itertools.chain([rows], map(_with_positions, blocks)):
                width = max(1, block.nbytes // block.num_rows)
                writer.write(block, rows_max=max(1, step // width))
        return name

    def _read(self, name: str) -> Iterator[SortedBatch]:
        for batch in self.scratch.batches(name):
            rows = pa.Table.from_batches([batch])
            if not self.placed:
                yield SortedBatch(rows)
                continue
            last = rows.num_columns - 1
            yield SortedBatch(rows.remove_column(last), rows.column(last).to_numpy())

    def merged(self) -> Iterator[SortedBatch]:
        """Return the rows of all runs in the order of their keys."""
        return self._merged([run for runs in reversed(self.levels) for run in runs])  # oldest first

    def _merged(self, runs: Sequence[str]) -> Iterator[SortedBatch]:
        sources = [Source(self._read(name), unique=False) for name in runs]
        for parts in aligned(sources, self.key, self.size_bytes):
            order = keys.merge_order(keys.concat([part.keys for _, part in parts]))
            batches = [SortedBatch(part.rows, part.positions) for _, part in parts]
            yield _taken(batches, pa.concat_tables([each.rows for each in batches]), order)


def _with_positions(block: SortedBatch) -> pa.Table:
    if block.positions is None:
        return block.rows
    return block.rows.append_column("", pa.array(block.positions, pa.uint64()))
