"""Comparisons of a column with a literal, which is brought to the column's type without loss.

A literal between two values that a column can hold, or beyond all of them, changes the
comparison instead: ``tinyint < 1000`` is TRUE for every value, ``int < 2.5`` means ``int <= 2``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context, Decimal

import numpy as np
import pyarrow as pa

from plait.errors import PredicateError
from plait.expr.tree import (
    NULL,
    Column,
    Compare,
    In,
    IsNull,
    Literal,
    Predicate,
    all_of,
    any_of,
    negate,
)
from plait.model.schema import type_name

_WIDE = Context(prec=400)
_DATE = r"(-?\d{4,6}-\d\d-\d\d)"
_DAY_TEXT = re.compile(_DATE, re.ASCII)
_MOMENT_TEXT = re.compile(
    _DATE + r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6})0*)?)?\s*(Z|UTC|([+-])(\d\d):?(\d\d))?)?",
    re.ASCII,
)
_DAY_US = 86_400_000_000
_T = pa.types


def temporal(text: str, kind: pa.DataType) -> Literal:
    """Return the date or timestamp that a text says.

    ``2026-01-31`` is a date; ``2026-01-31 12:30:00.5+01:00`` is a timestamp, of which the time and
    the zone may be left out. Without a zone it is UTC.

    Raises:
        ValueError: the text says something else, is finer than a microsecond, or has a zone where
            the type has none.

    >>> temporal("1970-01-01T01:00:01+01:00", pa.timestamp("us", "UTC")).raw
    1000000
    """
    if _T.is_date(kind):
        match = _DAY_TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(text)
        return Literal.of(_days_to(match[1]), kind)
    micros, zoned = _moment_of(text)
    if zoned and kind.tz is None:
        raise ValueError(f"{text!r} has a time zone, but the type {type_name(kind)} does not")
    return Literal.of(micros, kind)


def has_zone(text: str) -> bool:
    """Tell whether the text of a timestamp names its zone; raise ValueError for other text."""
    return _moment_of(text)[1]


def _moment_of(text: str) -> tuple[int, bool]:
    """Return microseconds since the epoch, and whether a zone was named."""
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
    return micros, zone is not None


def _days_to(day: str) -> int:
    return int(np.datetime64(day, "D").astype(np.int64))


def compare(column: Column, op: str, literal: Literal, text: str) -> Predicate:
    """Return ``column op literal``; raise PredicateError if the two cannot be compared."""
    kind = column.type
    if literal.text is None:
        return IsNull(column) if op == "<=>" else NULL
    if op == "<=>":
        return all_of(IsNull(column, negated=True), compare(column, "=", literal, text))
    if _T.is_signed_integer(kind) or _T.is_decimal(kind):
        return _compare_exact(column, op, _number(column, literal, text))
    if _T.is_floating(kind):
        return _compare_float(column, op, float(_number(column, literal, text)))
    return Compare(column, op, _converted(column, literal, text))


def contained(column: Column, literals: Sequence[Literal], text: str) -> Predicate:
    """Return ``column IN (literals)``; values that the column cannot hold drop out."""
    values: dict[Literal, None] = {}
    for literal in literals:
        match compare(column, "=", literal, text):
            case Compare(_, _, Literal() as value):
                values[value] = None
    condition = In(column, tuple(values)) if values else _never(column)
    # x IN (1, NULL) is TRUE for 1 and NULL for everything else
    return any_of(condition, NULL) if any(each.text is None for each in literals) else condition


def _never(column: Column) -> Predicate:
    """Return what is FALSE where the column has a value, and NULL where it has none."""
    return all_of(IsNull(column), NULL)


def _compare_float(column: Column, op: str, number: float) -> Predicate:
    """Compare with the nearest value that the column can hold, from the right side."""
    near = number
    if _T.is_float32(column.type):
        with np.errstate(over="ignore"):
            near = float(np.float32(number))
    if near != number and not math.isnan(number):
        if op in ("=", "!="):
            return _never(column) if op == "=" else negate(_never(column))
        below = op in ("<", "<=")
        op = ("<" if below else ">=") if near > number else ("<=" if below else ">")
    return Compare(column, op, Literal.of(near, column.type))


def _compare_exact(column: Column, op: str, number: Decimal) -> Predicate:
    lowest, highest, scale = _limits(column.type)
    always: bool | None = None
    floor = number
    if number.is_nan() or number > highest:
        always = op in ("<", "<=", "!=")
    elif number < lowest:
        always = op in (">", ">=", "!=")
    else:
        step = Decimal(1).scaleb(-scale)
        floor = number.quantize(step, rounding=ROUND_FLOOR, context=_WIDE)
        if floor != number and op in ("=", "!="):
            always = op == "!="
        elif floor != number:
            op = "<=" if op in ("<", "<=") else ">"
    if always is not None:
        return negate(_never(column)) if always else _never(column)
    raw = floor if _T.is_decimal(column.type) else int(floor)
    return Compare(column, op, Literal.of(raw, column.type))


def _limits(kind: pa.DataType) -> tuple[Decimal, Decimal, int]:
    if _T.is_decimal(kind):
        top = Decimal(10**kind.precision - 1).scaleb(-kind.scale, context=_WIDE)
        return -top, top, kind.scale
    top = Decimal(2 ** (kind.bit_width - 1))
    return -top, top - 1, 0


def _number(column: Column, literal: Literal, text: str) -> Decimal:
    kind, raw = literal.type, literal.raw
    if not (_T.is_integer(kind) or _T.is_decimal(kind) or _T.is_floating(kind)):
        raise _unfit(column, literal, text)
    return Decimal(repr(raw)) if isinstance(raw, float) else Decimal(raw)  # type: ignore[arg-type]  # a number


def _converted(column: Column, literal: Literal, text: str) -> Literal:
    kind, given = column.type, literal.type
    if given == kind:
        return literal
    try:
        if _T.is_string(given) and (_T.is_date(kind) or _T.is_timestamp(kind)):
            return temporal(literal.text or "", kind)
        if _T.is_date(given) and _T.is_timestamp(kind):
            return Literal.of(int(literal.raw) * _DAY_US, kind)
    except (ValueError, OverflowError) as error:
        raise _unfit(column, literal, text) from error
    if _T.is_timestamp(given) and _T.is_timestamp(kind) and given.tz is None:
        return Literal.of(literal.raw, kind)
    raise _unfit(column, literal, text)


def _unfit(column: Column, literal: Literal, text: str) -> PredicateError:
    name, kind = ".".join(column.path), type_name(column.type)
    shown = repr(literal.text) if _T.is_string(literal.type) else str(literal.text)
    message = f"column {name!r} of type {kind} cannot be compared with {shown[:200]}"
    hints = {
        "date": "write a date as '2026-01-31'",
        "timestamp": "write a timestamp as '2026-01-31T12:00:00Z'",
        "timestamp_ntz": "write a timestamp as '2026-01-31T12:00:00', without a zone",
        "string": "write text in quotes",
    }
    hint = hints.get(kind, f"write a {kind} literal")
    return PredicateError(message, hint=hint, text=text, column=name)
