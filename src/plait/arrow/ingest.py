"""Rows on their way in: opened as Arrow batches of bounded size, and divided by bucket.

No copy is made of what is opened, and no Python object a row of what is divided.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.memory import MemoryLimits, joined, owned, taken
from plait.arrow.merge import last_removals
from plait.errors import BadRecordError, OptionError, SchemaMismatchError
from plait.files import keys
from plait.files.hash import bucket_of, key_hashes
from plait.files.partition_values import values_of
from plait.model.bucket import UNKEYED, Partition
from plait.model.data import ArrowBatch, ArrowStream
from plait.model.plan import TableSpec
from plait.model.value import texts_of

_CONVERSION = re.compile(r"Conversion failed for column (.+?) with type")
_INDEX = re.compile(r"__index_level_\d+__", re.ASCII)

Group: TypeAlias = tuple[Partition | None, int]
"""A partition and a bucket; None where rows only name a key, which any partition may hold."""

Codes: TypeAlias = npt.NDArray[np.int64]

_NARROW = 1 << 16


class _Frame(Protocol):
    """A frame of pandas, as far as it is looked at here."""

    @property
    def columns(self) -> Iterable[object]: ...


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
    return isinstance(data, (Rows, pa.RecordBatchReader, pa.Table, ArrowStream, ArrowBatch))


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
        table = _from_pandas(cast("_Frame", data))
        return Rows(table.schema, table)
    if isinstance(data, (ArrowStream, ArrowBatch)):
        return _from_capsules(data)
    name = _kind_of(data)
    message = f"cannot write a {name}"
    hint = "pass Arrow data, a pandas or Polars frame, or an object with __arrow_c_stream__"
    if isinstance(data, (list, dict)):
        hint = "convert it first: pyarrow.Table.from_pylist(rows, schema=...)"
    raise OptionError(message, hint=hint, key="data", value=name)


def _kind_of(data: object) -> str:
    return f"{type(data).__module__}.{type(data).__qualname__}"


def _from_capsules(data: ArrowStream | ArrowBatch) -> Rows:
    try:
        if isinstance(data, ArrowStream):
            reader = pa.RecordBatchReader.from_stream(data)
            return Rows(reader.schema, None, reader, foreign=True)
        batch = pa.record_batch(data)
    except pa.ArrowInvalid as error:
        name = _kind_of(data)
        message = f"a {name} has no columns: {str(error)[:160]}"
        hint = "pass a table: pyarrow.table({column: values})"
        raise OptionError(message, hint=hint, key="data", value=name) from error
    return Rows(batch.schema, pa.Table.from_batches([batch]), foreign=True)


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


def _from_pandas(data: _Frame) -> pa.Table:
    names = [str(name) for name in data.columns]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        message = f"the frame has two columns {twice!r}"
        hint = "rename or drop one of them"
        raise SchemaMismatchError(message, hint=hint, column=twice, found=names)
    try:
        table = pa.Table.from_pandas(data, preserve_index=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        text = " ".join(str(part) for part in error.args)
        match = _CONVERSION.search(text)
        column = match[1] if match else ""
        message = f"column {column!r} of the frame has values of several types: {text[:160]}"
        if not match:
            message = f"pandas cannot give the columns of the frame: {text[:160]}"
        hint = "convert the column to one type, for example with astype"
        raise BadRecordError(message, hint=hint, column=column, sample={}) from error
    # An index without a name is only the order of the rows.
    kept = [name for name in table.column_names if not _INDEX.fullmatch(name)]
    table = table.select(kept).replace_schema_metadata(None)
    return table if table.num_rows else _untyped(table)


def _untyped(table: pa.Table) -> pa.Table:
    """Return a frame without rows: pandas calls a column float64 that never had a value."""
    fields = [
        field.with_type(pa.null()) if field.type == pa.float64() else field
        for field in table.schema
    ]
    return pa.schema(fields).empty_table()


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows that came in, or keys that were removed."""

    rows: pa.RecordBatch
    removes: bool = False


@dataclass(slots=True)
class Intake:
    """Puts small batches together, so that dividing them costs little."""

    limits: MemoryLimits
    spec: TableSpec
    _ready: list[Arrival] = field(default_factory=list)
    _size: int = 0

    def add(self, batch: pa.RecordBatch, *, removes: bool = False) -> list[Arrival]:
        """Take rows, or keys to remove; give what is enough to be divided."""
        if not batch.num_rows:
            return []
        self._size += batch.nbytes
        if self._size >= self.limits.chunk:
            self._ready.append(Arrival(batch, removes))
            return self.rest()
        self._ready.append(Arrival(owned(batch), removes))
        return []

    def rest(self) -> list[Arrival]:
        """Return what is left: rows, or removals and then rows, however they alternated."""
        ready = self._ready
        self.clear()
        if any(each.removes for each in ready):
            return _removals_first(ready, self.spec)
        if len(ready) > 1:
            return [Arrival(joined([each.rows for each in ready]))]
        return ready

    def clear(self) -> None:
        """Drop everything."""
        self._ready, self._size = [], 0


def _removals_first(came: Sequence[Arrival], spec: TableSpec) -> list[Arrival]:
    """Return the keys that were removed, each once, and then the rows that none of them removes.

    A removal takes away what came before it. So without these rows, removals may stand first.
    """
    names = next(each.rows.schema.names for each in came if each.removes)
    places = joined([each.rows.select(names) for each in came])
    removes = np.repeat([e.removes for e in came], [e.rows.num_rows for e in came])
    last, stays = last_removals(identities(places, spec), removes)
    removals = Arrival(taken(places, last[last >= 0]), removes=True)
    kept = np.flatnonzero(stays[~removes])
    if not len(kept):
        return [removals]
    rows = joined([each.rows for each in came if not each.removes])
    return [removals, Arrival(rows if len(kept) == rows.num_rows else taken(rows, kept))]


