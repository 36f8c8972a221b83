"""Compute formulas over Arrow rows: whole columns at a time, with the meaning that Spark gives.

AND, OR, CASE and COALESCE compute a part only for the rows that come to it, so that a condition
guards what it stands before: ``CASE WHEN n = 0 THEN NULL ELSE v / n END`` divides by no zero.
Overflow and division by zero are errors, as in Spark's ANSI mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.expr.arrow_out import like_regex
from plait.expr.formula import (
    TARGET,
    Arrow,
    Call,
    Case,
    Cast,
    Constant,
    Formula,
    Function,
    Name,
    Ref,
)
from plait.expr.formula_cast import aligned, cast, wider
from plait.model.schema import type_name

Value: TypeAlias = pa.Array | pa.Scalar
_T = pa.types


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows to compute from: the table's, the source's, or both side by side."""

    tables: Mapping[str, pa.Table]
    length: int

    @classmethod
    def of(cls, **tables: pa.Table) -> Sides:
        """Take tables by their side; all have the same number of rows."""
        return cls(tables, next(iter(tables.values())).num_rows)

    def where(self, chosen: pa.Array) -> Sides:
        """Give the rows for which a flag is true."""
        kept = {side: table.filter(chosen) for side, table in self.tables.items()}
        return Sides(kept, pc.sum(chosen).as_py() or 0)

    def batch(self) -> pa.RecordBatch:
        """Give the rows as one batch; where there are two sides, columns are s.name and t.name."""
        plain = list(self.tables) == [TARGET]
        columns = {
            name if plain else f"{side}.{name}": _whole(table.column(name))
            for side, table in self.tables.items()
            for name in table.column_names
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def compute(formula: Formula, rows: Sides) -> pa.Array:
    """Give the value of a resolved formula for each row.

    Raises:
        PredicateError: an operation does not exist for these types.
        pa.ArrowInvalid: a number overflows, a divisor is zero, or a cast has no value.
    """
    try:
        found = _value(formula, rows)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = f"an operation does not go with the types of its values: {str(error)[:200]}"
        raise PredicateError(message, hint="cast one of them", text="") from error
    return _column(found, rows.length)


def holds(formula: Formula | None, rows: Sides) -> pa.Array:
    """Tell for which rows a condition is true, as flags without nulls."""
    if formula is None:
        return pa.repeat(pa.scalar(value=True), rows.length)
    found = compute(formula, rows)
    if not (_T.is_boolean(found.type) or _T.is_null(found.type)):
        message = f"a condition is {type_name(found.type)}, not boolean"
        raise PredicateError(message, hint="write a comparison", text="")
    return pc.fill_null(found.cast(pa.bool_()), fill_value=False)


def _value(formula: Formula, rows: Sides) -> Value:
    match formula:
        case Ref(side, column):
            found = _whole(rows.tables[side].column(column.path[0]))
            for part in column.path[1:]:
                found = pc.struct_field(found, part)
            return found
        case Constant(value):
            return value
        case Call(name, items):
            if name in _LAZY:
                return _LAZY[name](items, rows)
            return _OPERATIONS[name](*(_value(item, rows) for item in items))
        case Case(branches):
            return _case(branches, rows)
        case Cast(item, kind):
            return cast(_value(item, rows), kind)
        case Arrow(expression):
            return project(expression, rows.batch())
        case Function():
            return _called(formula, rows)
        case Name(parts):
            message = f"the column {'.'.join(parts)!r} was not looked up"
            raise PredicateError(message, text="")


def project(expression: pc.Expression, rows: pa.RecordBatch) -> pa.Array:
    """Compute a pyarrow expression for each row, in order."""
    from pyarrow import acero  # noqa: PLC0415 - it brings pandas along, a second to import

    steps = [
        acero.Declaration(
            "table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))
        ),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["found"])),
    ]
    # Without threads: the rows stay in their order.
    found = acero.Declaration.from_sequence(steps).to_table(use_threads=False)
    return _whole(found.column(0))


def _called(formula: Function, rows: Sides) -> Value:
    found = formula.call(rows.batch())
    if isinstance(found, pa.ChunkedArray):
        found = _whole(found)
    if not isinstance(found, (pa.Array, pa.Scalar)):
        found = pa.scalar(found)
    if isinstance(found, pa.Array) and len(found) != rows.length:
        message = f"a function gave {len(found)} values for {rows.length} rows"
        raise PredicateError(message, hint="give one value a row, or a single one", text="")
    return found


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _column(value: Value, length: int) -> pa.Array:
    if isinstance(value, pa.Scalar):
        empty = not length or not value.is_valid
        return pa.nulls(length, value.type) if empty else pa.repeat(value, length)
    return _whole(value)


