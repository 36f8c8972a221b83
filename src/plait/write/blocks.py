"""Where a writer's rows lie, so that the bound on its memory is one that the system sees too.

Arrow's default allocator keeps what was freed for later, in each thread and for each size. Rows
that wait in the buffer are most of a writer's memory: they lie in anonymous maps, which go back
to the system the moment they are free. Copies on the way come from a pool that keeps little.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

_BACKEND: Final = "jemalloc" if "jemalloc" in pa.supported_memory_backends() else "system"
_POOL: Final = pa.jemalloc_memory_pool() if _BACKEND == "jemalloc" else pa.system_memory_pool()

MAPPED_MIN: Final = 64 << 10
"""Smaller batches stay where they are, or are copied by Arrow's own allocator."""


def settled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give rows that keep no memory alive but their own."""
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
    """Give rows in one chunk a column; copies only what is not."""
    return rows.combine_chunks(memory_pool=_POOL)


def taken(rows: Rows, order: npt.NDArray[np.int64]) -> Rows:
    """Copy rows in this order."""
    found: Rows = pc.take(rows, pa.array(order), boundscheck=False, memory_pool=_POOL)
    return found


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
