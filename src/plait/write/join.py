"""Bring rows of a table and rows that come in together by key: the heart of a merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.files import keys
from plait.model.bucket import BucketId, partition_text
from plait.write.blocks import combined
from plait.write.merge import Part, Positions, Source, aligned, twice_error

_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Meeting:
    """Rows of both sides up to some key; each key at most once on each side."""

    old: pa.Table
    new: pa.Table
    groups: int
    """Keys that there are."""
    of_old: keys.Indices
    """For each old row the number of its key, in the order of keys."""
    of_new: keys.Indices
    matched_old: keys.Indices
    """Positions of the old rows whose key came in, and ..."""
    matched_new: keys.Indices
    """... of the new rows that they meet, in the same order."""
    only_old: keys.Indices
    only_new: keys.Indices
    origins: tuple[tuple[int, int, Positions | None], ...]
    """For each stretch of the old rows: its source, its length, its positions in the file."""

    def positions(self, at: keys.Indices) -> Iterator[tuple[int, Positions]]:
        """Give for each source where some of the old rows stand in its file."""
        start = 0
        ordered = np.sort(at)
        for source, count, positions in self.origins:
            low, high = np.searchsorted(ordered, [start, start + count])
            if positions is not None and high > low:
                yield source, positions[ordered[low:high] - start]
            start += count


@dataclass(frozen=True, slots=True)
class Join:
    """Joins the sorted sources of a bucket on the record key, in bounded memory."""

    key: Sequence[str]
    bucket: BucketId
    """For errors."""

    def meetings(
        self, old: Sequence[Source], new: Sequence[Source], size_bytes: int
    ) -> Iterator[Meeting]:
        """Give what meets, about ``size_bytes`` at a time.

        Raises:
            DuplicateKeyError: two rows that came in have one key.
        """
        for parts in aligned([*old, *new], self.key, size_bytes):
            yield self._meeting(parts, len(old))

    def _meeting(self, parts: list[tuple[int, Part]], count: int) -> Meeting:
        there = [(at, part) for at, part in parts if at < count]
        came = [part for at, part in parts if at >= count]
        found = keys.concat([*(part.keys for _, part in there), *(part.keys for part in came)])
        order = keys.merge_order(found)
        number = np.cumsum(keys.starts(keys.take(found, order))) - 1
        numbers: keys.Indices = np.empty(len(order), dtype=np.int64)
        numbers[order] = number
        rows = sum(part.rows.num_rows for _, part in there)
        of_old, of_new = numbers[:rows], numbers[rows:]
        groups = int(number[-1]) + 1
        new = _table([part.rows for part in came])
        self._require_one(new, of_new, groups)
        old_of: keys.Indices = np.full(groups, -1, dtype=np.int64)
        old_of[of_old] = np.arange(rows)
        met = old_of[of_new]
        hit: npt.NDArray[np.bool_] = met >= 0
        alone = np.ones(rows, dtype=np.bool_)
        alone[met[hit]] = False
        return Meeting(
            old=_table([part.rows for _, part in there]),
            new=new,
            groups=groups,
            of_old=of_old,
            of_new=of_new,
            matched_old=met[hit],
            matched_new=np.flatnonzero(hit),
            only_old=np.flatnonzero(alone),
            only_new=np.flatnonzero(~hit),
            origins=tuple((at, part.rows.num_rows, part.positions) for at, part in there),
        )

    def _require_one(self, new: pa.Table, of_new: keys.Indices, groups: int) -> None:
        counts = np.bincount(of_new, minlength=groups)
        if not (counts > 1).any():
            return
        twice = np.flatnonzero(counts > 1)
        first = [int(np.flatnonzero(of_new == number)[0]) for number in twice[:_SAMPLE]]
        sample = new.select(list(self.key)).take(pa.array(first)).to_pylist()
        raise twice_error(sample, partition_text(self.bucket[0]))


def _table(parts: Sequence[pa.Table]) -> pa.Table:
    if not parts:
        return pa.table({})
    return combined(pa.concat_tables(parts))
