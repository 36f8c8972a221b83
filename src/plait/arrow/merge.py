"""Merge sorted sources round by round: vectorised, in bounded memory.

All rows with one key meet in one round (``read/join.py``), which is one stable sort of a few sorted
stretches.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import DuplicateKeyError
from plait.files import keys
from plait.files.keys import Indices
from plait.files.roaring import Positions
from plait.model.value import plain_rows
from plait.read.join import KeyedRows, Origins, Source, aligned, file_positions

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


def last_removals(numbers: Indices, removes: Flags) -> tuple[Indices, Flags]:
    """Return the place of the last removal of each key (-1: none), and which rows come after it.

    Of rows and removals in the order in which they came, ``numbers`` has the number of the key and
    ``removes`` tells the removals.

    >>> last, stays = last_removals(np.array([0, 1, 0, 0]), np.array([False, False, True, False]))
    >>> last.tolist(), stays.tolist()
    ([2, -1], [False, True, False, True])
    """
    last: Indices = np.full(int(numbers.max(initial=-1)) + 1, -1, dtype=np.int64)
    at = np.arange(len(numbers))
    last[numbers[removes]] = at[removes]  # of several, the last one that is assigned
    return last, ~removes & (at > last[numbers])


_SAMPLE: Final = 5
_NONE: keys.Indices = np.zeros(0, dtype=np.int64)
_REMOVES, _EXISTING = operator.attrgetter("removes"), operator.attrgetter("existing")
_POSITIONS = operator.attrgetter("positions")


class DuplicateRule(enum.Enum):
    """What becomes of a key that the table has and that comes in too."""

    REPLACE = "replace"
    """The row that comes in wins, unless the table's has a greater ordering field."""
    KEEP = "keep"
    """The table's row stays. Without ordering, of rows that come in the first does."""
    REFUSE = "refuse"
    """Refuse such keys; see ``Round.existing_matched``. Without ordering, repeated keys too."""
    REMOVE = "remove"
    """Neither stays."""
    ONCE = "once"
    """Rows that come in have different keys; it is an error if not."""