# --- what computes only for the rows that come to it -------------------------------------------


def _only(formula: Formula, rows: Sides, chosen: pa.Array) -> pa.Array:
    """Compute for some rows; the others get null."""
    if rows.length and pc.all(chosen).as_py():
        return _column(_value(formula, rows), rows.length)
    kept = rows.where(chosen)
    found = _column(_value(formula, kept), kept.length)
    counted = pc.subtract(pc.cumulative_sum(chosen.cast(pa.int64())), 1)
    return found.take(pc.if_else(chosen, counted, pa.scalar(None, pa.int64())))


def _flags(formula: Formula, rows: Sides, chosen: pa.Array) -> pa.Array:
    return _only(formula, rows, chosen).cast(pa.bool_())


def _joined(items: tuple[Formula, ...], rows: Sides, *, ends: bool) -> pa.Array:
    """AND ends with false, OR with true: what comes after is not computed."""
    left, right = items
    first = _column(_value(left, rows), rows.length).cast(pa.bool_())
    ended = first if ends else pc.invert(first)
    rest = pc.invert(pc.fill_null(ended, fill_value=False))
    second = _flags(right, rows, rest)
    return (pc.or_kleene if ends else pc.and_kleene)(first, second)


def _coalesce(items: tuple[Formula, ...], rows: Sides) -> pa.Array:
    found = [_column(_value(items[0], rows), rows.length)]
    missing = found[0].is_null()
    for item in items[1:]:
        found.append(_only(item, rows, missing))
        missing = pc.and_(missing, found[-1].is_null())
    return pc.coalesce(*aligned(found))


def _case(branches: tuple[tuple[Formula | None, Formula], ...], rows: Sides) -> pa.Array:
    rest = pa.repeat(pa.scalar(value=True), rows.length)
    found: list[pa.Array] = []
    for when, item in branches:
        here = rest
        if when is not None:
            here = pc.and_(rest, pc.fill_null(_flags(when, rows, rest), fill_value=False))
        found.append(_only(item, rows, here))
        rest = pc.and_not(rest, here)
    # Each row has a value in one branch at most.
    return pc.coalesce(*aligned(found))


_LAZY: Final[Mapping[str, Callable[[tuple[Formula, ...], Sides], Value]]] = {
    "and": lambda items, rows: _joined(items, rows, ends=False),
    "or": lambda items, rows: _joined(items, rows, ends=True),
    "coalesce": _coalesce,
}


# --- operators and functions -------------------------------------------------------------------


def _arithmetic(kernel: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """Decimals beside floating-point numbers become the nearest of these."""

    def apply(left: Value, right: Value) -> Value:
        kinds = [left.type, right.type]
        if any(map(_T.is_decimal, kinds)) and any(map(_T.is_floating, kinds)):
            left, right = (cast(side, pa.float64()) for side in (left, right))
        return kernel(left, right)

    return apply


def _divide(left: Value, right: Value) -> Value:
    if not (_T.is_decimal(left.type) and _T.is_decimal(right.type)):
        left, right = (cast(side, pa.float64()) for side in (left, right))
    return pc.divide_checked(left, right)


def _remainder(left: Value, right: Value) -> Value:
    if not (_T.is_integer(left.type) and _T.is_integer(right.type)):
        message = f"{type_name(left.type)} % {type_name(right.type)} is not supported"
        raise PredicateError(message, hint="whole numbers have a remainder", text="")
    whole = pc.divide_checked(left, right)  # towards zero
    return pc.subtract_checked(left, pc.multiply_checked(whole, right))


def _nan(value: Value) -> Value:
    return pc.is_nan(value) if _T.is_floating(value.type) else pa.scalar(value=False)


def _compared(op: str) -> Callable[[Value, Value], Value]:
    """NaN is equal to itself and greater than every number."""
    plain = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}

    def compare(left: Value, right: Value) -> Value:
        left, right = aligned([left, right], moments=True)
        found = plain[op](left, right)
        if not (_T.is_floating(left.type) or _T.is_floating(right.type)):
            return found
        if op == "=":
            return pc.or_(found, pc.and_(_nan(left), _nan(right)))
        over = _nan(right)
        return pc.or_(found, over if op == "<=" else pc.and_(over, pc.invert(_nan(left))))

    return compare


