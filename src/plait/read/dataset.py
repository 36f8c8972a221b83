"""A scan as a dataset of pyarrow: what DuckDB, Polars and others push their work into.

Whoever asks for a ``pyarrow.dataset.Dataset`` by ``isinstance`` gets one, and all of its methods
are ours. So every file is read by Plait's reader: hidden rows are hidden, and columns have the
names, types and defaults of the version. Underneath, each dataset of pyarrow has an object of C++.
Ours is one that cannot be read: code that passes our methods by gets an error, never an empty table
or rows that were deleted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import acero, fs

from plait.errors import OptionError
from plait.expr import Where, parse_where
from plait.expr.implied import fields_of
from plait.model.schema import names_of, unknown_column
from plait.read.plan import ScanPlan

Projection: TypeAlias = Sequence[str] | Mapping[str, pc.Expression] | None
"""The columns that a reader wants, or expressions by the names of the columns to return."""

_TUNING: Final = frozenset(
    (
        *("batch_readahead", "fragment_readahead", "fragment_scan_options"),
        *("use_threads", "cache_metadata", "memory_pool"),
    )
)
"""Options of pyarrow's scanners that say how to read. A scan has its own way, in bounded memory."""
_NOWHERE: Final = "/dev/null"
"""No file can be in it, for it is no directory."""
_ADVICE: Final = "read this dataset with its own methods, or pass its to_reader()"


class _Scan(Protocol):
    """What a dataset asks of its scan (``read/scan.py``, which makes datasets)."""

    @property
    def version(self) -> int: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def plan(self) -> ScanPlan: ...

    def narrowed(self, columns: Sequence[str] | None = None, where: Where = None) -> Self: ...

    def by_file(self, where: Where = None) -> Iterator[Self]: ...

    def head(self, rows: int = 5) -> pa.Table: ...

    def count(self) -> int: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


class _Readable:
    """The methods that datasets and their fragments have in common."""

    _scan: _Scan
    _filter: pc.Expression | None = None

    def scanner(
        self,
        columns: Projection = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        batch_size: int | None = None,
        **options: object,
    ) -> ScanScanner:
        """Return a scanner of some columns and rows. It can be used any number of times.

        Args:
            columns: names of columns, or expressions by the names of the columns to return.
            filter: which rows, by the names of columns; Arrow decides what it makes of nulls and
                NaN.
            batch_size: the most rows of a batch; by default about 16 MiB.
            options: how pyarrow would read; ignored.

        Raises:
            SchemaMismatchError: there is no such column.
            PredicateError: the filter does not fit the columns, or names one by its position.
            TypeError: pyarrow's scanners have no such option.
        """
        return ScanScanner(self._narrowed(filter), columns, _known(batch_size, options))

    def to_batches(self, columns: Projection = None, **how: object) -> Iterator[pa.RecordBatch]:
        """Stream the rows as record batches; arguments as for ``scanner``."""
        return self.scanner(columns, **how).to_batches()  # type: ignore[arg-type] # as given

    def to_table(self, columns: Projection = None, **how: object) -> pa.Table:
        """Read the rows into a table; arguments as for ``scanner``."""
        return self.scanner(columns, **how).to_table()  # type: ignore[arg-type] # as given

    def to_reader(self, columns: Projection = None, **how: object) -> pa.RecordBatchReader:
        """Stream the rows; arguments as for ``scanner``."""
        return self.scanner(columns, **how).to_reader()  # type: ignore[arg-type] # as given

    def head(self, num_rows: int, columns: Projection = None, **how: object) -> pa.Table:
        """Return the first rows; no more files are opened than these need."""
        return self.scanner(columns, **how).head(num_rows)  # type: ignore[arg-type] # as given

    def take(self, indices: object, columns: Projection = None, **how: object) -> pa.Table:
        """Return the rows at some places in the order in which this dataset is read.

        All rows are read into memory first: use ``head``, or a filter, for some of them.
        """
        return self.scanner(columns, **how).take(indices)  # type: ignore[arg-type] # as given

    def count_rows(
        self,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **how: object,
    ) -> int:
        """Count the rows; without a filter from metadata alone."""
        return self.scanner((), filter, **how).count_rows()  # type: ignore[arg-type] # as given

    def _narrowed(self, wanted: pc.Expression | None) -> _Scan:
        scan = self._scan
        for each in (self._filter, wanted):
            if each is not None:
                # It may look at the columns of the dataset, which may be some of the table's.
                scan = scan.narrowed(where=parse_where(each, self._scan.schema))
        return scan

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream the rows through Arrow's C interface; each call reads anew."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


