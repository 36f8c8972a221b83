"""Read sources that are sorted by record key in step, and join two sides of them by key.

Rounds go up to a key that every source has reached, so that all rows with one key meet in one
round, and little more than a batch of each source is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from plait.errors import CorruptMetadataError
from plait.files import keys
from plait.files.keys import Indices
from plait.files.roaring import Positions

Origins: TypeAlias = tuple[tuple[int, int, Positions | None], ...]
"""For each stretch of some rows: its source, its length, and its positions in the file."""
_ROW_BYTES: Final = 64
"""Key, positions and flags of a row while it is merged, beside its columns."""


@dataclass(frozen=True, slots=True)
class SortedBatch:
    """Rows in key order; with their positions in the file where that matters."""

    rows: pa.Table
    positions: Positions | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One sorted input. Sources that come later are newer; existing rows are the oldest."""

    blocks: Iterator[SortedBatch]
    existing: bool = False
    unique: bool = True
    """One row a key. If not, the later row of a key is the newer; all of them come together."""
    removes: bool = False
    """Keys to remove, with every row of theirs that older sources have; no rows."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of one source, with their keys."""

    rows: pa.Table
    positions: Positions | None
    keys: keys.Keys

    def cut(self, start: int, stop: int) -> KeyedRows:
        """Return a stretch, without a copy."""
        positions = None if self.positions is None else self.positions[start:stop]
        table = self.rows.slice(start, stop - start)
        return KeyedRows(table, positions, keys.part(self.keys, start, stop))