@dataclass(frozen=True, slots=True)
class Round:
    """Rows of all sources up to a bound, oldest source first, and which of them stay."""

    rows: pa.Table
    order: keys.Indices | None
    """Positions of the rows that stay, in key order; None: all, as they are."""
    existing: int
    """Number of leading rows that were in the table already."""
    existing_matched: keys.Indices
    """Positions of existing rows whose key came in too."""
    inserted: int
    updated: int
    origins: Origins
    idle: keys.Indices = field(default_factory=lambda: _NONE)
    """Positions of rows, one a key, whose key came in and changed nothing."""
    gone: keys.Indices = field(default_factory=lambda: _NONE)
    """Positions of existing rows that were removed, and that no other row replaces."""
    absent: pa.Table | None = None
    """Keys that were removed, and that neither the table has nor a later row."""

    def arrived(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of the rows that came in and stay."""
        rows = self.rows.select(names)
        if self.order is None:
            return rows.slice(self.existing)
        return rows.take(pa.array(self.order[self.order >= self.existing]))

    def removed(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of the existing rows that were removed, and are not replaced."""
        return self.rows.select(names).take(pa.array(self.gone))

    def unchanged(self, names: Sequence[str]) -> pa.Table:
        """Return some columns, of those of the key, of each key that changed nothing."""
        rows = self.rows.select(names)
        idle = rows.take(pa.array(self.idle)) if len(self.idle) else rows.slice(0, 0)
        return idle if self.absent is None else pa.concat_tables([idle, self.absent.select(names)])

    def lost(self) -> Iterator[tuple[int, Positions]]:
        """Return, for each source with positions, the positions of its rows that do not stay."""
        if self.order is None:
            return
        gone = np.ones(self.rows.num_rows, dtype=np.bool_)
        gone[self.order] = False
        yield from file_positions(self.origins, np.flatnonzero(gone))


@dataclass(frozen=True, slots=True)
class Merge:
    """How sources are merged."""

    key: Sequence[str]
    ordering: str | None
    rule: DuplicateRule

    def rounds(self, sources: Iterable[Source], size_bytes: int) -> Iterator[Round]:
        """Merge; take about ``size_bytes`` of memory at a time."""
        known = list(sources)
        if any(map(_REMOVES, known)):
            size_bytes //= 2  # for the numbers that tell what came after the last removal
        for parts in aligned(known, self.key, size_bytes):
            yield self._decide(parts, known)

    def _decide(self, parts: list[tuple[int, KeyedRows]], sources: Sequence[Source]) -> Round:
        numbers, pieces = zip(*parts, strict=True)
        owners = [sources[at] for at in numbers]
        if any(map(_REMOVES, owners)):
            return self._decide_removing(parts, sources)
        counts = [part.rows.num_rows for part in pieces]
        rows = pa.concat_tables([part.rows for part in pieces])
        existing = sum(compress(counts, map(_EXISTING, owners)))
        origins = tuple(zip(numbers, counts, map(_POSITIONS, pieces), strict=True))
        if len(set(numbers)) == 1 and owners[0].unique:
            inserted = rows.num_rows - existing
            if self.rule is DuplicateRule.REMOVE and inserted:
                every: keys.Indices = np.arange(inserted)
                return Round(rows, _NONE, 0, _NONE, 0, 0, origins, every)
            return Round(rows, None, existing, _NONE, inserted, 0, origins)
        order, first = keys.grouped(keys.concat([part.keys for part in pieces]))
        self._require_once(rows, order, first, existing)
        begins = order[first]
        ends = order[np.append(first[1:], np.ones(1, dtype=np.bool_))]
        old, new = begins < existing, ends >= existing
        matched = begins[old & new]
        if self.rule is DuplicateRule.REMOVE:
            return Round(rows, begins[~new], existing, matched, 0, 0, origins, begins[~old])
        ranks = self._ranks(rows, first)
        won = winners(order, first, ranks)
        if self.rule is DuplicateRule.KEEP and ranks is None:
            won = begins
        if self.rule is not DuplicateRule.REPLACE:
            won[old] = begins[old]
        updated = int(np.count_nonzero(old & (won >= existing)))
        idle = won[old & new & (won < existing)]
        return Round(
            rows, won, existing, matched, int(np.count_nonzero(~old)), updated, origins, idle
        )

    def _decide_removing(
        self, parts: list[tuple[int, KeyedRows]], sources: Sequence[Source]
    ) -> Round:
        """Decide where keys were removed: of each, only what came after its last removal counts."""
        flags = [sources[at].removes for at, _ in parts]
        removes = np.repeat(flags, [part.rows.num_rows for _, part in parts])
        removals = pa.concat_tables([p.rows.select(self.key) for _, p in compress(parts, flags)])
        came = [(at, part) for at, part in parts if not sources[at].removes]
        rows = pa.concat_tables([p.rows for _, p in came]) if came else removals.slice(0, 0)
        existing = sum(part.rows.num_rows for at, part in came if sources[at].existing)
        order, first = keys.grouped(keys.concat([part.keys for _, part in parts]))
        number: keys.Indices = np.empty(len(order), dtype=np.int64)
        number[order] = np.cumsum(first) - 1
        last, stays = last_removals(number, removes)
        place = np.cumsum(~removes) - 1  # among the rows; of a removal: that of the row before
        begins, kept = order[first], order[stays[order]]
        old = ~removes[begins] & (place[begins] < existing)
        of_kept = number[kept]
        del order, first, number, stays
        starts = keys.starts(of_kept)
        won = winners(place[kept], starts, self._ranks(rows, starts))
        whose = of_kept[starts]
        new, several = won >= existing, np.bincount(of_kept, minlength=len(last)) > 1
        left = np.zeros(len(last), dtype=np.bool_)
        left[whose] = True
        absent = last[~old & ~left]
        return Round(
            rows,
            won,
            existing,
            _NONE,
            int(np.count_nonzero(new & ~old[whose])),
            int(np.count_nonzero(new & old[whose])),
            tuple((at, part.rows.num_rows, part.positions) for at, part in came),
            idle=won[~new & several[whose]],
            gone=place[begins[old & ~left]],
            absent=removals.take(pa.array(absent - place[absent] - 1)),
        )

    def _ranks(self, rows: pa.Table, first: Flags) -> pa.Array | None:
        """Return what chooses between rows of one key, if there are any."""
        if self.ordering is None or first.all():
            return None
        return rows.column(self.ordering).combine_chunks()

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
            raise twice_error(rows.select(list(self.key)).take(pa.array(twice)), None)


def twice_error(repeated: pa.Table, partition: str | None) -> DuplicateKeyError:
    """Return the error for keys that several rows of one write have."""
    once = dict.fromkeys(tuple(row.items()) for row in plain_rows(repeated))
    sample = [dict(pairs) for pairs in once][:_SAMPLE]
    message = f"the input has several rows with the key {sample[0]}"
    hint = (
        "leave one row a key in the input; in a table with an ordering column insert takes the "
        "greatest, and upsert takes the last where there is none"
    )
    return DuplicateKeyError(message, hint=hint, keys=sample, partition=partition)
