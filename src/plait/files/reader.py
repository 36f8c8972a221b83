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

from plait.files.data_file import NO_VERSION, LiveFile, corrupt, reading
from plait.files.fitting import field_id, filled, fitted, sound
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
    names_another,
    parse_footer,
    unpacked_bytes,
    unpacked_bytes_max,
)
from plait.files.hash import Hashes
from plait.files.key_index import KeyIndex
from plait.model.defaults import initial_value
from plait.model.plan import TableSpec
from plait.model.schema import WRITTEN_ID, Schema, column_of
from plait.model.value import to_raw
from plait.storage.port import Store, check_path

BATCH_ROWS_MAX: Final = 1 << 16
BATCH_BYTES: Final = 16 << 20
"""Batches hold about so many bytes at most, judged by the average row."""
_BATCH_ROWS_MIN = 64
_T = pa.types


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a column to be read comes from: a column of the file, or nowhere."""

    wanted: pa.Field
    found: pa.Field | None
    fills: int | None = None
    """What nulls count as."""
    initial: pa.Scalar | None = None
    """What rows of a file without the column have; None: null."""


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
        self._filled: dict[str, pa.Array] = {}
        """Columns that the file lacks, as long as the longest batch so far."""

    @property
    def group_count(self) -> int:
        """Row groups in the file."""
        count: int = self._footer.num_row_groups
        return count

    def is_plain(self, columns: Sequence[str]) -> bool:
        """Tell whether columns have the names and types in the file that they are read with.

        Then a reader that knows nothing of the table reads what this one does.
        """
        sources = self._sources(columns)
        same = self._file.schema_id == self._schemas.reading.id
        return all(
            source.found is not None
            and source.fills is None
            and source.found.name == source.wanted.name
            and source.found.type == source.wanted.type
            # Ids decide inside of nested columns.
            and (same or not _T.is_nested(source.wanted.type))
            for source in sources
        )

    @property
    def names(self) -> list[str]:
        """Names of the columns that are in the file."""
        names: list[str] = self._found.names
        return names

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
                    value, count = source.initial, self._counts[group]
                    raw = None if value is None else to_raw(value)
                    ranges[name] = Range(raw, raw, count if raw is None else 0)
                elif source.fills is not None:
                    ranges[name] = self._filled_range(group, physical, source.fills)
                elif _comparable(physical.type, source.wanted.type):
                    ranges[name] = self._chunk_range(group, physical)
        return ranges

    def _chunk_range(self, group: int, physical: pa.Field) -> Range:
        chunk = self._footer.row_group(group).column(self._leaves[physical.name])
        known = group_range(chunk, physical.type)
        # Parquet leaves NaN out of its bounds, and NaN is greater than every number.
        upper = None if _T.is_floating(physical.type) else known.upper
        return Range(known.lower, upper, known.null_count)

    def _filled_range(self, group: int, physical: pa.Field, version: int) -> Range:
        """Return the range of a column in which nulls count as a version, the greatest of all."""
        known, rows = self._chunk_range(group, physical), self._counts[group]
        if known.null_count == rows:
            return Range(version, version, 0)
        return Range(known.lower, known.upper if known.null_count == 0 else version, 0)

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
        found = [source.found.name for source in sources if source.found is not None]
        names = list(dict.fromkeys(found))
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
        columns = [self._column(batch, source) for source in sources]
        if not columns:
            return batch.select([])
        return pa.record_batch(columns, schema=schema)

    def _column(self, batch: pa.RecordBatch, source: _Source) -> pa.Array:
        if source.found is None:
            return self._fill(source, batch.num_rows)
        found = batch.column(source.found.name)
        column = sound(fitted(found, source.found, source.wanted))
        return column if source.fills is None else column.fill_null(source.fills)

    def _fill(self, source: _Source, rows: int) -> pa.Array:
        """Return a column that the file lacks; batches share its memory."""
        known = self._filled.get(source.wanted.name)
        if known is None or len(known) < rows:
            known = filled(source.initial, source.wanted.type, rows)
            self._filled[source.wanted.name] = known
        return known.slice(0, rows)

    def _sources(self, columns: Sequence[str]) -> list[_Source]:
        known = self._schemas.names(self._file)
        by_id = {number: field for field in self._found if (number := field_id(field)) is not None}
        sources = []
        for name in columns:
            number, wanted = column_of(name, self._schemas.reading)
            if number == WRITTEN_ID:
                written = self._file.row_version
                fills = None if written == NO_VERSION else written
                initial = None if fills is None else pa.scalar(fills, wanted.type)
                sources.append(_Source(wanted, by_id.get(number), fills, initial))
                continue
            if by_id:
                stored = by_id.get(number)
            else:
                index = self._found.get_field_index(known.get(number, ""))
                stored = self._found.field(index) if index >= 0 else None
            if stored is None and number in known:
                raise corrupt(self._file.path, f"a column {known[number]!r}", "none")
            reading = self._schemas.reading
            initial = initial_value(reading, wanted.name) if reading.defaults else None
            sources.append(_Source(wanted, stored, initial=initial))
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
    alone = replace(spec, schema=schema, keeps_row_version=False)  # as the file alone says
    with OpenFile(store, file, Schemas(schema, schemas)) as source:
        return source.stats(alone)


def check_footer(store: Store, file: LiveFile) -> None:
    """Compare the size and the footer of a file with the metadata, for who cannot do so later.

    Raises:
        CorruptMetadataError: the file is missing, damaged, or another one.
        StorageError: the store failed.
    """
    with reading(file.path), store.filesystem().open_input_file(check_path(file.path)) as source:
        _require_size(file, source.size())
        _sound_footer(file, source)


def staged_batches(store: Store, path: str) -> Iterator[pa.RecordBatch]:
    """Read the rows that another process left in a file which no decision names.

    Nobody has the hash of its footer, but the footer says which file it is.

    Raises:
        CorruptMetadataError: the file is missing, damaged, or another one.
        StorageError: the store failed.
    """
    with reading(path), store.filesystem().open_input_file(check_path(path)) as source:
        parquet = pq.ParquetFile(
            source,
            page_checksum_verification=True,
            thrift_string_size_limit=THRIFT_BYTES_MAX,
        )
        if names_another(parquet.metadata, path):
            raise corrupt(path, "the file that was written under this name", "another one")
        yield from parquet.iter_batches()


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
    """Refuse a few bytes that declare to be very many."""
    declared, limit = unpacked_bytes(footer), unpacked_bytes_max(footer, file.size_bytes)
    if declared > limit:
        raise corrupt(file.path, f"at most {limit} bytes unpacked", f"{declared} bytes")


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schema to read with, and those that files were written with."""

    reading: Schema
    of_files: Mapping[int, Schema]

    def names(self, file: LiveFile) -> dict[int, str]:
        """Return the columns, by id, that a file must have."""
        schema = self.of_files.get(file.schema_id)
        if schema is None:
            raise corrupt(file.path, "a schema of the table", f"schema {file.schema_id}")
        return {number: name for name, number in schema.ids.items()}


def _comparable(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether bounds of one type hold for values cast to the other."""
    whole = _T.is_signed_integer(stored) and _T.is_signed_integer(wanted)
    real = _T.is_floating(stored) and _T.is_floating(wanted)
    return whole or real or bool(stored == wanted)
