"""Put small batches together before they are divided by bucket."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from plait.write.blocks import joined, owned
from plait.write.limits import Limits


@dataclass(slots=True)
class Intake:
    """Puts small batches together, so that dividing them costs little."""

    limits: Limits
    _ready: list[pa.RecordBatch] = field(default_factory=list)
    _size: int = 0

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch; give rows that are enough to be divided."""
        if not batch.num_rows:
            return []
        self._ready.append(batch)
        self._size += batch.nbytes
        if self._size >= self.limits.chunk:
            return self.rest()
        self._ready[-1] = owned(batch)
        return []

    def rest(self) -> list[pa.RecordBatch]:
        """Give what is left."""
        ready = self._ready
        self.clear()
        if not ready:
            return []
        return ready if len(ready) == 1 else [joined(ready)]

    def clear(self) -> None:
        """Drop everything."""
        self._ready, self._size = [], 0
