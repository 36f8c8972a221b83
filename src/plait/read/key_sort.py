"""Sort rows that stand in another order by record key, in bounded memory.

A file that clustering put in an order of columns is not sorted by key. Where its rows are joined by
key, parts of it are sorted in memory, and written as runs to the local disk if there are several;
then the runs are merged.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from plait.errors import StorageError
from plait.files import keys
from plait.files.keys import Indices
from plait.read.join import SortedBatch, Source, aligned

SORT_BYTES: Final = 16 << 20
"""Rows that are sorted in memory at once."""
_FAN_IN: Final = 32
"""Number of runs that are merged into one on the way."""


@contextmanager
def spilling() -> Iterator[None]:
    """Raise what goes wrong with files on the local disk as StorageError."""
    try:
        yield
    except OSError as error:
        message = f"cannot spill rows to a local directory: {error}"
        hint = "free space there, or set TMPDIR to a larger disk"
        raise StorageError(message, hint=hint, path="") from error


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
    with spilling(), tempfile.TemporaryDirectory(prefix="plait-sort-") as folder:
        runs = _Runs(Path(folder), key, size_bytes)
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

    folder: Path
    key: Sequence[str]
    size_bytes: int
    count: int = 0
    levels: list[list[Path]] = field(default_factory=list)
    """Runs that were merged as often as the number of their level says."""
    placed: bool = False

    def add(self, blocks: Iterator[SortedBatch]) -> None:
        """Write a run."""
        self._put(0, self._write(blocks))

    def _put(self, level: int, run: Path) -> None:
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
            for path in runs:
                path.unlink()
            runs.clear()
            self._put(level + 1, merged)

    def _write(self, blocks: Iterator[SortedBatch]) -> Path:
        path = self.folder / f"{self.count:06d}.arrow"
        self.count += 1
        first = next(blocks)
        self.placed = first.positions is not None
        step = max(1, self.size_bytes // _FAN_IN)
        with pa.OSFile(str(path), "wb") as sink:
            rows = _with_positions(first)
            with pa.ipc.new_file(sink, rows.schema) as writer:
                for block in itertools.chain([rows], map(_with_positions, blocks)):
                    width = max(1, block.nbytes // block.num_rows)
                    writer.write_table(block, max_chunksize=max(1, step // width))
        return path

    def _read(self, path: Path) -> Iterator[SortedBatch]:
        with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
            for at in range(reader.num_record_batches):
                rows = pa.Table.from_batches([reader.get_batch(at)])
                if not self.placed:
                    yield SortedBatch(rows)
                    continue
                last = rows.num_columns - 1
                yield SortedBatch(rows.remove_column(last), rows.column(last).to_numpy())

    def merged(self) -> Iterator[SortedBatch]:
        """Return the rows of all runs in the order of their keys."""
        return self._merged([run for runs in reversed(self.levels) for run in runs])  # oldest first

    def _merged(self, runs: Sequence[Path]) -> Iterator[SortedBatch]:
        sources = [Source(self._read(path), unique=False) for path in runs]
        for parts in aligned(sources, self.key, self.size_bytes):
            order = keys.merge_order(keys.concat([part.keys for _, part in parts]))
            batches = [SortedBatch(part.rows, part.positions) for _, part in parts]
            yield _taken(batches, pa.concat_tables([each.rows for each in batches]), order)


def _with_positions(block: SortedBatch) -> pa.Table:
    if block.positions is None:
        return block.rows
    return block.rows.append_column("", pa.array(block.positions, pa.uint64()))