def identities(rows: pa.RecordBatch, spec: TableSpec) -> Codes:
    """Return a number for each row, the same for rows with one key where keys are unique."""
    encoded = keys.encode(rows, spec.key)
    order = keys.sort_order(encoded)
    numbers: Codes = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(keys.starts(keys.take(encoded, order))) - 1
    partitions, codes = _places(rows, spec)
    return numbers if codes is None else _dense(numbers * len(partitions) + codes)[1]


@dataclass(slots=True)
class Chunk:
    """Rows in the order of their groups, the largest first, and which stretch is whose.

    Each stretch is sorted by record key; rows with one key, or without one, stay in the order in
    which they came.
    """

    rows: pa.RecordBatch
    spans: dict[Group, tuple[int, int]]
    removes: bool = False
    """Whether they are keys that were removed."""

    @property
    def sizes(self) -> dict[Group, int]:
        """The bytes of each group: its share of the rows."""
        size, rows = self.rows.nbytes, max(1, self.rows.num_rows)
        return {group: (stop - start) * size // rows for group, (start, stop) in self.spans.items()}


def split(batch: pa.RecordBatch, spec: TableSpec) -> Chunk:
    """Order rows by group, and by key within a group.

    Where a key names a row in all partitions, groups name none: rows of one key come together.
    """
    partitions, codes = _places(batch, spec)
    if spec.keyed:
        count = spec.layout.buckets.count
        buckets = bucket_of(key_hashes(batch, spec.layout.buckets.hashed), count).astype(np.int64)
        codes = buckets if codes is None else codes * count + buckets
    elif codes is None:
        return Chunk(batch, {(partitions[0], UNKEYED): (0, batch.num_rows)})
    present, codes = _dense(codes)
    present, codes, counts = _largest_first(present, codes)
    groups = [_group(number, partitions, spec) for number in present]
    order = keys.sort_order(keys.encode(batch, spec.key)) if spec.keyed else None
    if len(groups) > 1:
        codes = codes if order is None else codes[order]
        by_group = np.argsort(narrow(codes, len(groups)), kind="stable")
        order = by_group if order is None else order[by_group]
    if order is not None:
        batch = taken(batch, order)
    edges = np.concatenate([[0], np.cumsum(counts)])
    spans = dict(zip(groups, itertools.pairwise(edges.tolist()), strict=True))
    return Chunk(batch, spans)


def _places(batch: pa.RecordBatch, spec: TableSpec) -> tuple[list[Partition | None], Codes | None]:
    return ([None], None) if spec.unique_in_table else partition_codes(batch, spec)


def partition_codes(
    batch: pa.RecordBatch, spec: TableSpec
) -> tuple[list[Partition | None], Codes | None]:
    """Return the partitions of a batch and the number of each row's; None if there is one."""
    if not spec.layout.partition_by:
        return [()], None
    if not set(spec.partition_sources) <= set(batch.schema.names):
        return [None], None
    partitions: list[Partition] = [()]
    codes: Codes = np.zeros(batch.num_rows, dtype=np.int64)
    for each in spec.fields:
        coded = values_of(each, batch).dictionary_encode(null_encoding="encode")
        texts = texts_of(coded.dictionary)
        # Numbers stay below rows times values: those that do not occur are left out each time.
        present, codes = _dense(codes * len(texts) + coded.indices.to_numpy())
        pairs = [divmod(number, len(texts)) for number in present]
        partitions = [(*partitions[before], texts[at]) for before, at in pairs]
    return list(partitions), codes if len(partitions) > 1 else None


def _dense(codes: Codes) -> tuple[list[int], Codes]:
    """Return the numbers that occur, and for each row which of them it has."""
    top = int(codes.max(initial=0)) + 1
    if top > max(_NARROW, 4 * len(codes)):
        distinct, inverse = np.unique(codes, return_inverse=True)
        return distinct.tolist(), inverse.reshape(-1)
    present = np.flatnonzero(np.bincount(codes, minlength=top))
    lookup = np.zeros(top, dtype=np.int64)
    lookup[present] = np.arange(len(present))
    return present.tolist(), lookup[codes]


def _largest_first(present: list[int], codes: Codes) -> tuple[list[int], Codes, Codes]:
    """Return groups by size, so that the small ones are neighbours, with new numbers and counts."""
    counts = np.bincount(codes, minlength=len(present))
    by_size = np.argsort(-counts, kind="stable")
    rank = np.empty(len(present), dtype=np.int64)
    rank[by_size] = np.arange(len(present))
    return [present[at] for at in by_size], rank[codes], counts[by_size]


def narrow(codes: Codes, count: int) -> npt.NDArray[np.integer]:
    """Return numbers in the type that sorts fastest: by radix up to 16 bits."""
    return codes.astype(np.uint16) if count <= _NARROW else codes


def _group(number: int, partitions: Sequence[Partition | None], spec: TableSpec) -> Group:
    if not spec.keyed:
        return partitions[number], UNKEYED
    # Without codes of their own all rows are in the only partition.
    at, bucket = divmod(number, spec.layout.buckets.count)
    return partitions[at], bucket
