"""Tables as LazyFrames of Polars: ``plait.polars.scan``.

Polars reads files itself where that makes no difference (``read/native.py``). Of all others, Polars
hands down which columns, rows and how many of them a query needs. It evaluates its predicate
itself, on every row that it is given: what it makes of nulls and NaN is for Polars to say. Plait
only leaves out what cannot match. It understands the predicate as far as it can, and the rest of it
leaves out nothing.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from plait.errors import MissingDependencyError, OptionError, PredicateError
from plait.expr.implied import (
    MIRRORED,
    UNKNOWN,
    Implied,
    comparison,
    constant,
    every,
    find_column,
    is_null,
    membership,
    some,
)
from plait.expr.tree import DEPTH_MAX, TRUE, Column, Predicate, bounded
from plait.read.native import NativeFile
from plait.read.scan import Scan
from plait.table import Table

if TYPE_CHECKING:
    import polars as pl

    from plait.txn.time_travel import Moment

_OPERATORS: Final = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_ENDS: Final = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}
"""What BETWEEN compares with its two bounds."""
_UNITS: Final = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}


def scan(
    source: str | os.PathLike[str] | Table | Scan,
    columns: str | Sequence[str] | None = None,
    *,
    version: int | None = None,
    as_of: Moment | None = None,
    storage_options: Mapping[str, object] | None = None,
    allow: str | Iterable[str] | None = None,
) -> pl.LazyFrame:
    """Return a version of a table as a LazyFrame. No rows are read yet.

    The version is pinned now: its files are kept until the frame, and all that were made of it, are
    dropped. Columns, predicates and ``head`` are pushed into the scan.

    On a disk, Polars reads the files by its own Parquet reader, and leaves out hidden rows. Of a
    scan with a predicate it gets rows from Plait, which then skips files by partition, bucket and
    bounds. It also does so where a file is not as the version has it: other names or types of
    columns, a column that the file lacks, an object store, or more than 1,000 files.

    Args:
        source: the URI of a table, a table, or a scan of one.
        columns: the columns to show; all by default.
        version: as in ``Table.scan``; so is ``as_of``. Not with a scan, which has its version.
        as_of: a moment instead of a version.
        storage_options: as in ``Table.open``; so is ``allow``. Only with a URI.
        allow: places outside of the table that may be used.

    Raises:
        MissingDependencyError: Polars is not installed.
        OptionError: the scan has a limit, or an option does not apply to the source.
        TableNotFoundError: there is no table.
        CorruptMetadataError: a file is not what the table's metadata says.
        InstantExpiredError: the version was cleaned.

    >>> import pyarrow as pa
    >>> import polars as pl
    >>> import plait.polars
    >>> from plait import Table
    >>> t = Table.create("memory://doc-polars", "id bigint, v string", record_key=["id"])
    >>> t.upsert(pa.table({"id": [1, 2], "v": ["a", "b"]})).version
    1
    >>> plait.polars.scan("memory://doc-polars").filter(pl.col("id") > 1).collect().rows()
    [(2, 'b')]
    """
    library = _library()
    if isinstance(source, Scan):
        _refuse("a scan", version=version, as_of=as_of)
    if isinstance(source, (Table, Scan)):
        what = "a scan" if isinstance(source, Scan) else "a table that is open"
        _refuse(what, storage_options=storage_options, allow=allow)
    if not isinstance(source, Scan):
        table = source
        if not isinstance(table, Table):
            table = Table.open(table, storage_options=storage_options, allow=allow)
        source = table.scan(columns, version=version, as_of=as_of)
    elif columns is not None:
        source = source.narrowed(columns=[columns] if isinstance(columns, str) else columns)
    source.require_unlimited()
    frame = _native(library, source)
    return _lazy(library, source) if frame is None else frame


def _lazy(library: Any, scan: Scan) -> pl.LazyFrame:  # noqa: ANN401 - a module
    """Return a frame whose rows are read by Plait."""
    frame: pl.LazyFrame = library.io.plugins.register_io_source(
        _Source(scan), schema=_schema(library, scan)
    )
    return frame


def _schema(library: Any, scan: Scan) -> pl.Schema:  # noqa: ANN401 - a module
    schema: pl.Schema = library.from_arrow(scan.schema.empty_table()).schema
    return schema


def _refuse(what: str, **options: object) -> None:
    """Refuse options that would be ignored.

    Raises:
        OptionError: there are some.
    """
    for name, value in options.items():
        if value is not None:
            message = f"{name} does not apply to {what}"
            hint = f"leave out {name}, or pass what it applies to"
            raise OptionError(message, hint=hint, key=name, value=str(value)[:200])


def _library() -> Any:  # noqa: ANN401 - a module
    """Import Polars.

    Raises:
        MissingDependencyError: it is not there.
    """
    try:
        import polars  # noqa: ICN001, PLC0415 - only when it is asked for
        import polars.io.plugins  # noqa: PLC0415 - the same
    except ImportError as error:
        message = "polars is not installed"
        hint = "pip install polars"
        raise MissingDependencyError(
            message, hint=hint, library="polars", extra="polars"
        ) from error
    return polars


@dataclass(frozen=True)
class _Source:
    """What Polars calls whenever a query is executed. It keeps the scan, and so its files."""

    scan: Scan

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """Return the rows that are asked for.

        A limit is of the rows before the predicate: Polars hands down one that comes after it
        never, and keeps it to itself.
        """
        del batch_size  # a hint
        library = _library()
        scan, names = self.scan, with_columns
        if predicate is not None and n_rows is None:
            follows = implied_by(predicate, scan.schema)
            scan = scan if follows == TRUE else scan.narrowed(where=follows)
        scan = scan.narrowed(columns=names, limit=n_rows)
        for batch in scan:
            frame = _frame(library, batch)
            yield frame if predicate is None else frame.filter(predicate)


def _frame(library: Any, batch: pa.RecordBatch) -> pl.DataFrame:  # noqa: ANN401 - a module
    if batch.num_columns:
        frame: pl.DataFrame = library.from_arrow(batch)
        return frame
    empty: pl.DataFrame = library.DataFrame(height=batch.num_rows)
    return empty


# --- files that Polars reads itself --------------------------------------------------------------


def _native(library: Any, scan: Scan) -> pl.LazyFrame | None:  # noqa: ANN401 - a module
    """Return a frame whose files Polars reads itself, as far as it can; None: none of them.

    Polars makes one plan of a query and its scans of Parquet: what a join has found skips row
    groups of the other side, for example. It does nothing of that through an IO source.
    """
    found = scan._native(masked=_hides_rows())  # noqa: SLF001 - ours
    if found is None:
        return None
    files, rest = found
    hidden = _Hidden(files.files)
    frame = _parquet(library, [file.place for file in files.files], hidden if hidden.any else None)
    stored = frame.collect_schema()
    if any(stored.get(name) != kind for name, kind in _schema(library, scan).items()):
        return None
    # Projection drops this column from each plan. It stays in the frame, and so keeps the scan.
    name = "_plait"
    while name in stored:
        name += "_"
    kept = library.lit(0).map_batches(_Kept(scan), return_dtype=library.Int32, is_elementwise=True)
    frame = frame.with_columns(kept.alias(name))
    frame = frame.select(library.selectors.by_name(*scan.schema.names))
    return library.concat([frame, _lazy(library, rest)]) if rest.plan.files.num_rows else frame


def _parquet(
    library: Any,  # noqa: ANN401 - a module
    places: Sequence[str],
    hidden: _Hidden | None,
) -> pl.LazyFrame:
    """Let Polars read files. Some may have columns besides that others lack: these were dropped.

    Every column that is wanted is in every file. With the argument ``schema``, Polars would not
    count rows before it reads them, and join in the order in which the query names its tables.
    """
    more = {} if hidden is None else {"_deletion_files": ("delta-deletion-vector", hidden)}
    frame: pl.LazyFrame = library.scan_parquet(
        list(places),
        extra_columns="ignore",
        missing_columns="insert",
        glob=False,
        hive_partitioning=False,
        **more,
    )
    return frame


@dataclass(frozen=True)
class _Kept:
    """What holds a scan, and with it the files of its version."""

    scan: Scan

    def __call__(self, column: pl.Series) -> pl.Series:
        return column


@dataclass(frozen=True)
class _Hidden:
    """What Polars asks which rows of files to show, whenever a query is executed."""

    files: tuple[NativeFile, ...]

    @property
    def any(self) -> bool:
        """Whether any row is hidden."""
        return any(file.hidden is not None for file in self.files)

    def __call__(self, asked: pl.DataFrame) -> pl.DataFrame:
        """Return for each path a list of whether each row is shown; null if all are.

        Raises:
            KeyError: Polars spells a path in another way than it was told.
        """
        known = {file.place: file for file in self.files}
        files = [known[place] for place in asked.to_series(0).to_list()]
        counts = [0 if file.hidden is None else file.rows for file in files]
        ends = np.cumsum([0, *counts])
        shown = np.ones(ends[-1], np.bool_)
        for file, start in zip(files, ends[:-1], strict=True):
            if file.hidden is not None:
                shown[start + file.hidden.astype(np.int64)] = False
        every = pa.array([file.hidden is None for file in files])
        lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(shown), mask=every)
        frame: pl.DataFrame = _library().from_arrow(pa.table({"selection_vector": lists}))
        return frame


@functools.cache
def _hides_rows() -> bool:
    """Tell whether this Polars leaves out rows by their position, as it does for Delta Lake.

    The argument for it is private, so this tries what it does. Files with hidden rows are read by
    Plait if it does anything else.
    """
    library = _library()
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder, "rows.parquet"))
        rows = library.DataFrame({"a": [0, 1, 2, 3], "gone": [4, 5, 6, 7]})
        rows.write_parquet(place, row_group_size=2)
        hidden = _Hidden((NativeFile(place, 4, np.array([0, 3], np.uint64)),))
        try:
            frame = _parquet(library, [place], hidden).select("a")
            column = library.col("a")
            queries = frame, frame.filter(column > 1), frame.head(1), frame.select(library.len())
            found = [query.collect().to_series().to_list() for query in queries]
        except (Exception, library.exceptions.PanicException):  # noqa: BLE001 - private: anything
            return False
    return found == [[1, 2], [2], [1], [2]]


# --- predicates of Polars ------------------------------------------------------------------------


def implied_by(predicate: pl.Expr, schema: pa.Schema) -> Predicate:
    """Return what follows from a predicate of Polars; TRUE where that is nothing.

    An expression of Polars can be looked into as JSON. Polars does not promise that form, so
    whatever is not as expected tells nothing.
    """
    try:
        found = _condition(json.loads(predicate.meta.serialize(format="json")), schema, 0)
        return bounded(found.true)
    except (
        *(pa.ArrowException, PredicateError, ValueError, LookupError),
        *(TypeError, AttributeError, ArithmeticError, RecursionError, Warning),
    ):
        return TRUE


def _condition(node: Any, schema: pa.Schema, depth: int) -> Implied:  # noqa: ANN401 - JSON
    """Return what follows from a node of the tree."""
    if depth > DEPTH_MAX or not isinstance(node, dict):
        return UNKNOWN
    match node:
        case {"Column": str(name)}:
            column = find_column(name, schema)
            boolean = column is not None and pa.types.is_boolean(column.type)
            return comparison(column, "=", pa.scalar(value=True)) if column and boolean else UNKNOWN
        case {"Literal": {"Scalar": {"Boolean": bool(value)}}}:
            return constant(value)
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}}:
            return _binary(op, left, right, (schema, depth + 1))
        case {"Function": {"input": inputs, "function": {"Boolean": name}}}:
            return _function(name, inputs, schema, depth + 1)
    return UNKNOWN


def _binary(op: str, left: Any, right: Any, within: tuple[pa.Schema, int]) -> Implied:  # noqa: ANN401 - JSON
    schema, depth = within
    if op in ("And", "LogicalAnd"):
        return every([_condition(each, schema, depth) for each in (left, right)])
    if op in ("Or", "LogicalOr"):
        return some([_condition(each, schema, depth) for each in (left, right)])
    column, value = _column(left, schema), _value(right)
    if op in _OPERATORS and column is not None and value is not None:
        return comparison(column, _OPERATORS[op], value)
    column, value = _column(right, schema), _value(left)
    if op in _OPERATORS and column is not None and value is not None:
        return comparison(column, MIRRORED[_OPERATORS[op]], value)
    return UNKNOWN


def _function(name: Any, inputs: Any, schema: pa.Schema, depth: int) -> Implied:  # noqa: ANN401 - JSON
    first, *others = inputs
    if name == "Not":
        return _condition(first, schema, depth).inverse
    column = _column(first, schema)
    if column is None:
        return UNKNOWN
    match name, others:
        case "IsNull", []:
            return is_null(column)
        case "IsNotNull", []:
            return is_null(column).inverse
        case {"IsIn": _}, [{"Literal": {"Scalar": {"List": body}}}]:
            with pa.ipc.open_stream(bytes(body)) as stream:
                return membership(column, stream.read_all().column(0).combine_chunks())
        case {"IsBetween": {"closed": str(closed)}}, [low, high] if closed in _ENDS:
            ends = [_value(low), _value(high)]
            each = zip(_ENDS[closed], ends, strict=True)
            return every([UNKNOWN if v is None else comparison(column, op, v) for op, v in each])
    return UNKNOWN


def _column(node: Any, schema: pa.Schema) -> Column | None:  # noqa: ANN401 - JSON
    match node:
        case {"Column": str(name)}:
            return find_column(name, schema)
    return None


def _value(node: Any) -> pa.Scalar | None:  # noqa: ANN401 - JSON
    """Return a literal; None if it is not understood, such as NaN, which JSON does not have."""
    match node:
        case {"Literal": {"Scalar": {**scalar}}} if len(scalar) == 1:
            ((kind, value),) = scalar.items()
            return _scalar(str(kind), value)
    return None


def _scalar(kind: str, value: Any) -> pa.Scalar | None:  # noqa: ANN401 - JSON
    match kind, value:
        case "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32", int():
            return pa.scalar(value, pa.int64())
        case "Float64", float():
            return pa.scalar(value, pa.float64())
        case "Float32", float():
            return pa.scalar(value, pa.float32())
        case "String", str():
            return pa.scalar(value, pa.string())
        case "Boolean", bool():
            return pa.scalar(value, pa.bool_())
        case "Date", int():
            return pa.scalar(value, pa.int32()).cast(pa.date32())
        case "Datetime", [int(count), str(unit), None] if unit in _UNITS:
            return pa.scalar(count, pa.timestamp(_UNITS[unit]))
        case "Datetime", [int(count), str(unit), {"inner": str()}] if unit in _UNITS:
            return pa.scalar(count, pa.timestamp(_UNITS[unit], "UTC"))
        case "Decimal", [int(count), int(precision), int(scale)]:
            number = Decimal(count).scaleb(-scale)
            return pa.scalar(number, pa.decimal128(precision, scale))
    return None
