"""Open a data file and read it row group by row group, with the columns of a newer schema.

Fields are the same when their ids are: a renamed field keeps its values, a field that the file
does not know reads as null, a widened type is cast. Ids decide inside structs, lists and maps too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from plait.files.data_file import LiveFile, corrupt, reading
from plait.files.footer import (
    THRIFT_BYTES_MAX,
    Range,
    file_stats,
    float_columns,
    float_range,
    footer_bytes,
    footer_hash,
    group_range,
    joined,
    leaf_indices,
    parse_footer,
)
from plait.files.hash import Hashes
from plait.files.key_index import KeyIndex
from plait.model.plan import TableSpec
from plait.model.schema import FIELD_ID, Schema
from plait.storage.port import Store, check_path

BATCH_ROWS_MAX: Final = 1 << 16
BATCH_BYTES: Final = 16 << 20
"""Batches hold about so many bytes at most, judged by the average row."""
_BATCH_ROWS_MIN = 64
_GROWTH_FREE, _GROWTH_MAX = 16 << 20, 256
_T = pa.types


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a column to be read comes from: a column of the file, or nowhere."""

    wanted: pa.Field
    found: pa.Field | None


class OpenFile:
    """A data file that is open for reading. Close it, or use it in a ``with`` block."""

    def __init__(self, store: Store, file: LiveFile, schemas: Schemas) -> None:
        """Open the file and compare its size and its footer with the metadata.

        Raises:
            CorruptMetadataError: the file is missing, damaged, or another one.
            StorageError: the store failed.
        """
        self._file = file
        with reading(file.path):
            self._input = store.filesystem().open_input_file(check_path(file.path))
            try:
                _require_size(file, self._input.size())
                metadata = _sound_footer(file, self._input)
                self._parquet = pq.ParquetFile(
                    self._input,
                    metadata=metadata,
                    pre_buffer=True,
                    page_checksum_verification=True,
                    coerce_int96_timestamp_unit="us",
                    thrift_string_size_limit=THRIFT_BYTES_MAX,
                )
            except BaseException:
                self._input.close()
                raise
        self._footer: pq.FileMetaData = metadata
        counts: list[int] = [self._footer.row_group(i).num_rows for i in range(self.group_count)]
        if self._footer.num_rows != file.rows or sum(counts) != file.rows:
            self.close()
            raise corrupt(file.path, f"{file.rows} rows", f"{self._footer.num_rows} rows")
        self._counts = counts
        self._starts = list(itertools.accumulate(counts, initial=0))
        self._found = self._parquet.schema_arrow
        self._leaves = leaf_indices(self._found)
        self._schemas = schemas

    @property
    def group_count(self) -> int:
        """Row groups in the file."""
        count: int = self._footer.num_row_groups
        return count

    def group_rows(self, group: int) -> int:
        """Rows of a row group."""
        return self._counts[group]

    def group_start(self, group: int) -> int:
        """Position of a row group's first row in the file."""
        return self._starts[group]

    def group_ranges(self, group: int, columns: Sequence[str]) -> dict[str, Range]:
        """Return what the footer says of these columns in a row group, as far as it is usable."""
        ranges: dict[str, Range] = {}
        with reading(self._file.path):
            for source in self._sources(columns):
                name, physical = source.wanted.name, source.found
                if physical is None:
                    ranges[name] = Range(null_count=self._counts[group])
                elif _comparable(physical.type, source.wanted.type):
                    ranges[name] = self._chunk_range(group, physical)
        return ranges

    def _chunk_range(self, group: int, physical: pa.Field) -> Range:
        chunk = self._footer.row_group(group).column(self._leaves[physical.name])
        known = group_range(chunk, physical.type)
        # Parquet leaves NaN out of its bounds, and NaN is greater than every number.
        upper = None if _T.is_floating(physical.type) else known.upper
        return Range(known.lower, upper, known.null_count)

    def key_index(self) -> KeyIndex | None:
        """Return the file's key index, of use while the file is open; None if there is none.

        Raises:
            ValueError: it is damaged.
        """
        size, rows = self._file.size_bytes, self._file.rows
        return KeyIndex.parse(self._footer.metadata, self._input, rows=rows, size=size)

    def indexed_keys(self) -> Iterator[Hashes]:
        """Read all entries of the key index, block by block; none if there is no index.

        Raises:
            CorruptMetadataError: the index is damaged.
            StorageError: the store failed.
        """
        with reading(self._file.path):
            try:
                index = self.key_index()
                yield from () if index is None else index.entries()
            except ValueError as error:
                raise corrupt(self._file.path, "a whole key index", str(error)) from error

    def stats(self, spec: TableSpec) -> str:
        """Return the bounds of all rows; those of floats are in no footer, so they are read.

        Args:
            spec: the table's, with the schema that the file was written with.
        """
        ranges: dict[str, list[Range]] = {name: [] for name in float_columns(spec)}
        counts: list[int] = []
        for group in range(self.group_count) if ranges else ():
            for batch in self.batches(group, list(ranges)):
                counts.append(batch.num_rows)
                for name, known in ranges.items():
                    known.append(float_range(pa.chunked_array([batch.column(name)])))
        floats = {name: joined(known, counts) for name, known in ranges.items()}
        with reading(self._file.path):
            return file_stats(self._footer, spec, floats)

    def batches(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns of a row group, in bounded batches, as the reading schema has them.

        Raises:
            CorruptMetadataError: the file is damaged, or its columns do not fit the schema.
            StorageError: the store failed.
        """
        sources = self._sources(columns)
        schema = pa.schema([source.wanted for source in sources])
        delivered = 0
        with reading(self._file.path):
            for batch in self._raw_batches(group, sources):
                delivered += batch.num_rows
                yield self._fit(batch, sources, schema)
        if delivered != self._counts[group]:
            raise corrupt(self._file.path, f"{self._counts[group]} rows", f"{delivered} rows")

    def _raw_batches(self, group: int, sources: Sequence[_Source]) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys(s.found.name for s in sources if s.found is not None))
        rows = self._batch_rows(group)
        if names:
            yield from self._parquet.iter_batches(rows, row_groups=[group], columns=names)
            return
        left = self._counts[group]
        while left:  # nothing of the file is asked for but how many rows there are
            count = min(rows, left)
            yield pa.record_batch([pa.nulls(count)], names=[""])
            left -= count

    def _batch_rows(self, group: int) -> int:
        total: int = self._footer.row_group(group).total_byte_size
        size = total // max(1, self._counts[group])
        return max(_BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, BATCH_BYTES // max(1, size)))

    def _fit(
        self, batch: pa.RecordBatch, sources: Sequence[_Source], schema: pa.Schema
    ) -> pa.RecordBatch:
        columns = [
            pa.nulls(batch.num_rows, source.wanted.type)
            if source.found is None
            else fitted(batch.column(source.found.name), source.found, source.wanted)
            for source in sources
        ]
        if not columns:
            return batch.select([])
        return pa.record_batch(columns, schema=schema)

    def _sources(self, columns: Sequence[str]) -> list[_Source]:
        known = self._schemas.names(self._file)
        by_id = {number: field for field in self._found if (number := field_id(field)) is not None}
        sources = []
        for name in columns:
            wanted = self._schemas.reading.arrow.field(name)
            number = self._schemas.reading.field_id(name)
            if by_id:
                stored = by_id.get(number)
            else:
                index = self._found.get_field_index(known.get(number, ""))
                stored = self._found.field(index) if index >= 0 else None
            if stored is None and number in known:
                raise corrupt(self._file.path, f"a column {known[number]!r}", "none")
            sources.append(_Source(wanted, stored))
        return sources

    def close(self) -> None:
        """Close the file."""
        self._input.close()

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def load_stats(store: Store, file: LiveFile, spec: TableSpec, schemas: Mapping[int, Schema]) -> str:
    """Read the bounds of a file, as its writer told them or could have (``stats``).

    Raises:
        CorruptMetadataError: the file is missing or damaged.
        StorageError: the store failed.
    """
    schema = schemas.get(file.schema_id, spec.schema)
    with OpenFile(store, file, Schemas(schema, schemas)) as source:
        return source.stats(replace(spec, schema=schema))


def _require_size(file: LiveFile, size_bytes: int) -> None:
    """Refuse another file in the place of the one that was written, before it is parsed."""
    if size_bytes != file.size_bytes:
        raise corrupt(file.path, f"{file.size_bytes} bytes", f"{size_bytes} bytes")


def _sound_footer(file: LiveFile, source: pa.NativeFile) -> pq.FileMetaData:
    """Read the footer; refuse one that is not the one that was written, before it is parsed.

    Its bounds decide which rows are skipped, and Parquet has no checksum of it.
    """
    body = footer_bytes(source, file.size_bytes)
    digest = footer_hash(body)
    if digest != file.footer:
        raise corrupt(file.path, f"a footer of hash {file.footer:016x}", f"{digest:016x}")
    metadata = parse_footer(body)
    _require_bounded(file, metadata)
    return metadata


def _require_bounded(file: LiveFile, footer: pq.FileMetaData) -> None:
    """Refuse a few bytes that declare to be very many: snappy makes no more than 21 of one."""
    declared = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
    limit = _GROWTH_FREE + _GROWTH_MAX * file.size_bytes
    if declared > limit:
        raise corrupt(file.path, f"at most {limit} bytes unpacked", f"{declared} bytes")


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schema to read with, and those that files were written with."""

    reading: Schema
    written: Mapping[int, Schema]

    def names(self, file: LiveFile) -> dict[int, str]:
        """Return the columns, by id, that a file must have."""
        schema = self.written.get(file.schema_id)
        if schema is None:
            raise corrupt(file.path, "a schema of the table", f"schema {file.schema_id}")
        return {schema.field_id(name): name for name in schema.names}


def _comparable(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether bounds of one type hold for values cast to the other."""
    whole = _T.is_signed_integer(stored) and _T.is_signed_integer(wanted)
    real = _T.is_floating(stored) and _T.is_floating(wanted)
    return whole or real or bool(stored == wanted)


def field_id(field: pa.Field) -> int | None:
    """Return the id of a field; None if it carries none.

    >>> field_id(pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "7"}))
    7
    """
    text = (field.metadata or {}).get(FIELD_ID)
    if text is None or not text.isdigit():
        return None
    return int(text)


def fitted(array: pa.Array, stored: pa.Field, wanted: pa.Field) -> pa.Array:
    """Return the values of a column of type ``stored`` as ``wanted``.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: a value or type does not fit.
    """
    source, target = stored.type, wanted.type
    if source == target and _same_ids(stored, wanted):
        return array
    if _T.is_struct(source) and _T.is_struct(target):
        return _fit_struct(array, target)
    if _T.is_list(source) and _T.is_list(target):
        values = fitted(array.values, source.value_field, target.value_field)
        return _rebuilt(array, target, values)
    if _T.is_map(source) and _T.is_map(target):
        return _fit_map(array, target)
    return array.cast(target)


def _same_ids(stored: pa.Field, wanted: pa.Field) -> bool:
    """Tell whether equal types mean equal fields: no child was replaced by a namesake."""
    if not _T.is_nested(stored.type):
        return True
    pairs = zip(_children(stored.type), _children(wanted.type), strict=True)
    return all(
        (field_id(a) is None or field_id(a) == field_id(b)) and _same_ids(a, b) for a, b in pairs
    )


def _children(kind: pa.DataType) -> list[pa.Field]:
    if _T.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(index) for index in range(kind.num_fields)]


def _find_child(children: list[pa.Field], wanted: pa.Field) -> int | None:
    """Find a field by its id, or by its name among fields without ids."""
    for index, child in enumerate(children):
        number = field_id(child)
        same = child.name == wanted.name if number is None else number == field_id(wanted)
        if same:
            return index
    return None


def _fit_struct(array: pa.Array, target: pa.DataType) -> pa.Array:
    children = _children(array.type)
    parts = []
    for wanted in _children(target):
        index = _find_child(children, wanted)
        if index is None:
            parts.append(pa.nulls(len(array), wanted.type))
        else:
            child = array.field(index)  # with the struct's offset applied
            parts.append(fitted(child, children[index], wanted))
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=_children(target), mask=nulls)


def _fit_map(array: pa.Array, target: pa.DataType) -> pa.Array:
    keys = fitted(array.keys, array.type.key_field, target.key_field)
    items = fitted(array.items, array.type.item_field, target.item_field)
    entries = pa.StructArray.from_arrays(
        [keys, items],
        fields=[
            pa.field("key", target.key_type, nullable=False),
            target.item_field.with_name("value"),
        ],
    )
    return _rebuilt(array, target, entries)


def _rebuilt(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    """Put new values under the offsets of a list or map array."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target,
        len(array),
        [validity, offsets],
        null_count=array.null_count,
        offset=array.offset,
        children=[values],
    )
