"""Memory of our own for buffered rows, which goes back to the system the moment it is free.

General-purpose allocators keep what was freed for later, and more so when one thread allocates
and another frees, as here. Rows that wait in the buffer are most of a writer's memory, so they
lie in anonymous maps, and the bound on that memory is one that the system sees too.
"""

from __future__ import annotations

import mmap
from typing import Final

import pyarrow as pa

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


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
