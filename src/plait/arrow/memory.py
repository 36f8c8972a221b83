"""How much memory a writer may use, and where its rows lie."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.model.cached import cached_property
from plait.model.contract import Options

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)  # no slots: each share is computed once
class MemoryLimits:
    """Sizes in bytes, all derived from two options.

    A writer's rows, sorted copies and merge blocks together stay below ``total``, which is 1.5
    times ``write.buffer.size``, whatever comes in; buffers of less than 4 MiB, where the least
    pieces are larger than their share, and rows of many megabytes each are excepted.
    """

    bucket: int
    """A bucket with more than this in the buffer is flushed."""
    buffer: int
    """A buffer with more than this is flushed whole."""

    @classmethod
    def of(cls, options: Options) -> MemoryLimits:
        """Take them from a table's options."""
        return cls(options.size("write.bucket.size"), options.size("write.buffer.size"))

    @cached_property
    def total(self) -> int:
        """The bound on all memory of a writer."""
        return self.buffer + self.buffer // 2

    @cached_property
    def chunk(self) -> int:
        """Rows that are divided by bucket in one go."""
        return _between(self.buffer // 64, _KIB, 8 * _MIB)

    @cached_property
    def round(self) -> int:
        """Rows that are merged in one go while a bucket is flushed."""
        return _between(self.buffer // 64, 64 * _KIB, 8 * _MIB)

    @cached_property
    def slice(self) -> int:
        """Rows that are copied in their final order and written in one go."""
        return _between(self.buffer // 128, 32 * _KIB, 2 * _MIB)

    @cached_property
    def group(self) -> int:
        """Rows that a file writer may hold back until they make a row group."""
        return _between(self.buffer // 32, 64 * _KIB, 16 * _MIB)

    @cached_property
    def block(self) -> int:
        """Rows of a run that are read back in one go while runs are merged."""
        return _between(self.buffer // 512, 16 * _KIB, _MIB)

    @cached_property
    def admitted(self) -> int:
        """Rows in the buffer and on the way to files, at most."""
        # The rest of ``total`` is for what is being divided, merged, encoded and written.
        return self.buffer + self.buffer // 16


def _between(wanted: int, least: int, most: int) -> int:
    return min(max(wanted, least), most)


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Round = TypeVar("Round")

_BACKEND: Final = "jemalloc" if "jemalloc" in pa.supported_memory_backends() else "system"
_POOL: Final = pa.jemalloc_memory_pool() if _BACKEND == "jemalloc" else pa.system_memory_pool()

MAPPED_MIN: Final = 64 << 10
"""Smaller batches stay where they are, or are copied by Arrow's own allocator."""


def once_changed(
    rounds: Callable[[], Iterator[Round]],
    changed: Callable[[Round], bool],
    rows: Callable[[Round], Iterator[pa.Table]],
) -> Iterator[pa.Table]:
    """Yield the rows of all rounds, or none if nothing changes in any, so that no file is begun.

    Args:
        rounds: the same rounds at each call; those before the first change are read again.
        changed: takes account of a round, and tells whether something has changed so far.
        rows: the rows of a round that stay.
    """
    before = 0
    for each in rounds():
        if not changed(each):
            before += 1
            continue
        for early in itertools.islice(rounds(), before):
            yield from rows(early)
        before = 0
        yield from rows(each)


def detached(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows that keep no memory alive but their own."""
    if batch.nbytes < MAPPED_MIN:
        return owned(batch)
    size = pa.MockOutputStream()
    _write(batch, size)
    place = pa.py_buffer(mmap.mmap(-1, size.size()))
    _write(batch, pa.FixedSizeBufferWriter(place))
    with pa.ipc.open_stream(place) as stream:
        return stream.read_next_batch()


def owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy rows that are a small part of something larger."""
    if batch.get_total_buffer_size() <= batch.nbytes + batch.nbytes // 4:
        return batch
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Copy batches into one."""
    return pa.concat_batches(batches, memory_pool=_POOL)


def combined(rows: pa.Table) -> pa.Table:
    """Return rows in one chunk a column; copies only what is not."""
    return rows.combine_chunks(memory_pool=_POOL)


def taken(rows: Rows, order: npt.NDArray[np.int64]) -> Rows:
    """Copy rows in this order."""
    copied: Rows = pc.take(rows, pa.array(order), boundscheck=False, memory_pool=_POOL)
    return copied


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