class ScanDataset(_Readable, ds.UnionDataset):  # type: ignore[misc] # pyarrow has no types
    """A version of a table, as a dataset of pyarrow. See ``Scan.to_dataset``.

    It keeps the files of its version until it is dropped. Pickled and unpickled, it has opened
    the table and pinned the same version in that process.
    """

    def __init__(self, scan: _Scan, filtered: pc.Expression | None = None) -> None:
        """Show a scan as a dataset; ``filtered`` is what ``filter`` left of the rows."""
        schema, parquet = scan.schema, ds.ParquetFileFormat()
        nowhere = fs.SubTreeFileSystem(_NOWHERE, fs.LocalFileSystem())
        none = parquet.make_fragment(_ADVICE, filesystem=nowhere)
        super().__init__(schema, [ds.FileSystemDataset([none], schema, parquet, nowhere)])
        self._scan, self._filter = scan, filtered

    @property
    def schema(self) -> pa.Schema:
        """The columns of the version, or those of the scan."""
        return self._scan.schema

    @property
    def version(self) -> int:
        """The version of the table that is read."""
        return self._scan.version

    @property
    def partition_expression(self) -> pc.Expression:
        """What is true of every row: nothing is known of all of them."""
        return pc.scalar(True)  # noqa: FBT003 - pyarrow's

    @property
    def children(self) -> list[ds.Dataset]:
        """The datasets in this one: none."""
        return []

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
    ) -> Iterator[ScanFragment]:
        """Return the files in which a row may match, one after the other.

        Raises:
            ValueError: the dataset was filtered, as pyarrow has it.
        """
        if self._filter is not None:
            raise ValueError("a filtered dataset has no fragments: ask the one before the filter")
        return map(ScanFragment, self._scan.by_file(filter))

    def filter(self, expression: pc.Expression) -> Self:
        """Return the dataset with the rows of which an expression is true as well.

        Raises:
            PredicateError: it does not fit the columns.
        """
        both = expression if self._filter is None else self._filter & expression
        self._narrowed(expression)
        return type(self)(self._scan, both)

    def replace_schema(self, schema: pa.Schema) -> Self:
        """Return the dataset with some of its columns, in another order; of the same types.

        Raises:
            SchemaMismatchError: there is no such column.
            OptionError: a column has another type.
        """
        # The filter may look at a column that is left out.
        fewer = self._narrowed(None).narrowed(columns=schema.names)
        if not fewer.schema.equals(schema):
            message = "the columns of a scan cannot be read in other types"
            raise OptionError(message, hint="cast what was read", key="schema", value="")
        return type(self)(fewer)

    def sort_by(self, sorting: object, **options: object) -> ds.InMemoryDataset:
        """Read all rows and sort them."""
        return self._in_memory().sort_by(sorting, **options)

    def join(self, right_dataset: ds.Dataset, keys: object, **how: object) -> ds.InMemoryDataset:
        """Read all rows and join them, as ``pyarrow.dataset.Dataset.join``."""
        return self._in_memory().join(_plain(right_dataset), keys, **how)

    def join_asof(
        self, right_dataset: ds.Dataset, on: object, by: object, tolerance: object, **how: object
    ) -> ds.InMemoryDataset:
        """Read all rows and join them, as ``pyarrow.dataset.Dataset.join_asof``."""
        return self._in_memory().join_asof(_plain(right_dataset), on, by, tolerance, **how)

    def _in_memory(self) -> ds.InMemoryDataset:
        return ds.InMemoryDataset(self.to_table())

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle the scan, which is opened anew."""
        return type(self), (self._scan, self._filter)

    def __repr__(self) -> str:
        """Show what is read."""
        shown = "" if self._filter is None else f", filter={str(self._filter)[:200]}"
        return f"ScanDataset({self._scan!r}{shown})"


class ScanFragment(_Readable):
    """One file of a dataset, with the methods of ``pyarrow.dataset.Fragment``.

    pyarrow's ``scanner``, ``to_batches`` and ``to_table`` of a fragment take a schema first. Here
    the columns come first, as in a dataset: a file is read in the schema of the dataset.
    """

    def __init__(self, scan: _Scan) -> None:
        """Show a scan of one file."""
        self._scan = scan

    @property
    def path(self) -> str:
        """The file, relative to the table."""
        path: str = self._scan.plan.files["path"][0].as_py()
        return path

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema in which it is read: that of the dataset."""
        return self._scan.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """What is true of every row of it: pruning does not need that."""
        return pc.scalar(True)  # noqa: FBT003 - pyarrow's

    def __repr__(self) -> str:
        """Show what is read."""
        return f"ScanFragment({self.path!r}, version={self._scan.version})"


