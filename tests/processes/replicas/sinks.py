"""A sink in trouble: it fails, hangs, acknowledges late, loses its answer, or dies half way."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from plait.errors import StorageError
from plait.replicate import Sink, SinkSchema, SinkSession

KINDS = ("fail", "lose", "half", "late", "hang")
_LATE_S = 0.3


@dataclass(frozen=True)
class Troubled:
    """Another sink, of whose puts a share goes wrong. It notes each trouble in a file."""

    inner: Sink
    share: float
    hang_s: float
    notes: str

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def removes(self) -> bool:
        return self.inner.removes

    def open(self, schema: SinkSchema) -> TroubledSession:
        return TroubledSession(self, self.inner.open(schema))


@dataclass(frozen=True)
class TroubledSession:
    sink: Troubled
    inner: SinkSession

    def batch_put(self, records: pa.RecordBatch) -> None:
        kind = self._choose()
        if kind == "fail":
            raise _down()
        if kind == "half":
            self.inner.batch_put(records.slice(0, records.num_rows // 2))
            self.inner.flush()
            raise _down()
        if kind == "hang":  # nobody waits for it any more when it takes the batch
            time.sleep(self.sink.hang_s)
        self.inner.batch_put(records)
        if kind == "late":
            self.inner.flush()
            time.sleep(_LATE_S)
        if kind == "lose":
            self.inner.flush()
            raise _down()

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        self.inner.batch_remove(keys)

    def flush(self) -> None:
        self.inner.flush()

    def held(self) -> Iterator[pa.RecordBatch]:
        return self.inner.held()

    def close(self) -> None:
        self.inner.close()

    def _choose(self) -> str:
        if random.random() >= self.sink.share:
            return ""
        (kind,) = random.choices(KINDS, weights=(4, 4, 4, 4, 2))
        with Path(self.sink.notes).open("a", encoding="utf-8") as notes:
            notes.write(f"{self.sink.name} {kind}\n")
        return kind


def _down() -> StorageError:
    return StorageError("the store is down", path="there")
