"""Scans and pinned versions: the results of ``Table.scan()`` and ``Table.snapshot()``."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from plait.errors import PredicateError, SchemaMismatchError
from plait.expr import Where, parse_where, to_json
from plait.files.data_file import LiveFile, live_files
from plait.model.plan import Snapshot
from plait.model.schema import WRITTEN_FIELD, column_of, names_of, unknown_column
from plait.read.ahead import read_ahead
from plait.read.frames import Frames
from plait.read.plan import ScanPlan, plan_scan
from plait.read.slices import SliceReader
from plait.storage.port import Store

WIDTH_MAX: Final = 4
"""How many groups of files are read at once."""
DEPTH: Final = 2
"""How many batches each of them may be ahead of the consumer."""
_GROUP_ROWS = 1 << 18


class Scan(Frames):
    """Selected columns and rows of a table at one version.

    Each method reads when it is called, and reads again on every call. All of them return the same
    rows, in no particular order. Batches are streamed: at most 12 of them, of about 16 MiB each,
    are in memory at once.

    DuckDB, Polars and others also take a scan directly, through ``__arrow_c_stream__``.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        *,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
    ) -> None:
        """Pin a snapshot.

        Args:
            store: the table's.
            snapshot: the version to read.
            columns: the columns to return, in this order; None: all. ``_written`` is the version
                that wrote the row, where the table has the property ``rows.written``.
            where: SQL text, a pyarrow expression or a predicate; None: all rows.

        Raises:
            SchemaMismatchError: there is no such column.
            PredicateError: the predicate cannot be understood.
        """
        self._store, self._snapshot = store, snapshot
        known = snapshot.spec.schema.arrow
        hidden = known.append(WRITTEN_FIELD) if snapshot.spec.keeps_row_version else None
        self._columns = known_columns(columns, known, hidden)
        self._where = where
        self._reader = SliceReader.of(store, snapshot)
        self._plan = plan_scan(snapshot, columns=self._columns, where=where)

    @property
    def version(self) -> int:
        """The version of the table that is read."""
        return self._snapshot.version

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that is read."""
        return self._snapshot

    @property
    def store(self) -> Store:
        """The store that it is read from."""
        return self._store

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        schema = self._snapshot.spec.schema
        fields = (column_of(name, schema)[1] for name in self._columns)
        return pa.schema([field.remove_metadata() for field in fields])

    @property
    def read_predicate(self) -> dict[str, object] | None:
        """The rows that are read, as a predicate in JSON values; None: all, or unknown."""
        where = parse_where(self._where, self._snapshot.spec.schema.arrow)
        try:
            return None if self._where is None else to_json(where)
        except PredicateError:  # a pyarrow expression
            return None

    @property
    def plan(self) -> ScanPlan:
        """The files that are read, and those that are pruned."""
        return self._plan

    def count(self) -> int:
        """Count the rows; without a predicate no file is read."""
        condition = self.plan.condition
        if condition is None:
            return self.plan.rows
        return sum(rows.num_rows for rows in self._stream(()))

    def __repr__(self) -> str:
        """Show what is read."""
        where = "" if self._where is None else f", where={str(self._where)!r}"
        return f"Scan(version={self.version}, columns={list(self._columns)}{where})"

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for rows in self._stream(self._columns):
            yield pa.record_batch(rows.columns, schema=schema) if len(schema) else rows

    def _stream(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        groups = _grouped(live_files(plan.files))
        if plan.rows <= _GROUP_ROWS:
            for group in groups:
                yield from self._read(group, columns)
            return
        sources = (functools.partial(self._read, group, columns) for group in groups)
        width = min(WIDTH_MAX, os.cpu_count() or 1)
        yield from read_ahead(sources, width=width, depth=DEPTH)

    def _read(self, files: Iterable[LiveFile], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from self._reader.rows(file, columns=columns, where=self.plan.condition)


class Pinned:
    """A pinned version of a table. Its files are kept until it is dropped."""

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        self._store, self._snapshot = store, snapshot

    @property
    def version(self) -> int:
        """The pinned version."""
        return self._snapshot.version

    @property
    def store(self) -> Store:
        """Where the table is."""
        return self._store

    @property
    def schema(self) -> pa.Schema:
        """The columns at that version."""
        return self._snapshot.spec.schema.arrow

    def files(self) -> pa.Table:
        """Return one row per live file."""
        return self._snapshot.files

    def scan(self, columns: str | Sequence[str] | None = None, where: Where = None) -> Scan:
        """Return a scan of this version; see ``Table.scan``."""
        scan = Scan(self._store, self._snapshot, columns=columns, where=where)
        scan.keep(self)
        return scan


def _grouped(files: Iterable[LiveFile]) -> Iterator[list[LiveFile]]:
    """Group small files, so that each group is worth a thread."""
    group: list[LiveFile] = []
    rows = 0
    for file in files:
        group.append(file)
        rows += file.rows
        if rows >= _GROUP_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def known_columns(
    columns: str | Sequence[str] | None, schema: pa.Schema, hidden: pa.Schema | None = None
) -> tuple[str, ...]:
    """Return the columns asked for, or all; raise SchemaMismatchError for an unknown one.

    ``hidden``: the columns that can be asked for, where these are more than all.
    """
    names = tuple(schema.names) if columns is None else names_of(columns, "columns")
    for name in names:
        if name not in (hidden or schema).names:
            raise unknown_column(name, schema.names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"column {twice[0]!r} is requested twice"
        raise SchemaMismatchError(message, hint="name each column once", column=twice[0])
    return names
