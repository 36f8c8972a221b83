"""Literals brought to the type of their column, without loss.

A literal between two values that a column can hold, or beyond all of them, changes the
comparison instead: ``tinyint < 1000`` is true for every value, ``int < 2.5`` means ``int <= 2``.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import ROUND_FLOOR, Context, Decimal

import pyarrow as pa

from plait.errors import PredicateError
from plait.expr.tree import Column, Compare, Fixed, In, IsNull, Predicate, Value, all_of
from plait.model.schema import type_name
from plait.model.value import raw_text

Literal = bool | int | Decimal | float | str | bytes | dt.date | dt.datetime
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WIDE = Context(prec=400)
_T = pa.types


def compare(column: Column, op: str, literal: Literal, *, text: str = "") -> Predicate:
    """Give ``column op literal``; raise PredicateError if the two cannot be compared."""
    kind = column.type
    if _T.is_signed_integer(kind) or _T.is_decimal(kind):
        return _compare_exact(column, op, _number(column, literal, text))
    value = _value(column, literal, text)
    if _T.is_float32(kind) and isinstance(literal, (int, float, Decimal)):
        return _compare_float(column, op, value, Decimal(literal))
    return Compare(column, op, value)


def _compare_float(column: Column, op: str, value: Value, number: Decimal) -> Predicate:
    """Compare with the nearest value that the column can hold, from the right side."""
    near = Decimal(float(value.raw))
    if number.is_nan() or near == number:
        return Compare(column, op, value)
    if op in ("=", "!="):
        return Fixed(column, value=op == "!=")
    below = op in ("<", "<=")
    op = ("<" if below else ">=") if near > number else ("<=" if below else ">")
    return Compare(column, op, value)


def contained(
    column: Column, literals: list[Literal], *, negated: bool = False, text: str = ""
) -> Predicate:
    """Give ``column [NOT] IN (literals)``; values that the column cannot hold drop out."""
    values: dict[Value, None] = {}
    for literal in literals:
        leaf = compare(column, "=", literal, text=text)
        if isinstance(leaf, Compare):
            values[leaf.value] = None
    if not values:
        return Fixed(column, value=negated)
    return In(column, tuple(values), negated)


def null_safe(column: Column, literal: Literal, *, text: str = "") -> Predicate:
    """Give ``column <=> literal``."""
    return all_of(IsNull(column, negated=True), compare(column, "=", literal, text=text))


def _compare_exact(column: Column, op: str, number: Decimal) -> Predicate:
    lowest, highest, scale = _limits(column.type)
    step = Decimal(1).scaleb(-scale)
    if number.is_nan() or number > highest:
        return Fixed(column, value=op in ("<", "<=", "!="))
    if number < lowest:
        return Fixed(column, value=op in (">", ">=", "!="))
    floor = number.quantize(step, rounding=ROUND_FLOOR, context=_WIDE)
    if floor != number:
        if op in ("=", "!="):
            return Fixed(column, value=op == "!=")
        if floor < lowest:
            return Fixed(column, value=op in (">", ">="))
        op = "<=" if op in ("<", "<=") else ">"
    raw = floor if _T.is_decimal(column.type) else int(floor)
    return Compare(column, op, Value(raw_text(raw, column.type), column.type))


def _limits(kind: pa.DataType) -> tuple[Decimal, Decimal, int]:
    if _T.is_decimal(kind):
        top = Decimal(10**kind.precision - 1).scaleb(-kind.scale, context=_WIDE)
        return -top, top, kind.scale
    top = Decimal(2 ** (kind.bit_width - 1))
    return -top, top - 1, 0


def _number(column: Column, literal: Literal, text: str) -> Decimal:
    if isinstance(literal, bool) or not isinstance(literal, (int, Decimal, float)):
        raise _unfit(column, literal, text)
    if isinstance(literal, float) and math.isinf(literal):
        return Decimal("1e100") if literal > 0 else Decimal("-1e100")
    return Decimal(literal)


def _value(column: Column, literal: Literal, text: str) -> Value:
    kind = column.type
    try:
        raw = _raw(kind, literal)
    except (ValueError, OverflowError) as error:
        raise _unfit(column, literal, text) from error
    if raw is None:
        raise _unfit(column, literal, text)
    return Value(raw_text(raw, kind), kind)


def _raw(kind: pa.DataType, literal: Literal) -> bool | int | float | str | bytes | None:
    if _T.is_boolean(kind) and isinstance(literal, bool):
        return literal
    if _T.is_string(kind) and isinstance(literal, str):
        return literal
    if _T.is_binary(kind) and isinstance(literal, bytes):
        return literal
    if _T.is_floating(kind) and isinstance(literal, (int, float, Decimal)):
        return None if isinstance(literal, bool) else _float(kind, float(literal))
    if _T.is_date32(kind):
        return _days(literal)
    if _T.is_timestamp(kind):
        return _micros(literal, zoned=kind.tz is not None)
    return None


def _float(kind: pa.DataType, number: float) -> float:
    if _T.is_float32(kind):
        narrow = pa.scalar(number, pa.float64()).cast(pa.float32(), safe=False).as_py()
        return float(narrow)
    return number


def _days(literal: Literal) -> int | None:
    if isinstance(literal, str):
        literal = dt.date.fromisoformat(literal.strip())
    if isinstance(literal, dt.datetime) or not isinstance(literal, dt.date):
        return None
    return (literal - _EPOCH.date()).days


def _micros(literal: Literal, *, zoned: bool) -> int | None:
    if isinstance(literal, str):
        literal = dt.datetime.fromisoformat(literal.strip())
    if isinstance(literal, dt.date) and not isinstance(literal, dt.datetime):
        literal = dt.datetime(literal.year, literal.month, literal.day)  # noqa: DTZ001 - zone comes next
    if not isinstance(literal, dt.datetime):
        return None
    if literal.tzinfo is not None and not zoned:
        return None
    moment = literal if literal.tzinfo is not None else literal.replace(tzinfo=dt.UTC)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def _unfit(column: Column, literal: Literal, text: str) -> PredicateError:
    name, kind = ".".join(column.path), type_name(column.type)
    message = f"column {name!r} of type {kind} cannot be compared with {literal!r}"
    hints = {
        "date": "write a date as '2026-01-31'",
        "timestamp": "write a timestamp as '2026-01-31T12:00:00Z'",
        "timestamp_ntz": "write a timestamp as '2026-01-31T12:00:00', without a zone",
        "string": "write text in quotes",
    }
    hint = hints.get(kind, f"write a {kind} literal")
    return PredicateError(message, hint=hint, text=text, column=name)