class ScanScanner:
    """Rows of a dataset to be read, with the methods of ``pyarrow.dataset.Scanner``.

    It is none by ``isinstance``: pyarrow's own reads a gigabyte ahead of whoever wants one row.
    """

    def __init__(self, scan: _Scan, columns: Projection, batch_size: int | None) -> None:
        """Say what to return of the rows of a scan."""
        self.dataset_schema: Final = scan.schema
        self._size = batch_size
        self._made: Mapping[str, pc.Expression] | None = None
        if isinstance(columns, Mapping):
            self._made = columns
            columns = _needed(columns, scan.schema)
        elif columns is not None:
            columns = names_of(columns, "columns")
            for name in columns:
                if name not in scan.schema.names:
                    raise unknown_column(name, scan.schema.names)
        self._scan = scan if columns is None else scan.narrowed(columns=columns)
        read = self._scan.schema
        if self._made is not None:
            read = _computed(read.empty_table(), self._made).schema
        self.projected_schema: Final = read

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows as record batches."""
        for batch in self._scan:
            made = self._made
            parts = (
                [batch]
                if made is None
                else _computed(pa.Table.from_batches([batch]), made).to_batches()
            )
            for rows in parts:
                yield from [rows] if self._size is None else _cut(rows, self._size)

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Stream the rows as record batches, each with the fragment that it is from."""
        for part in self._scan.by_file():
            fragment = ScanFragment(part)
            each = ScanScanner(part, None, self._size)
            each._made = self._made
            for batch in each.to_batches():
                yield ds.TaggedRecordBatch(batch, fragment)

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream the rows."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Read the rows into a table."""
        return pa.Table.from_batches(list(self.to_batches()), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows; no more files are opened than these need."""
        rows = self._scan.head(num_rows)
        return rows if self._made is None else _computed(rows, self._made)

    def take(self, indices: object) -> pa.Table:
        """Return the rows at some places in the order in which they are read.

        All rows are read into memory first.
        """
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Count the rows; without a filter from metadata alone."""
        return self._scan.count()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream the rows through Arrow's C interface; each call reads anew."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def _plain(dataset: object) -> object:
    return dataset._in_memory() if isinstance(dataset, ScanDataset) else dataset  # noqa: SLF001 - ours


def _known(batch_size: int | None, options: Mapping[str, object]) -> int | None:
    for name in options:
        if name not in _TUNING:
            raise TypeError(f"scanner() got an unexpected keyword argument {name!r}")
    if batch_size is not None and batch_size < 1:
        message = f"batch_size={batch_size} is no number of rows"
        raise OptionError(message, hint="pass 1 or more", key="batch_size", value=str(batch_size))
    return batch_size


def _needed(columns: Mapping[str, pc.Expression], schema: pa.Schema) -> list[str]:
    """Name the columns that expressions look at; every one if one of them does not tell."""
    found: set[str] = set()
    for each in columns.values():
        names = fields_of(each)
        if names is None:
            return list(schema.names)
        found |= names
    return [name for name in schema.names if name in found]


def _computed(rows: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    """Compute columns of rows, in their order."""
    # A constant looks at no column, and a table without columns has no rows for Acero.
    known = rows if rows.num_columns else pa.table({"": pa.nulls(rows.num_rows)})
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(known)),
        acero.Declaration("project", acero.ProjectNodeOptions([*columns.values()], [*columns])),
    ]
    # Without threads: the rows stay in their order.
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _cut(rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    for at in itertools.count(0, size):
        if at >= rows.num_rows:
            return
        yield rows.slice(at, size)
