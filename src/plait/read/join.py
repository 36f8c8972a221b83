"""Set sorted rows from before a commit against those from after it, key by key.

Rounds go up to a key that every source has reached, so that all rows with one key meet in one
round, and no more than a batch of each source is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.errors import CorruptMetadataError
from plait.files import keys
from plait.files.keys import Indices

Blocks = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Rows of one round, and which of them have one key."""

    rows: pa.Table
    first: Indices
    """By key, in order: the place of the row from before, or, where there is none, of the other."""
    last: Indices
    """The place of the row from after; where there is none, of the other."""
    before: npt.NDArray[np.bool_]
    """Whether the key was there before."""
    after: npt.NDArray[np.bool_]


def joined(
    before: Sequence[Blocks], after: Sequence[Blocks], key: Sequence[str]
) -> Iterator[JoinedRows]:
    """Join sources that are sorted by key; each side has a key at most once.

    Raises:
        CorruptMetadataError: a side has a key twice (INV-08).
    """
    cursors = [*(_SourceCursor(b, key, after=False) for b in before)]
    cursors += [_SourceCursor(b, key, after=True) for b in after]
    while live := [cursor for cursor in cursors if cursor.fill()]:
        bound = min(keys.at(cursor.keys, -1) for cursor in live)
        parts = [(cursor.after, *cursor.take(bound)) for cursor in live]
        yield _meet([part for part in parts if part[1].num_rows])


def _meet(parts: Sequence[tuple[bool, pa.RecordBatch, keys.Keys]]) -> JoinedRows:
    """Group rows by key; those from before come first in every group."""
    rows = pa.Table.from_batches([batch for _, batch, _ in parts]).combine_chunks()
    old = sum(batch.num_rows for after, batch, _ in parts if not after)
    found = keys.concat([each for _, _, each in parts])
    order = keys.merge_order(found)
    begins = keys.starts(keys.take(found, order))
    first = order[begins]
    last = order[np.append(begins[1:], np.ones(1, dtype=np.bool_))]
    before, after = first < old, last >= old
    if len(order) != int(before.sum() + after.sum()):
        message = "a record key is there twice in one bucket"
        hint = "run tablectl verify"
        raise CorruptMetadataError(message, hint=hint, expected="one row a key", found="more")
    return JoinedRows(rows, first, last, before, after)


class _SourceCursor:
    """One source, and how far it has been read."""

    def __init__(self, blocks: Blocks, key: Sequence[str], *, after: bool) -> None:
        self.after = after
        self._blocks, self._key = blocks, key
        self._rows: pa.RecordBatch | None = None
        self.keys: keys.Keys = np.zeros(0, dtype=np.int64)

    def fill(self) -> bool:
        """Have a row ready; tell whether there is one."""
        while self._rows is None or not self._rows.num_rows:
            self._rows = next(self._blocks, None)
            if self._rows is None:
                return False
            self.keys = keys.encode(self._rows, self._key)
        return True

    def take(self, bound: keys.Key) -> tuple[pa.RecordBatch, keys.Keys]:
        """Return the rows up to a key, and keep the others."""
        rows, found = self._rows, self.keys
        if rows is None:
            message = "nothing was filled in"
            raise ValueError(message)
        count = keys.count_until(found, bound)
        self._rows = rows.slice(count)
        self.keys = keys.part(found, count, rows.num_rows)
        return rows.slice(0, count), keys.part(found, 0, count)