_equal, _less, _at_most = _compared("="), _compared("<"), _compared("<=")


def _same(left: Value, right: Value) -> Value:
    """``<=>``: null is equal to null, and never is the answer null."""
    nulls = pc.and_(
        left.is_null() if isinstance(left, pa.Array) else _is_null(left),
        right.is_null() if isinstance(right, pa.Array) else _is_null(right),
    )
    return pc.or_kleene(pc.fill_null(_equal(left, right), fill_value=False), nulls)


def _is_null(value: Value) -> Value:
    return pc.is_null(value)


def _among(item: Value, *others: Value) -> Value:
    found: Value = pa.scalar(value=False)
    for other in others:
        found = pc.or_kleene(found, _equal(item, other))
    return found


def _like(item: Value, pattern: Value) -> Value:
    return pc.match_substring_regex(item, like_regex(pattern.as_py()))


def _text(item: Value) -> Value:
    if _T.is_string(item.type) or _T.is_null(item.type):
        return item.cast(pa.string())
    message = f"{type_name(item.type)} is no text"
    raise PredicateError(message, hint="write CAST(... AS STRING)", text="")


def _concat(*items: Value) -> Value:
    return pc.binary_join_element_wise(*map(_text, items), pa.scalar("", pa.string()))


def _substring(item: Value, start: Value, length: Value | None = None) -> Value:
    """Count from 1, or from the end if negative; 0 is 1."""
    first = int(start.as_py())
    if first < 0 and length is not None:
        message = "SUBSTRING from the end with a length is not supported"
        raise PredicateError(message, hint="give a function of the rows", text="")
    begin = first - 1 if first > 0 else first
    stop = None if length is None else begin + max(0, int(length.as_py()))
    return pc.utf8_slice_codeunits(_text(item), begin, stop)


def _nullif(left: Value, right: Value) -> Value:
    same = pc.fill_null(_equal(left, right), fill_value=False)
    return pc.if_else(same, pa.scalar(None, left.type), left)


def _extreme(*, least: bool) -> Callable[..., Value]:
    def choose(*items: Value) -> Value:
        found, *rest = aligned(list(items))
        for item in rest:
            smaller = _less(item, found) if least else _less(found, item)
            better = pc.or_(pc.fill_null(smaller, fill_value=False), _is_null(found))
            found = pc.if_else(pc.and_(better, pc.invert(_is_null(item))), item, found)
        return found

    return choose


def _rounded(kernel: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """FLOOR and CEIL give whole numbers."""

    def whole(item: Value) -> Value:
        if _T.is_decimal(item.type):
            found = kernel(wider(item))
            return cast(found, pa.decimal128(found.type.precision - found.type.scale, 0))
        found = kernel(item)
        return cast(found, pa.int64()) if _T.is_floating(found.type) else found

    return whole


_OPERATIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "+": _arithmetic(pc.add_checked),
    "-": _arithmetic(pc.subtract_checked),
    "*": _arithmetic(pc.multiply_checked),
    "/": _divide,
    "%": _remainder,
    "negate": pc.negate_checked,
    "=": _equal,
    "!=": lambda left, right: pc.invert(_equal(left, right)),
    "<": _less,
    "<=": _at_most,
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: _at_most(right, left),
    "<=>": _same,
    "is null": _is_null,
    "in": _among,
    "like": _like,
    "not": lambda item: pc.invert(item.cast(pa.bool_())),
    "nullif": _nullif,
    "greatest": _extreme(least=False),
    "least": _extreme(least=True),
    "abs": pc.abs_checked,
    "floor": _rounded(pc.floor),
    "ceil": _rounded(pc.ceil),
    "upper": lambda item: pc.utf8_upper(_text(item)),
    "lower": lambda item: pc.utf8_lower(_text(item)),
    "trim": lambda item: pc.utf8_trim(_text(item), characters=" "),
    "ltrim": lambda item: pc.utf8_ltrim(_text(item), characters=" "),
    "rtrim": lambda item: pc.utf8_rtrim(_text(item), characters=" "),
    "length": lambda item: pc.utf8_length(_text(item)),
    "concat": _concat,
    "substring": _substring,
}
