"""Write data files: plain Parquet with the user's columns and field ids, in bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plait.errors import BadRecordError, InvariantError
from plait.files.data_file import RUN, Place, writing
from plait.files.fitting import fitted
from plait.files.footer import (
    GROUP_BYTES_FREE,
    Range,
    exact_leaves,
    file_stats,
    float_columns,
    float_range,
    footer_bytes,
    footer_hash,
    joined,
    leaf_paths,
    named,
    parse_footer,
    unpacked_bytes,
    unpacked_bytes_max,
)
from plait.files.hash import key_hashes
from plait.files.key_index import KeyIndexBuilder
from plait.model.bucket import partition_text
from plait.model.changes import ADDED, BASE, LOG
from plait.model.order import KEY_ORDER, NO_ORDER
from plait.model.plan import Compression, TableSpec
from plait.model.schema import WRITTEN_FIELD
from plait.storage.port import Store, check_path

GROUP_ROWS: Final = 128 * 1024
"""Rows in a row group: small enough to skip most of a sorted file, large enough to scan."""
ORDERED_GROUP_ROWS: Final = 16 * 1024
"""The same in a bucket that is in an order of columns: there a range skips row groups only."""
GROUP_BYTES: Final = GROUP_BYTES_FREE // 2
"""A row group is also ended by so many bytes in memory, so that wide rows stay bounded."""


class DataFileWriter:
    """Writes one data file as a stream of tables.

    Holds at most one row group. Nothing is durable before ``store.persist([path])``. Leaving a
    ``with`` block by an exception closes the file without a record of it.
    """

    def __init__(
        self,
        store: Store,
        place: Place,
        spec: TableSpec,
        *,
        order: int = NO_ORDER,
        group_rows: int = GROUP_ROWS,
        dictionary: Sequence[str] | None = None,
    ) -> None:
        """Open the file; the path must be new.

        A file that is not sorted by record key gets a key index, if it has several row groups.

        Args:
            store: the table's.
            place: where the file belongs.
            spec: its schema is the schema of the file.
            order: what the record says of the order of the rows; not checked.
            group_rows: rows in a row group.
            dictionary: paths of the leaf columns that repeat their values and are worth a
                dictionary; by default every column is tried, which costs memory and time.
        """
        self._store, self._place, self._spec = store, place, spec
        self.path = place.path
        """The file's path in the table."""
        self._order, self._group_rows = order, group_rows
        self._schema = spec.schema.arrow
        self._stored = spec.schema.stored
        self._renames = self._stored is not self._schema
        if place.with_row_version:
            self._schema = self._schema.append(WRITTEN_FIELD)
            self._stored = self._stored.append(WRITTEN_FIELD)
        self._floats: dict[str, list[Range]] = {name: [] for name in float_columns(spec)}
        self._groups: list[int] = []
        indexed = spec.keyed and order != KEY_ORDER and place.kind != RUN
        self._index = KeyIndexBuilder() if indexed else None
        self._held: list[pa.Table] = []
        self._held_rows = self._held_bytes = self._rows = 0
        self._closed = False
        # What only passes rows to another process is read once: nobody waits for its bytes.
        packed = spec.compression if place.kind in (BASE, LOG) else Compression()
        with writing(place.path):
            self._sink = store.filesystem().open_output_stream(check_path(place.path))
            self._footers: list[pq.FileMetaData] = []
            self._parquet = pq.ParquetWriter(
                self._sink,
                self._stored,
                compression=packed.codec,
                compression_level=packed.level,
                use_dictionary=True if dictionary is None else self._as_stored(dictionary),
                write_statistics=exact_leaves(self._stored),
                write_page_checksum=True,
                store_schema=False,  # Parquet's own types and field ids say it all
                metadata_collector=self._footers,
            )

    def _as_stored(self, leaves: Sequence[str]) -> list[str]:
        """Return paths of leaf columns as the file has them."""
        if not self._renames:
            return list(leaves)
        pairs = zip(leaf_paths(self._schema), leaf_paths(self._stored), strict=True)
        wanted = set(leaves)
        return [stored for path, stored in pairs if path in wanted]

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self._rows

    @property
    def written_bytes(self) -> int:
        """Size of the file so far, without the row group that is held back."""
        size: int = self._sink.tell()
        return size

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take rows with the table's columns and types.

        Raises:
            InvariantError: the rows do not have the schema of the table.
            StorageError: the store failed.
        """
        table = self._conformed(rows)
        for part in self._parts(table):
            self._held.append(part)
            self._held_rows += part.num_rows
            self._held_bytes += part.nbytes
            self._rows += part.num_rows
            if self._held_rows >= self._group_rows or self._held_bytes >= GROUP_BYTES:
                self._write_group(self._group_rows)
        if self._held_rows and self._held_rows < table.num_rows:
            # What is held back must not keep the whole of a large input alive.
            rest = pa.concat_tables(self._held)
            self._held = [rest.take(np.arange(rest.num_rows))]

    def _conformed(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        if rows.schema.names != self._schema.names or rows.schema.types != self._schema.types:
            raise InvariantError(f"rows for {self.path} have a different schema: {rows.schema}")
        return pa.Table.from_arrays(rows.columns, schema=self._schema)

    def _parts(self, table: pa.Table) -> Iterator[pa.Table]:
        """Divide rows into parts that are no larger than a row group, unless one row is."""
        for start in range(0, table.num_rows, self._group_rows):
            part = table.slice(start, self._group_rows)
            if part.nbytes <= GROUP_BYTES or part.num_rows == 1:
                yield part
            else:
                half = part.num_rows // 2
                yield from self._parts(part.slice(0, half))
                yield from self._parts(part.slice(half))

    def _write_group(self, limit: int) -> None:
        table = pa.concat_tables(self._held)
        group, rest = table.slice(0, limit), table.slice(limit)
        self._groups.append(group.num_rows)
        for name, ranges in self._floats.items():
            ranges.append(float_range(group.column(name)))
        if self._index is not None:
            self._index.add(key_hashes(group, self._spec.key))
        with writing(self.path):
            self._parquet.write_table(self._renamed(group), row_group_size=limit)
        self._held = [rest] if rest.num_rows else []
        self._held_rows, self._held_bytes = rest.num_rows, rest.nbytes

    def _renamed(self, group: pa.Table) -> pa.Table:
        """Return rows under the names that the file has for their columns, and their parts."""
        if not self._renames:
            return group
        pairs = zip(group.columns, self._schema, self._stored, strict=True)
        columns = [
            pa.chunked_array([fitted(each, *fields) for each in column.chunks], fields[1].type)
            for column, *fields in pairs
        ]
        return pa.table(columns, schema=self._stored)

    def close(self) -> pa.Table:
        """Finish the file and return its record (ADDED, one row).

        Raises:
            InvariantError: the file does not hold what was written to it.
            BadRecordError: a row packs so well that no reader would take it.
            StorageError: the store failed.
        """
        if self._held_rows:
            self._write_group(self._group_rows)
        with writing(self.path):
            known = named(self.path)
            if self._index is not None and len(self._groups) > 1:  # or there is nothing to skip
                known |= self._index.write(self._sink)
            self._parquet.add_key_value_metadata(known)
            self._parquet.close()
            written = self._sink.tell()
            self._sink.close()
            self._closed = True
            footer, digest = self._require_whole(written)
        floats = {name: joined(ranges, self._groups) for name, ranges in self._floats.items()}
        row = {
            "path": self.path,
            "partition": partition_text(self._place.partition),
            "bucket": self._place.bucket,
            "kind": self._place.kind,
            "rows": self._rows,
            "bytes": written,
            "order": self._order,
            "schema_id": self._spec.schema.id,
            "footer": digest,
            "stats": file_stats(footer, self._spec, floats) if self._spec.statistics else None,
        }
        return pa.Table.from_pylist([row], schema=ADDED)

    def _require_whole(self, written: int) -> tuple[pq.FileMetaData, int]:
        """Look at the file as a reader will: its size, its footer and the footer's hash."""
        with self._store.filesystem().open_input_file(self.path) as file:
            size = file.size()
            body = footer_bytes(file, size)
            footer = parse_footer(body)
        if footer.num_rows != self._rows or size != written:
            message = (
                f"{self.path} holds {footer.num_rows} rows in {size} bytes, "
                f"but {self._rows} rows in {written} bytes were written"
            )
            raise InvariantError(message)
        unpacked = unpacked_bytes(footer)
        if unpacked > unpacked_bytes_max(footer, size):
            message = (
                f"{self.path} packs {unpacked} bytes into {size}, which readers take for damage: "
                f"a single row has more than {GROUP_BYTES_FREE} bytes"
            )
            hint = "use smaller values, or set file.compression=snappy"
            raise BadRecordError(message, hint=hint, column="", sample={})
        return footer, footer_hash(body)

    def abandon(self) -> None:
        """Close the file without finishing it; it stays as garbage of its instant."""
        if not self._closed:
            self._closed = True
            self._held = []
            self._parquet.is_open = False  # so that it does not write a footer when it goes
            with contextlib.suppress(OSError, pa.ArrowException):  # the first error matters
                self._sink.close()

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Abandon the file unless ``close`` was called."""
        self.abandon()