@dataclass(slots=True)
class _Cursor:
    source: Source
    key: Sequence[str]
    ready: deque[KeyedRows] = field(default_factory=deque)
    held: int = 0
    """Rows that are ready."""
    width: int = _ROW_BYTES
    """Bytes that a row takes while it is merged."""
    ended: bool = False

    def fill(self, size_bytes: int) -> None:
        """Have so much ready, if there is so much."""
        while not self.ended and self.held * self.width < size_bytes:
            block = next(self.source.blocks, None)
            if block is None:
                self.ended = True
            elif block.rows.num_rows:
                rows = block.rows.num_rows
                self.width = block.rows.nbytes // rows + _ROW_BYTES
                self.held += rows
                encoded = keys.encode(block.rows, self.key)
                self.ready.append(KeyedRows(block.rows, block.positions, encoded))

    @property
    def head(self) -> keys.Key:
        """The smallest key; only where rows are ready."""
        return keys.at(self.ready[0].keys, 0)

    def bound(self, size_bytes: int) -> keys.Key | None:
        """Return the key up to which so much reaches; None if there is no more than that."""
        wanted = max(1, size_bytes // self.width)
        if self.ended and self.held <= wanted:
            return None
        left = min(wanted, self.held)
        for part in self.ready:
            rows = part.rows.num_rows
            if left <= rows:
                return keys.at(part.keys, left - 1)
            left -= rows
        return None

    def take(self, bound: keys.Key | None) -> list[KeyedRows]:
        taken: list[KeyedRows] = []
        while self.ready:
            part = self.ready[0]
            rows = part.rows.num_rows
            count = rows if bound is None else keys.count_until(part.keys, bound)
            if count == rows:
                taken.append(self.ready.popleft())
            elif count:
                taken.append(part.cut(0, count))
                self.ready[0] = part.cut(count, rows)
            self.held -= count
            if count < rows:
                break
            if not self.ready and not self.source.unique and bound is not None:
                self.fill(1)  # the next block may begin with the same key
        return taken


def aligned(
    sources: Sequence[Source], key: Sequence[str], size_bytes: int
) -> Iterator[list[tuple[int, KeyedRows]]]:
    """Return what all sources have up to one key after another: rows with one key come together."""
    cursors = [_Cursor(source, key) for source in sources]
    while True:
        bound = _next_bound(cursors, size_bytes)
        parts = [(at, part) for at, each in enumerate(cursors) for part in each.take(bound)]
        if not parts:
            return
        yield parts


def _next_bound(cursors: Sequence[_Cursor], size_bytes: int) -> keys.Key | None:
    """Choose the key up to which the next round goes; None: to the end.

    Each source gives an equal share. Sources that begin beyond it leave theirs to the others, so
    that sorted input, whose sources follow each other, is not taken in crumbs.
    """
    share = max(1, size_bytes // max(1, len(cursors)))
    for cursor in cursors:
        cursor.fill(share)
    live = [cursor for cursor in cursors if cursor.ready]
    bounds = [bound for cursor in live if (bound := cursor.bound(share)) is not None]
    if not bounds:
        return None
    first = min(bounds)
    early = [cursor for cursor in live if cursor.head <= first]
    late = [cursor for cursor in live if cursor.head > first]
    larger = size_bytes // len(early)
    for cursor in early:
        cursor.fill(larger)
    shares = [*((cursor, larger) for cursor in early), *((cursor, share) for cursor in late)]
    bounds = [bound for cursor, size in shares if (bound := cursor.bound(size)) is not None]
    return min(bounds) if bounds else None


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Rows of both sides up to some key, and which of them have one key."""

    old: pa.Table
    new: pa.Table
    old_at: Indices
    """By key, in order: where its row stands in ``old``; -1 if there is none."""
    new_at: Indices
    """The same for ``new``."""
    repeated: Indices
    """Where in ``new`` rows stand that have the key of another one."""
    origins: Origins
    """Origins of the rows of ``old``."""


def file_positions(origins: Origins, at: Indices) -> Iterator[tuple[int, Positions]]:
    """Return, for each source with positions, where some of the rows stand in its file."""
    start = 0
    ordered = np.sort(at)
    for source, count, positions in origins:
        low, high = np.searchsorted(ordered, [start, start + count])
        if positions is not None and high > low:
            yield source, positions[ordered[low:high] - start]
        start += count


def joined(
    old: Sequence[Source], new: Sequence[Source], key: Sequence[str], size_bytes: int
) -> Iterator[JoinedRows]:
    """Join two sides on the record key, about ``size_bytes`` at a time.

    Raises:
        CorruptMetadataError: the old side has a key twice (INV-08).
    """
    for parts in aligned([*old, *new], key, size_bytes):
        count = sum(1 for at, _ in parts if at < len(old))
        yield _joined([part for _, part in parts], parts[:count])


def _joined(parts: Sequence[KeyedRows], old: Sequence[tuple[int, KeyedRows]]) -> JoinedRows:
    """Join parts, those of the old side first."""
    tables = [part.rows for part in parts]
    order, first = keys.grouped(keys.concat([part.keys for part in parts]))
    count = sum(part.rows.num_rows for _, part in old)
    is_old, number = order < count, np.cumsum(first) - 1
    sides = []
    for flags, start in ((is_old, 0), (~is_old, count)):
        at: Indices = np.full(int(number[-1]) + 1, -1, dtype=np.int64)
        at[number[flags]] = order[flags] - start
        sides.append(at)
    again = order[1:][~first[1:] & (is_old[1:] == is_old[:-1])]
    if len(again) and again.min() < count:
        raise repeated_key()
    return JoinedRows(
        old=_table(tables[: len(old)]),
        new=_table(tables[len(old) :]),
        old_at=sides[0],
        new_at=sides[1],
        repeated=again - count,
        origins=tuple((at, part.rows.num_rows, part.positions) for at, part in old),
    )


def repeated_key() -> CorruptMetadataError:
    """Return the error for a side of which the table shows a key twice."""
    message = "a record key occurs twice in one bucket"
    hint = "run tablectl verify"
    return CorruptMetadataError(message, hint=hint, expected="one row a key", found="more")


def _table(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts) if parts else pa.table({})
