"""A few keys that came in, looked up in many rows of the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.files import keys
from plait.files.data_file import LiveFile
from plait.files.hash import Hashes, key_hashes, sorted_once
from plait.model.order import KEY_ORDER
from plait.read.join import SortedBatch, Source


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A few keys that came in, to leave out of a large file every row that has none of them.

    Masking needs only the rows that meet others. So a small upsert looks each of its keys up in
    the sorted keys of a file, and merges what it found, in place of all rows of the file.
    """

    key: Sequence[str]
    wanted: keys.Keys
    hashes: Hashes | None = None
    """The hashes of the keys, each once, for files that are not sorted by key."""

    @classmethod
    def of(
        cls,
        blocks: Iterable[SortedBatch],
        key: Sequence[str],
        size_max: int,
        *,
        hashed: bool = False,
    ) -> KeyFilter | None:
        """Collect the keys of blocks, of which there is one at least; None if they are too many.

        It takes three times ``size_max`` bytes while it puts them in order.
        """
        parts: list[keys.Keys] = []
        hashes: list[Hashes] = []
        size = 0
        for block in blocks:
            parts.append(keys.encode(block.rows, key))
            if hashed:
                hashes.append(key_hashes(block.rows, key))
            size += parts[-1].nbytes
            if size > size_max:
                return None
        wanted = keys.concat(parts)
        known = sorted_once(np.concatenate(hashes)) if hashed else None
        return cls(key, keys.take(wanted, keys.merge_order(wanted)), known)

    @classmethod
    def for_unsorted(
        cls,
        files: Iterable[LiveFile],
        incoming: Iterable[Source],
        key: Sequence[str],
        size_max: int,
    ) -> KeyFilter | None:
        """Collect the keys that came in, if a file is not sorted by key; see ``of``.

        There it pays however many they are: what is left of the file must be sorted.
        """
        if all(file.order == KEY_ORDER for file in files):
            return None
        blocks = (block for source in incoming for block in source.blocks)
        return cls.of(blocks, key, size_max, hashed=True)

    def sift(self, blocks: Iterator[SortedBatch]) -> Iterator[SortedBatch]:
        """Return those rows whose key is wanted; each block is sorted by key."""
        for block in blocks:
            if not block.rows.num_rows:
                continue
            at = self._find(keys.encode(block.rows, self.key))
            if len(at):
                positions = None if block.positions is None else block.positions[at]
                yield SortedBatch(block.rows.take(pa.array(at)), positions)

    def _find(self, there: keys.Keys) -> keys.Indices:
        """Return the positions of rows with a wanted key; ``there`` is sorted."""
        if not isinstance(there, np.ndarray):
            low = max(0, keys.count_until(self.wanted, keys.at(there, 0)) - 1)
            high = keys.count_until(self.wanted, keys.at(there, -1))
            asked = keys.part(self.wanted, low, high)
            among: keys.Indices = np.flatnonzero(pc.is_in(there, value_set=asked))
            return among
        first, last = np.searchsorted(self.wanted, there[[0, -1]])
        asked = self.wanted[first : last + 1]
        if len(asked) > len(there):  # the shorter side is searched in the longer one
            known: keys.Indices = np.flatnonzero(asked[_places(there, asked)] == there)
            return known
        places = _places(asked, there)
        hits = places[there[places] == asked]
        once: keys.Indices = hits[keys.starts(hits)]
        return once


def _places(some: keys.Numbers, among: keys.Numbers) -> keys.Indices:
    """Return where each of some keys stands among others, which are sorted, if it is there."""
    places: keys.Indices = np.minimum(np.searchsorted(among, some), len(among) - 1)
    return places
