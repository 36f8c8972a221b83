"""Open what callers hand in as batches of Arrow rows, with bounded pieces and no copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from plait.arrow.memory import MemoryLimits, joined, owned
from plait.errors import BadRecordError, OptionError

_CONVERSION = re.compile(r"Conversion failed for column (.+?) with type")
_INDEX = re.compile(r"__index_level_\d+__", re.ASCII)


@runtime_checkable
class _Stream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


@runtime_checkable
class _Batch(Protocol):
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows from a caller: a table that is all there, or a stream that can be read once."""

    schema: pa.Schema
    table: pa.Table | None
    reader: pa.RecordBatchReader | None = None
    foreign: bool = False
    """Not made by pyarrow: contents are validated before they are trusted."""

    def pieces(self, size_bytes: int) -> Iterator[pa.RecordBatch]:
        """Return the rows in order, in batches of about ``size_bytes`` at most."""
        batches = self.reader if self.table is None else self.table.to_batches()
        for batch in batches or ():
            yield from split_batch(batch, size_bytes)


def accepts(data: object) -> bool:
    """Tell whether ``open_rows`` takes such data."""
    return isinstance(data, (Rows, pa.RecordBatchReader, pa.Table, _Stream, _Batch))


def open_rows(data: object) -> Rows:
    """Open a table, batch or reader of Arrow, a pandas frame, or any Arrow C stream.

    Rows that are open already are given back.

    Raises:
        OptionError: it is none of these.
        BadRecordError: pandas cannot give a column one type.
    """
    if isinstance(data, Rows):
        return data
    if isinstance(data, pa.Table):
        return Rows(data.schema, data)
    if isinstance(data, pa.RecordBatch):
        return Rows(data.schema, pa.Table.from_batches([data]))
    if isinstance(data, pa.RecordBatchReader):
        return Rows(data.schema, None, data)
    if type(data).__module__.split(".", 1)[0] == "pandas" and hasattr(data, "columns"):
        table = _from_pandas(data)
        return Rows(table.schema, table)
    if isinstance(data, _Stream):
        reader = pa.RecordBatchReader.from_stream(data)
        return Rows(reader.schema, None, reader, foreign=True)
    if isinstance(data, _Batch):
        batch = pa.record_batch(data)
        return Rows(batch.schema, pa.Table.from_batches([batch]), foreign=True)
    name = f"{type(data).__module__}.{type(data).__qualname__}"
    message = f"cannot write a {name}"
    hint = "give Arrow data, a pandas or Polars frame, or anything with __arrow_c_stream__"
    if isinstance(data, (list, dict)):
        hint = "make a table of it first: pyarrow.Table.from_pylist(rows, schema=...)"
    raise OptionError(message, hint=hint, key="data", value=name)


def split_batch(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into slices of about ``size_bytes`` at most, without a copy."""
    if batch.num_rows <= 1 or batch.nbytes <= size_bytes:
        if batch.num_rows:
            yield batch
        return
    rows = max(1, batch.num_rows * size_bytes // batch.nbytes)
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        if piece.num_rows > 1 and piece.nbytes > 2 * size_bytes:
            half = piece.num_rows // 2
            yield from split_batch(piece.slice(0, half), size_bytes)
            yield from split_batch(piece.slice(half), size_bytes)
        else:
            yield piece


def _from_pandas(data: object) -> pa.Table:
    try:
        table = pa.Table.from_pandas(data, preserve_index=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        text = " ".join(str(part) for part in error.args)
        found = _CONVERSION.search(text)
        column = found[1] if found else ""
        message = f"column {column!r} of the frame mixes types: {text[:160]}"
        hint = "give the column one type, for example with astype"
        raise BadRecordError(message, hint=hint, column=column, sample={}) from error
    # An index without a name is only the order of the rows.
    kept = [name for name in table.column_names if not _INDEX.fullmatch(name)]
    return table.select(kept).replace_schema_metadata(None)


@dataclass(slots=True)
class Intake:
    """Puts small batches together, so that dividing them costs little."""

    limits: MemoryLimits
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
        """Return what is left."""
        ready = self._ready
        self.clear()
        if not ready:
            return []
        return ready if len(ready) == 1 else [joined(ready)]

    def clear(self) -> None:
        """Drop everything."""
        self._ready, self._size = [], 0
