"""Literals brought to the type of their column, without loss.

A literal between two values that a column can hold, or beyond all of them, changes the
comparison instead: ``tinyint < 1000`` is true for every value, ``int < 2.5`` means ``int <= 2``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from plait.errors import PredicateError
from plait.expr.tree import Column, Compare, Fixed, In, IsNull, Predicate, Value, all_of
from plait.model.schema import type_name
from plait.model.value import Raw, raw_text, raw_value

_WIDE = Context(prec=400)
_DATE = r"(-?\d{4,6}-\d\d-\d\d)"
_DAY_TEXT = re.compile(_DATE, re.ASCII)
_MOMENT_TEXT = re.compile(
    _DATE + r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6})0*)?)?\s*(Z|UTC|([+-])(\d\d):?(\d\d))?)?",
    re.ASCII,
)
_DAY_US = 86_400_000_000
_T = pa.types


@dataclass(frozen=True, slots=True)
class Day:
    """A date literal: days since the epoch."""

    days: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A timestamp literal: microseconds since the epoch, in UTC if it has a zone."""

    micros: int
    zoned: bool


Literal: TypeAlias = bool | int | Decimal | float | str | bytes | Day | Moment


def day_of(text: str) -> Day:
    """Read ``2026-01-31``; raise ValueError for anything else."""
    match = _DAY_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return Day(_days_to(match[1]))


def moment_of(text: str) -> Moment:
    """Read ``2026-01-31 12:30:00.5+01:00``, the time and the zone optional.

    Raises:
        ValueError: it is anything else, or finer than a microsecond.

    >>> moment_of("1970-01-01T00:00:01Z")
    Moment(micros=1000000, zoned=True)
    """
    match = _MOMENT_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    day, hours, minutes, seconds, fraction, zone, sign, hours_off, minutes_off = match.groups()
    clock = [int(part or 0) for part in (hours, minutes, seconds, hours_off, minutes_off)]
    if any(part > most for part, most in zip(clock, (23, 59, 59, 18, 59), strict=True)):
        raise ValueError(text)
    east = (clock[3] * 60 + clock[4]) * (-1 if sign == "-" else 1)
    in_day = ((clock[0] * 60 + clock[1] - east) * 60 + clock[2]) * 1_000_000
    micros = _days_to(day) * _DAY_US + in_day + int((fraction or "").ljust(6, "0"))
    return Moment(micros, zoned=zone is not None)


def _days_to(day: str) -> int:
    return int(np.datetime64(day, "D").astype(np.int64))


def narrowed(number: float) -> float:
    """Give the nearest value of a 32-bit float."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def compare(column: Column, op: str, literal: Literal, *, text: str = "") -> Predicate:
    """Give ``column op literal``; raise PredicateError if the two cannot be compared."""
    kind = column.type
    if _T.is_signed_integer(kind) or _T.is_decimal(kind):
        return _compare_exact(column, op, _number(column, literal, text))
    value = _value(column, literal, text)
    if _T.is_float32(kind) and isinstance(literal, (int, float, Decimal)):
        return _compare_float(column, op, value, float(literal))
    return Compare(column, op, value)


def _compare_float(column: Column, op: str, value: Value, number: float) -> Predicate:
    """Compare with the nearest value that the column can hold, from the right side."""
    near = float(raw_value(value.text, value.type))
    if math.isnan(number) or near == number:
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
    return Decimal(literal)


def _value(column: Column, literal: Literal, text: str) -> Value:
    kind = column.type
    try:
        raw = _raw(kind, literal)
        if raw is not None:
            known = raw_text(raw, kind)
            raw_value(known, kind)  # in range
            return Value(known, kind)
    except (ValueError, OverflowError) as error:
        raise _unfit(column, literal, text) from error
    raise _unfit(column, literal, text)


def _raw(kind: pa.DataType, literal: Literal) -> Raw | None:
    if _T.is_boolean(kind) and isinstance(literal, bool):
        return literal
    if _T.is_string(kind) and isinstance(literal, str):
        return literal
    if _T.is_binary(kind) and isinstance(literal, bytes):
        return literal
    if _T.is_floating(kind) and isinstance(literal, (int, float, Decimal)):
        return None if isinstance(literal, bool) else _float(kind, literal)
    if _T.is_date32(kind):
        return _days(literal)
    if _T.is_timestamp(kind):
        return _micros(literal, zoned=kind.tz is not None)
    return None


def _float(kind: pa.DataType, number: float | Decimal) -> float:
    return narrowed(float(number)) if _T.is_float32(kind) else float(number)


def _days(literal: Literal) -> int | None:
    if isinstance(literal, str):
        literal = day_of(literal)
    return literal.days if isinstance(literal, Day) else None


def _micros(literal: Literal, *, zoned: bool) -> int | None:
    if isinstance(literal, str):
        literal = moment_of(literal)
    if isinstance(literal, Day):
        literal = Moment(literal.days * _DAY_US, zoned=False)
    if not isinstance(literal, Moment) or (literal.zoned and not zoned):
        return None
    return literal.micros


def _unfit(column: Column, literal: Literal, text: str) -> PredicateError:
    name, kind = ".".join(column.path), type_name(column.type)
    shown = str(literal) if isinstance(literal, Decimal) else repr(literal)
    message = f"column {name!r} of type {kind} cannot be compared with {shown[:200]}"
    hints = {
        "date": "write a date as '2026-01-31'",
        "timestamp": "write a timestamp as '2026-01-31T12:00:00Z'",
        "timestamp_ntz": "write a timestamp as '2026-01-31T12:00:00', without a zone",
        "string": "write text in quotes",
    }
    hint = hints.get(kind, f"write a {kind} literal")
    return PredicateError(message, hint=hint, text=text, column=name)
