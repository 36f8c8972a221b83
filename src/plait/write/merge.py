"""Merge sorted sources block by block: vectorised, in bounded memory.

Each round takes from every source the rows up to a bound, so that all rows with one key meet in
one round. A round is one stable sort of a few sorted stretches.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.errors import DuplicateKeyError
from plait.files import keys
from plait.write.resolve import winners

Positions = npt.NDArray[np.uint64]
_ROW_BYTES: Final = 64
"""Key, positions and flags of a row while it is merged, beside its columns."""
_SAMPLE: Final = 5
_NONE: keys.Indices = np.zeros(0, dtype=np.int64)


class Rule(enum.Enum):
    """What becomes of a key that the table has and that comes in too."""

    REPLACE = "replace"
    """The row that comes in wins, unless the table's has a greater ordering field."""
    KEEP = "keep"
    """The table's row stays."""
    REFUSE = "refuse"
    """It is an error: see ``Round.met``."""
    REMOVE = "remove"
    """Neither stays."""
    ONCE = "once"
    """Rows that come in have different keys; it is an error if not."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in key order; with their positions in the file where that matters."""

    rows: pa.Table
    positions: Positions | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One sorted input. Sources that come later are newer; existing rows are the oldest."""

    blocks: Iterator[Block]
    existing: bool = False
    unique: bool = True
    """One row a key. If not, of equal keys the later row is the newer, and all is one block."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one source, with their keys."""

    rows: pa.Table
    positions: Positions | None
    keys: keys.Keys

    def cut(self, start: int, stop: int) -> Part:
        """Give a stretch, without a copy."""
        positions = None if self.positions is None else self.positions[start:stop]
        table = self.rows.slice(start, stop - start)
        return Part(table, positions, keys.part(self.keys, start, stop))


@dataclass(slots=True)
class _Cursor:
    source: Source
    key: Sequence[str]
    ready: deque[Part] = field(default_factory=deque)
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
                found = keys.encode(block.rows, self.key)
                self.ready.append(Part(block.rows, block.positions, found))

    @property
    def head(self) -> keys.Key:
        """The smallest key; only where rows are ready."""
        return keys.at(self.ready[0].keys, 0)

    def bound(self, size_bytes: int) -> keys.Key | None:
        """Give the key up to which so much reaches; None if there is no more than that."""
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

    def take(self, bound: keys.Key | None) -> list[Part]:
        taken: list[Part] = []
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
        return taken


@dataclass(frozen=True, slots=True)
class Round:
    """Rows of all sources up to a bound, oldest source first, and which of them stay."""

    rows: pa.Table
    order: keys.Indices | None
    """Positions of the rows that stay, in key order; None: all, as they are."""
    existing: int
    """So many of the rows, the first, were in the table."""
    met: keys.Indices
    """Positions of existing rows whose key came in too."""
    inserted: int
    updated: int
    origins: tuple[tuple[int, int, Positions | None], ...]
    """For each stretch of ``rows``: its source, its length, and its positions in the file."""

    def lost(self) -> Iterator[tuple[int, Positions]]:
        """Give for each source that has positions those of its rows that do not stay."""
        if self.order is None:
            return
        gone = np.ones(self.rows.num_rows, dtype=np.bool_)
        gone[self.order] = False
        start = 0
        for source, count, positions in self.origins:
            if positions is not None:
                hidden = positions[gone[start : start + count]]
                if len(hidden):
                    yield source, hidden
            start += count


@dataclass(frozen=True, slots=True)
class Merge:
    """How sources are merged."""

    key: Sequence[str]
    ordering: str | None
    rule: Rule

    def rounds(self, sources: Iterable[Source], size_bytes: int) -> Iterator[Round]:
        """Merge; take about ``size_bytes`` of memory at a time."""
        known = list(sources)
        for parts in aligned(known, self.key, size_bytes):
            yield self._decide(parts, known)

    def _decide(self, parts: list[tuple[int, Part]], sources: Sequence[Source]) -> Round:
        rows = pa.concat_tables([part.rows for _, part in parts])
        existing = sum(p.rows.num_rows for at, p in parts if sources[at].existing)
        origins = tuple((at, part.rows.num_rows, part.positions) for at, part in parts)
        if len({at for at, _ in parts}) == 1 and sources[parts[0][0]].unique:
            inserted = rows.num_rows - existing
            if self.rule is Rule.REMOVE and inserted:
                return Round(rows, _NONE, 0, _NONE, 0, 0, origins)
            return Round(rows, None, existing, _NONE, inserted, 0, origins)
        found = keys.concat([part.keys for _, part in parts])
        order = keys.merge_order(found)
        first = keys.starts(keys.take(found, order))
        if self.rule is Rule.ONCE and not first.all():
            twice = rows.select(list(self.key)).take(pa.array(order[~first][:_SAMPLE]))
            raise twice_error(twice.to_pylist(), None)
        begins = order[first]
        ends = order[np.append(first[1:], np.ones(1, dtype=np.bool_))]
        old, new = begins < existing, ends >= existing
        met = begins[old & new]
        if self.rule is Rule.REMOVE:
            return Round(rows, begins[~new], existing, met, 0, 0, origins)
        ranks = None
        if self.ordering is not None and not first.all():
            ranks = rows.column(self.ordering).combine_chunks()
        won = winners(order, first, ranks)
        if self.rule is not Rule.REPLACE:
            won[old] = begins[old]
        updated = int(np.count_nonzero(old & (won >= existing)))
        return Round(rows, won, existing, met, int(np.count_nonzero(~old)), updated, origins)


def twice_error(sample: list[dict[str, object]], partition: str | None) -> DuplicateKeyError:
    """Say that a merge's source has two rows of one key."""
    message = f"the source of the merge has more than one row of the key {sample[0]}"
    hint = "leave one row a key in the source: which of them counts is not for a merge to choose"
    return DuplicateKeyError(message, hint=hint, keys=sample, partition=partition)


def aligned(
    sources: Sequence[Source], key: Sequence[str], size_bytes: int
) -> Iterator[list[tuple[int, Part]]]:
    """Give what all sources have up to one key after another: rows with one key come together."""
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
