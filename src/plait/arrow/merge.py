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
import pyarrow.compute as pc

from plait.errors import DuplicateKeyError
from plait.files import keys
from plait.files.keys import Indices

Flags = npt.NDArray[np.bool_]


def winners(order: Indices, first: Flags, ranks: pa.Array | None) -> Indices:
    """Return the position of the row that wins in each group of equal keys, in key order.

    ``order`` lists positions by key, of equal keys the newer later; ``first`` tells where a
    group begins. The row with the greatest rank (the ordering field; null is less than all)
    wins, of equal ranks the newest; without ranks the newest.

    >>> order, first = np.array([0, 2, 1]), np.array([True, False, True])
    >>> winners(order, first, None).tolist()
    [2, 1]
    >>> winners(order, first, pa.array([5, 1, 4])).tolist()
    [0, 1]
    """
    begins: Indices = np.flatnonzero(first)
    if len(begins) == len(order):
        return order
    ends = np.append(begins[1:], len(order)) - 1
    won: Indices = order[ends]
    if ranks is None:
        return won
    several = ends > begins
    group = np.cumsum(first) - 1
    inside = several[group]
    rivals, group = order[inside], group[inside]
    rank = ranks.take(pa.array(rivals))
    table = pa.table({"group": group, "known": rank.is_valid(), "rank": rank})
    # Stable: of equal ranks the newer stays behind the older.
    ascending = pc.sort_indices(table, sort_keys=[(n, "ascending") for n in table.column_names])
    ascending = ascending.to_numpy()
    grouped = group[ascending]
    last = np.append(grouped[1:] != grouped[:-1], np.ones(1, dtype=np.bool_))
    won[several] = rivals[ascending[last]]
    return won


Positions = npt.NDArray[np.uint64]
_ROW_BYTES: Final = 64
"""Key, positions and flags of a row while it is merged, beside its columns."""
_SAMPLE: Final = 5
_NONE: keys.Indices = np.zeros(0, dtype=np.int64)


class DuplicateRule(enum.Enum):
    """What becomes of a key that the table has and that comes in too."""

    REPLACE = "replace"
    """The row that comes in wins, unless the table's has a greater ordering field."""
    KEEP = "keep"
    """The table's row stays. Without ordering, of rows that come in the first does."""
    REFUSE = "refuse"
    """It is an error: see ``Round.met``. Without ordering, so is a key that comes in twice."""
    REMOVE = "remove"
    """Neither stays."""
    ONCE = "once"
    """Rows that come in have different keys; it is an error if not."""


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
    """One row a key. If not, of equal keys the later row is the newer, and all is one block."""


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
                found = keys.encode(block.rows, self.key)
                self.ready.append(KeyedRows(block.rows, block.positions, found))

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
    idle: keys.Indices = field(default_factory=lambda: _NONE)
    """Positions of rows, one a key, whose key came in and changed nothing."""

    def arrived(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of the rows that came in and stay."""
        rows = self.rows.select(names)
        if self.order is None:
            return rows.slice(self.existing)
        return rows.take(pa.array(self.order[self.order >= self.existing]))

    def unchanged(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of a row of each key that came in and changed nothing."""
        rows = self.rows.select(names)
        return rows.take(pa.array(self.idle)) if len(self.idle) else rows.slice(0, 0)

    def lost(self) -> Iterator[tuple[int, Positions]]:
        """Return, for each source with positions, the positions of its rows that do not stay."""
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
    rule: DuplicateRule

    def rounds(self, sources: Iterable[Source], size_bytes: int) -> Iterator[Round]:
        """Merge; take about ``size_bytes`` of memory at a time."""
        known = list(sources)
        for parts in aligned(known, self.key, size_bytes):
            yield self._decide(parts, known)

    def _decide(self, parts: list[tuple[int, KeyedRows]], sources: Sequence[Source]) -> Round:
        rows = pa.concat_tables([part.rows for _, part in parts])
        existing = sum(p.rows.num_rows for at, p in parts if sources[at].existing)
        origins = tuple((at, part.rows.num_rows, part.positions) for at, part in parts)
        if len({at for at, _ in parts}) == 1 and sources[parts[0][0]].unique:
            inserted = rows.num_rows - existing
            if self.rule is DuplicateRule.REMOVE and inserted:
                every: keys.Indices = np.arange(inserted)
                return Round(rows, _NONE, 0, _NONE, 0, 0, origins, every)
            return Round(rows, None, existing, _NONE, inserted, 0, origins)
        found = keys.concat([part.keys for _, part in parts])
        order = keys.merge_order(found)
        first = keys.starts(keys.take(found, order))
        self._require_once(rows, order, first, existing)
        begins = order[first]
        ends = order[np.append(first[1:], np.ones(1, dtype=np.bool_))]
        old, new = begins < existing, ends >= existing
        met = begins[old & new]
        if self.rule is DuplicateRule.REMOVE:
            return Round(rows, begins[~new], existing, met, 0, 0, origins, begins[~old])
        ranks = None
        if self.ordering is not None and not first.all():
            ranks = rows.column(self.ordering).combine_chunks()
        won = winners(order, first, ranks)
        if self.rule is DuplicateRule.KEEP and ranks is None:
            won = begins
        if self.rule is not DuplicateRule.REPLACE:
            won[old] = begins[old]
        updated = int(np.count_nonzero(old & (won >= existing)))
        idle = won[old & new & (won < existing)]
        return Round(rows, won, existing, met, int(np.count_nonzero(~old)), updated, origins, idle)

    def _require_once(
        self, rows: pa.Table, order: keys.Indices, first: Flags, existing: int
    ) -> None:
        """Refuse two rows of one key among those that came in, where nothing chooses one."""
        if self.rule is not DuplicateRule.ONCE and (
            self.rule is not DuplicateRule.REFUSE or self.ordering
        ):
            return
        # The table has a key once, and its row is the first of the group.
        twice = order[1:][~first[1:] & (order[:-1] >= existing)]
        if len(twice):
            sample = rows.select(list(self.key)).take(pa.array(twice)).to_pylist()
            once = [dict(pairs) for pairs in dict.fromkeys(tuple(row.items()) for row in sample)]
            raise twice_error(once[:_SAMPLE], None)


def twice_error(sample: list[dict[str, object]], partition: str | None) -> DuplicateKeyError:
    """Say that rows of one write have one key."""
    message = f"more than one row that came in has the key {sample[0]}"
    hint = (
        "leave one row a key in the input; in a table with an ordering column insert takes the "
        "greatest, and upsert takes the last where there is none"
    )
    return DuplicateKeyError(message, hint=hint, keys=sample, partition=partition)


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
