"""Compute expressions over Arrow rows: whole columns at a time, with the meaning that Spark gives.

AND, OR, CASE and COALESCE compute a part only for the rows that come to it, so that a condition
guards what it stands before: ``CASE WHEN n = 0 THEN NULL ELSE v / n END`` divides by no zero.
Overflow and division by zero are errors, as in Spark's ANSI mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import InvariantError, PredicateError
from plait.expr.cast import Value, aligned, cast
from plait.expr.functions import FUNCTIONS, compared, contained, matched
from plait.expr.tree import (
    TARGET,
    And,
    Arrow,
    Call,
    Case,
    Cast,
    Column,
    Compare,
    Expression,
    Function,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    Predicate,
    is_simple,
)
from plait.model.schema import type_name

_T = pa.types


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows to compute from: the table's, the source's, or both side by side."""

    tables: Mapping[str, pa.Table | pa.RecordBatch]
    length: int

    @classmethod
    def of(cls, **tables: pa.Table | pa.RecordBatch) -> Sides:
        """Take rows by their side; each side has the same number."""
        return cls(tables, next(iter(tables.values())).num_rows)

    def where(self, chosen: pa.Array) -> Sides:
        """Return the rows for which a flag is true."""
        kept = {side: table.filter(chosen) for side, table in self.tables.items()}
        return Sides(kept, pc.sum(chosen).as_py() or 0)

    def batch(self) -> pa.RecordBatch:
        """Return the rows as one batch; of two sides the columns are called s.name and t.name."""
        plain = list(self.tables) == [TARGET]
        columns = {
            name if plain else f"{side}.{name}": _whole(table.column(name))
            for side, table in self.tables.items()
            for name in table.schema.names
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def compute(expression: Expression, rows: Sides) -> pa.Array:
    """Return the value of a bound expression for each row.

    Raises:
        PredicateError: an operation does not exist for these types.
        pa.ArrowInvalid: a number overflows, a divisor is zero, or a cast has no value.
    """
    try:
        value = _value(expression, rows)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = f"an operation does not support the types of its values: {str(error)[:200]}"
        raise PredicateError(message, hint="cast one of them", text="") from error
    return _column(value, rows.length)


def holds(predicate: Predicate | None, rows: Sides) -> pa.Array:
    """Tell for which rows a predicate is TRUE, as flags without nulls; None is always TRUE."""
    if predicate is None:
        return pa.repeat(pa.scalar(value=True), rows.length)
    return pc.fill_null(_truth(compute(predicate, rows)), fill_value=False)


def _value(expression: Expression, rows: Sides) -> Value:
    match expression:
        case Literal():
            return expression.scalar
        case Column():
            return _cells(expression, rows)
        case Compare() | In() | IsNull() | Like() | And() | Or():
            return _answer(expression, rows)
        case Call("not", (item,)):
            return pc.invert(_truth(_value(item, rows)))
        case Call("coalesce", items):
            return _coalesce(items, rows)
        case Call(name, items):
            return FUNCTIONS[name](*(_value(item, rows) for item in items))
        case Case(branches):
            return _case(branches, rows)
        case Cast(item, kind):
            return cast(_value(item, rows), kind)
        case Arrow(opaque):
            return _by_arrow(opaque, rows.batch(), rows.length)
        case Function():
            return _called(expression, rows)
    raise InvariantError(f"{expression} was not bound")


def _answer(condition: Compare | In | IsNull | Like | And | Or, rows: Sides) -> Value:
    match condition:
        case Compare(left, op, right):
            return compared(op, _value(left, rows), _value(right, rows))
        case IsNull(item, negated):
            return (pc.is_valid if negated else pc.is_null)(_value(item, rows))
        case In(item, values, negated):
            answer = contained(_value(item, rows), values)
            return pc.invert(answer) if negated else answer
        case Like(item, pattern, negated):
            answer = matched(_value(item, rows), pattern)
            return pc.invert(answer) if negated else answer
        case And(items) | Or(items):
            return _joined(items, rows, ends=isinstance(condition, Or))


def _cells(column: Column, rows: Sides) -> pa.Array:
    cells = _whole(rows.tables[column.side].column(column.path[0]))
    for part in column.path[1:]:
        cells = pc.struct_field(cells, part)
    return cells


def _by_arrow(expression: pc.Expression, rows: pa.RecordBatch, length: int) -> pa.Array:
    """Compute a pyarrow expression for each row, in order."""
    from pyarrow import acero  # noqa: PLC0415 - it brings pandas along, a second to import

    # A constant looks at no column, and a table without columns has no rows for Acero.
    table = pa.table({"": pa.nulls(length)} if not rows.num_columns else rows)
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["found"])),
    ]
    # Without threads: the rows stay in their order.
    computed = acero.Declaration.from_sequence(steps).to_table(use_threads=False)
    return _whole(computed.column(0))


