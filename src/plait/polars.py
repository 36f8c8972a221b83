"""Tables as LazyFrames of Polars: ``plait.polars.scan``.

Polars hands down which columns, rows and how many of them a query needs. It evaluates its predicate
itself, on every row that it is given: what it makes of nulls and NaN is for Polars to say. Plait
only leaves out what cannot match. It understands the predicate as far as it can, and the rest of it
leaves out nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

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
    source: str | Table | Scan,
    columns: str | Sequence[str] | None = None,
    *,
    version: int | None = None,
    as_of: Moment | None = None,
    storage_options: Mapping[str, object] | None = None,
    allow: str | Iterable[str] | None = None,
) -> pl.LazyFrame:
    """Return a version of a table as a LazyFrame. Nothing but metadata is read yet.

    The version is pinned now: its files are kept until the frame, and all that were made of it, are
    dropped. Columns, predicates and ``head`` are pushed into the scan.

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
    if not isinstance(source, str):
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
    frame: pl.LazyFrame = library.io.plugins.register_io_source(
        _Source(source), schema=library.from_arrow(source.schema.empty_table()).schema
    )
    return frame


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
