"""A few keys that came in, to leave out of a large file every row that has none of them.

Masking needs only the rows that meet others. So a small upsert looks each of its keys up in the
sorted keys of a file, and merges what it found, in place of all rows of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.merge import SortedBatch, Source
from plait.files import keys


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Keys in their order."""

    key: Sequence[str]
    wanted: keys.Keys

    @classmethod
    def of(
        cls, blocks: Iterable[SortedBatch], key: Sequence[str], size_max: int
    ) -> KeyFilter | None:
        """Collect the keys of blocks, of which there is one at least; None if they are too many.

        It takes three times ``size_max`` bytes while it puts them in order.
        """
        parts: list[keys.Keys] = []
        size = 0
        for block in blocks:
            parts.append(keys.encode(block.rows, key))
            size += parts[-1].nbytes
            if size > size_max:
                return None
        found = keys.concat(parts)
        return cls(key, keys.take(found, keys.merge_order(found)))

    def source(self, source: Source) -> Source:
        """Return a source of those rows whose key is wanted."""
        return replace(source, blocks=self._sifted(source.blocks))

    def _sifted(self, blocks: Iterator[SortedBatch]) -> Iterator[SortedBatch]:
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
        places = np.minimum(np.searchsorted(there, asked), len(there) - 1)
        found = places[there[places] == asked]
        once: keys.Indices = found[keys.starts(found)]
        return once