def _called(function: Function, rows: Sides) -> Value:
    result = function.call(rows.batch())
    if isinstance(result, pa.ChunkedArray):
        result = _whole(result)
    if not isinstance(result, (pa.Array, pa.Scalar)):
        result = pa.scalar(result)
    if isinstance(result, pa.Array) and len(result) != rows.length:
        message = f"a function returned {len(result)} values for {rows.length} rows"
        raise PredicateError(
            message, hint="return one value for each row, or a single value", text=""
        )
    return result


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _column(value: Value, length: int) -> pa.Array:
    if isinstance(value, pa.Scalar):
        empty = not length or not value.is_valid
        return pa.nulls(length, value.type) if empty else pa.repeat(value, length)
    return _whole(value)


def _truth(value: Value) -> Value:
    """Take a value as a condition."""
    if not (_T.is_boolean(value.type) or _T.is_null(value.type)):
        message = f"a condition is {type_name(value.type)}, not boolean"
        raise PredicateError(message, hint="write a comparison", text="")
    return value.cast(pa.bool_())


# --- what computes only for the rows that come to it -------------------------------------------


def _only(expression: Expression, rows: Sides, chosen: pa.Array) -> pa.Array:
    """Compute for some rows; the others get null."""
    if rows.length and pc.all(chosen).as_py():
        return _column(_value(expression, rows), rows.length)
    kept = rows.where(chosen)
    values = _column(_value(expression, kept), kept.length)
    counted = pc.subtract(pc.cumulative_sum(chosen.cast(pa.int64())), 1)
    return values.take(pc.if_else(chosen, counted, pa.scalar(None, pa.int64())))


def _joined(items: tuple[Expression, ...], rows: Sides, *, ends: bool) -> Value:
    """AND ends with false, OR with true: what may fail is not computed for the rows that ended."""
    answer = _truth(_value(items[0], rows))
    for item in items[1:]:
        if is_simple(item):
            other = _value(item, rows)
        else:
            known = _column(answer, rows.length)
            ended = pc.fill_null(known if ends else pc.invert(known), fill_value=False)
            other = _only(item, rows, pc.invert(ended))
        answer = (pc.or_kleene if ends else pc.and_kleene)(answer, _truth(other))
    return answer


def _coalesce(items: tuple[Expression, ...], rows: Sides) -> pa.Array:
    values = [_column(_value(items[0], rows), rows.length)]
    missing = values[0].is_null()
    for item in items[1:]:
        values.append(_only(item, rows, missing))
        missing = pc.and_(missing, values[-1].is_null())
    return pc.coalesce(*aligned(values))


def _case(branches: tuple[tuple[Expression | None, Expression], ...], rows: Sides) -> pa.Array:
    rest = pa.repeat(pa.scalar(value=True), rows.length)
    values: list[pa.Array] = []
    for when, item in branches:
        here = rest
        if when is not None:
            flags = pc.fill_null(_truth(_only(when, rows, rest)), fill_value=False)
            here = pc.and_(rest, flags)
        values.append(_only(item, rows, here))
        rest = pc.and_not(rest, here)
    # Each row has a value in one branch at most.
    return pc.coalesce(*aligned(values))
