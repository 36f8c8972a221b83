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

from plait.files import keys
from plait.write.merge import Block, Source


@dataclass(frozen=True, slots=True)
class Sieve:
    """Keys in their order."""

    key: Sequence[str]
    wanted: keys.Keys

    @classmethod
    def of(cls, blocks: Iterable[Block], key: Sequence[str]) -> Sieve:
        """Collect the keys of blocks, of which there is one at least."""
        found = keys.concat([keys.encode(block.rows, key) for block in blocks])
        return cls(key, keys.take(found, keys.merge_order(found)))

    def source(self, source: Source) -> Source:
        """Give a source of those rows whose key is wanted."""
        return replace(source, blocks=self._sifted(source.blocks))

    def _sifted(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            if not block.rows.num_rows:
                continue
            at = self._find(keys.encode(block.rows, self.key))
            if len(at):
                positions = None if block.positions is None else block.positions[at]
                yield Block(block.rows.take(pa.array(at)), positions)

    def _find(self, there: keys.Keys) -> keys.Indices:
        """Give the positions of rows with a wanted key; ``there`` is sorted."""
        if not isinstance(there, np.ndarray):
            among: keys.Indices = np.flatnonzero(pc.is_in(there, value_set=self.wanted))
            return among
        first, last = np.searchsorted(self.wanted, there[[0, -1]])
        asked = self.wanted[first : last + 1]
        places = np.minimum(np.searchsorted(there, asked), len(there) - 1)
        found = places[there[places] == asked]
        once: keys.Indices = found[keys.starts(found)]
        return once
