"""Scans and pinned versions: the results of ``Table.scan()`` and ``Table.snapshot()``."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, Self, SupportsIndex, TypeAlias

import pyarrow as pa

from plait.errors import InstantExpiredError, OptionError, PredicateError, SchemaMismatchError
from plait.expr import Where, columns_read, parse_where, to_json
from plait.expr.tree import all_of
from plait.files.data_file import LiveFile, live_files
from plait.model.plan import Snapshot
from plait.model.schema import column_of, names_of, unknown_column
from plait.read.ahead import read_ahead
from plait.read.frames import Frames, needs
from plait.read.native import NativeFiles, duckdb_relation, native_files
from plait.read.plan import ScanPlan, plan_scan
from plait.read.slices import SliceReader
from plait.read.splits import SPLIT_BYTES, ScanSplit, divide
from plait.storage.port import Store

if TYPE_CHECKING:
    import duckdb

    from plait.read.dataset import ScanDataset

Asked: TypeAlias = tuple[int, Sequence[str], Where, int | None]
"""A version, and the columns, the predicate and the limit of a scan of it."""


class Origin(Protocol):
    """The table that a scan is of, for what its snapshot alone does not tell."""

    def select(self, version: int, where: Where) -> Snapshot:
        """Return a version of a large table anew, with the bounds that a predicate looks at.

        The files of the version are kept by the read pin that there is.
        """
        ...

    def pickled(self, asked: Asked) -> tuple[Callable[..., Scan], tuple[object, ...]]:
        """Return how another process opens the same scan, in the form of ``__reduce__``."""
        ...


WIDTH_MAX: Final = 4
"""How many groups of files are read at once."""
DEPTH: Final = 2
"""How many batches each of them may be ahead of the consumer."""
_GROUP_ROWS = 1 << 18
_SIZE_MAX: Final = (1 << 63) - 1


class Scan(Frames):
    """Selected columns and rows of a table at one version.

    Each method reads when it is called, and reads again on every call. All of them return the same
    rows, in no particular order. Batches are streamed: at most 12 of them, of about 16 MiB each,
    are in memory at once.

    DuckDB, Polars and others also take a scan directly, through ``__arrow_c_stream__``. They then
    read all of it: ``to_dataset`` gives them what they can push columns and predicates into.

    A scan of a table that other processes can reach can be pickled. Unpickled, it has opened the
    table and pinned the same version there.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        *,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        limit: int | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Pin a snapshot.

        Args:
            store: the table's.
            snapshot: the version to read.
            columns: the columns to return, in this order; None: all. ``_written`` is the version
                that wrote the row, where the table has the property ``rows.written``.
            where: SQL text, a pyarrow expression or a predicate, on any of these columns and of
                those that are not returned; None: all rows.
            limit: the most rows to return, any of them; None: all rows.
            origin: the table; None: the scan cannot be pickled, and may prune less if narrowed.

        Raises:
            OptionError: the limit is no number of rows.
            SchemaMismatchError: there is no such column.
            PredicateError: the predicate cannot be understood.
        """
        self._store, self._snapshot = store, snapshot
        self._limit = None if limit is None else _size(limit, "limit")
        self._origin = origin
        spec = snapshot.spec
        hidden = None if columns is None else spec.readable
        self._columns = known_columns(columns, spec.schema.arrow, hidden)
        self._where = where
        self._reader = SliceReader.of(store, snapshot)
        self._plan = plan_scan(snapshot, columns=self._columns, where=where)
        if self._limit is not None:
            self._plan = self._plan.limited(self._limit)

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
        spec = self._snapshot.spec
        where = parse_where(self._where, spec.readable)
        names = columns_read(where)
        if names is not None and not names <= set(spec.schema.names):
            return None  # the hidden column, which no check for conflicts knows
        try:
            return None if self._where is None else to_json(where)
        except PredicateError:  # a pyarrow expression
            return None

    @property
    def plan(self) -> ScanPlan:
        """The files that are read, and those that are pruned."""
        return self._plan

    @property
    def limit(self) -> int | None:
        """The most rows that are returned; None: all rows."""
        return self._limit

    def count(self) -> int:
        """Count the rows.

        Without a predicate no file is read. With one, the files are not read of which the
        metadata proves that all of their rows match.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-count", "id bigint", record_key=["id"])
        >>> t.upsert(pa.table({"id": [1, 2, 3]})).version
        1
        >>> t.scan(where="id < 3").count()
        2
        """
        if self.plan.condition is None:
            return self._at_most(self.plan.rows)
        known, rest = self.plan.counted(self._snapshot.spec)
        if self._limit is not None and known >= self._limit:
            return self._limit
        return self._at_most(known + sum(rows.num_rows for rows in self._stream((), rest)))

    def head(self, rows: int = 5) -> pa.Table:
        """Return some rows; no more files are opened than these need.

        Args:
            rows: how many.

        Raises:
            OptionError: that is no number of rows.
        """
        return self.narrowed(limit=_size(rows, "rows")).to_arrow()

    def narrowed(
        self,
        columns: Sequence[str] | None = None,
        where: Where = None,
        limit: int | None = None,
    ) -> Self:
        """Return a scan of the same version that reads less; it keeps the files as this one does.

        Args:
            columns: some of its columns; None: the same.
            where: what must be true as well.
            limit: the most rows to return.

        Raises:
            SchemaMismatchError: there is no such column.
            PredicateError: the predicate cannot be understood.
        """
        snapshot = self._snapshot
        if where is not None:
            self.require_unlimited()
            schema = snapshot.spec.readable
            where = all_of(parse_where(self._where, schema), parse_where(where, schema))
            if snapshot.total is not None and self._origin is not None:
                snapshot = self._selected(self._origin, where)
        limits = [each for each in (limit, self._limit) if each is not None]
        scan = type(self)(
            self._store,
            snapshot,
            columns=self._columns if columns is None else known_columns(columns, self.schema),
            where=self._where if where is None else where,
            limit=min(limits, default=None),
            origin=self._origin,
        )
        scan.keep(self)
        return scan

    def by_file(self, where: Where = None) -> Iterator[Self]:
        """Return a scan of each file that is read, one after the other.

        Args:
            where: only files in which this may be true of a row; it selects no rows.
        """
        self.require_unlimited()
        files = (self if where is None else self.narrowed(where=where)).plan.files
        for at in range(files.num_rows):
            alone = replace(self._snapshot, files=files.slice(at, 1), total=None, unmatched=0)
            scan = type(self)(self._store, alone, columns=self._columns, where=self._where)
            scan.keep(self)
            yield scan

    def splits(self, *, size_bytes: int = SPLIT_BYTES) -> list[ScanSplit]:
        """Divide the scan into parts that other processes can read, each alone.

        Together they have the rows of the scan. The files are kept as long as this process holds
        the scan or one of its splits.

        Args:
            size_bytes: about how many bytes of files a split reads at most. A row group is read
                whole.

        Raises:
            OptionError: the size is below 1, or the scan has a limit.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-splits", "id bigint", record_key=["id"], buckets=4)
        >>> t.upsert(pa.table({"id": list(range(100))})).version
        1
        >>> parts = t.scan(where="id >= 90").splits(size_bytes=1)
        >>> sum(part.to_arrow().num_rows for part in parts)
        10
        """
        self.require_unlimited()
        splits = divide(
            self._store, self._snapshot, self.plan, self.schema, _size(size_bytes, "size_bytes", 1)
        )
        for split in splits:
            split.keep(self)
        return splits

    def to_dataset(self) -> ScanDataset:
        """Return the scan as a dataset of pyarrow, into which others push columns and predicates.

        DuckDB finds it by the name of its variable, ``polars.scan_pyarrow_dataset`` takes it, and
        so does whatever takes a ``pyarrow.dataset.Dataset``. It stays at the version of the scan,
        whose files are kept until the dataset is dropped.

        >>> import pyarrow as pa
        >>> import pyarrow.compute as pc
        >>> from plait import Table
        >>> t = Table.create("memory://doc-dataset", "id bigint, v string", record_key=["id"])
        >>> t.upsert(pa.table({"id": [1, 2], "v": ["a", "b"]})).version
        1
        >>> trips = t.scan().to_dataset()
        >>> trips.to_table(columns=["v"], filter=pc.field("id") == 2).to_pylist()
        [{'v': 'b'}]
        >>> import duckdb
        >>> duckdb.sql("SELECT v FROM trips WHERE id > 1").fetchall()
        [('b',)]
        """
        from plait.read.dataset import ScanDataset  # noqa: PLC0415 - Arrow's datasets are heavy

        self.require_unlimited()
        return ScanDataset(self)

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation of the scan, which reads whenever it is executed.

        DuckDB reads files on a disk itself, at the speed of its own Parquet reader, and leaves out
        rows that are hidden. Files are read by Plait where that would not return the same: they
        have other names or types of columns, the scan has a predicate or a limit, the table is in
        an object store. The relation, and views that are made of it, keep the files as the scan
        does.

        Args:
            connection: where the relation is to be used; None: DuckDB's default connection.

        Raises:
            CorruptMetadataError: a file is not what the table's metadata says.
            MissingDependencyError: DuckDB is not installed.

        >>> import duckdb, pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-to-duckdb", "id bigint, v string", record_key=["id"])
        >>> t.upsert(pa.table({"id": [1, 2], "v": ["a", "b"]})).version
        1
        >>> with duckdb.connect() as connection:
        ...     _ = t.scan().to_duckdb(connection).create_view("trips")
        ...     connection.execute("SELECT v FROM trips WHERE id > 1").fetchall()
        [('b',)]
        """
        found = self._native()
        if found is not None:
            with needs("duckdb", "duckdb"):
                import duckdb  # noqa: PLC0415 - only when it is asked for
            files, rest = found
            home = duckdb.default_connection() if connection is None else connection
            try:
                relation = duckdb_relation(files, rest.to_dataset(), home)
            except duckdb.Error:  # an older DuckDB, or one that may not look at files
                relation = None
            if relation is not None:
                return relation
        return super().to_duckdb(connection)

    def _native(self, *, masked: bool = True) -> tuple[NativeFiles, Self] | None:
        """Return the files that another library's reader can read, and a scan of the others.

        None if there are no such files. The scan of the others keeps all files.

        Args:
            masked: whether the library can leave out hidden rows.

        Raises:
            CorruptMetadataError: a file is not what the table's metadata says.
        """
        if self._limit is not None:
            return None
        found = native_files(self._store, self._snapshot, self.plan, masked=masked)
        if found is None:
            return None
        rest = type(self)(self._store, found.rest, columns=self._columns)
        rest.keep(self)
        return found, rest

    def __reduce__(self) -> tuple[Callable[..., Scan], tuple[object, ...]]:
        """Pickle what another process opens anew, under a read pin of its own."""
        if self._origin is None:
            raise TypeError("no other process can open this scan anew: pickle its splits instead")
        return self._origin.pickled((self.version, self._columns, self._where, self._limit))

    def __repr__(self) -> str:
        """Show what is read."""
        where = "" if self._where is None else f", where={str(self._where)!r}"
        limit = "" if self._limit is None else f", limit={self._limit}"
        return f"Scan(version={self.version}, columns={list(self._columns)}{where}{limit})"

    def require_unlimited(self) -> None:
        """Refuse to take a part of a scan that returns any rows up to a limit.

        Raises:
            OptionError: it has one.
        """
        if self._limit is not None:
            message = "a scan with a limit cannot be divided or narrowed: it returns any rows"
            hint = "leave out the limit here, and set it last"
            raise OptionError(message, hint=hint, key="limit", value=str(self._limit))

    def _selected(self, origin: Origin, where: Where) -> Snapshot:
        """Return the snapshot with the bounds that a predicate looks at, which it has not yet."""
        try:
            return origin.select(self.version, where)
        except InstantExpiredError:
            # Another client cleaned the version. The read pin keeps its files, not its metadata.
            return self._snapshot

    def _at_most(self, rows: int) -> int:
        return rows if self._limit is None else min(rows, self._limit)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for rows in self._stream(self._columns, self.plan):
            yield pa.record_batch(rows.columns, schema=schema) if len(schema) else rows

    def _stream(self, columns: Sequence[str], plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        if self._limit is not None:
            yield from _first(self._read(live_files(plan.files), columns), self._limit)
            return
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

    def __init__(self, store: Store, snapshot: Snapshot, origin: Origin | None = None) -> None:
        """Keep a snapshot of a table."""
        self._store, self._snapshot, self._origin = store, snapshot, origin

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

    def scan(
        self,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        *,
        limit: int | None = None,
    ) -> Scan:
        """Return a scan of this version; see ``Table.scan``."""
        scan = Scan(
            self._store,
            self._snapshot,
            columns=columns,
            where=where,
            limit=limit,
            origin=self._origin,
        )
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


def _first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Return the first rows; what comes after them is not read."""
    if count:
        for rows in batches:
            yield rows.slice(0, count)
            count -= rows.num_rows
            if count <= 0:
                return


def _size(count: SupportsIndex, key: str, least: int = 0) -> int:
    """Return a number that Arrow can count to; more than that is as if it was the most."""
    try:
        number = -1 if isinstance(count, bool) else operator.index(count)
    except TypeError:
        number = -1
    if number < least:
        message = f"{key}={count!r} is not allowed"
        hint = f"pass a whole number, {least} or more"
        raise OptionError(message, hint=hint, key=key, value=str(count))
    return min(number, _SIZE_MAX)


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
