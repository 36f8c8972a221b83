"""What comparisons of Arrow mean for values: exactly, or not at all.

Arrow casts both sides to a common type first. Where that could round, and so answer otherwise than
an exact comparison, there is no translation. A NaN is never equal, less or greater in Arrow.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Final

import pyarrow as pa

from plait.expr.literal import Day, Literal, Moment, compare, contained
from plait.expr.tree import (
    VALUES_MAX,
    Always,
    Column,
    Compare,
    Fixed,
    IsNull,
    Predicate,
    Value,
    all_of,
    any_of,
)

_T = pa.types
_EXACT: Final = {pa.float64(): 2**53, pa.float32(): 2**24}
_LONG_BITS: Final = 64
_MATCH, _SKIP = 0, 1
_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


class UntranslatableError(Exception):
    """There is no predicate that means the same."""


def is_nan(column: Column) -> Predicate:
    """Give ``is_nan(column)``."""
    if not _T.is_floating(column.type):
        raise UntranslatableError
    return Compare(column, "=", Value("nan", column.type))


def compared(column: Column, op: str, scalar: pa.Scalar) -> Predicate:
    """Give ``column op scalar``.

    Raises:
        UntranslatableError: Arrow would round.
        PredicateError: the two cannot be compared.
    """
    if not scalar.is_valid:
        return Always(None)
    literal = _literal(column.type, scalar)
    if isinstance(literal, float) and math.isnan(literal):
        return Fixed(column, value=op == "!=")
    found = compare(column, op, literal)
    if _T.is_floating(column.type) and op in (">", ">="):
        # in the tree NaN is greater than every number
        return all_of(found, Compare(column, "<", Value("nan", column.type)))
    return found


def contained_in(column: Column, values: pa.Array, nulls: int) -> Predicate:
    """Give ``is_in(column, values)``, which is never NULL."""
    if len(values) > VALUES_MAX or nulls not in (_MATCH, _SKIP):
        raise UntranslatableError
    kind = column.type
    alike = values.type == kind or (_is_integer(values.type) and _is_integer(kind))
    if not alike and not _T.is_null(values.type):
        raise UntranslatableError
    literals = [_literal(kind, value) for value in values if value.is_valid]
    if _T.is_floating(kind) and any(not value or value != value for value in literals):  # noqa: PLR0124 - NaN
        raise UntranslatableError  # is_in looks at bits: two zeros, many NaNs
    found = contained(column, literals)
    if nulls == _MATCH and values.null_count:
        return any_of(IsNull(column), found)
    return all_of(IsNull(column, negated=True), found)


def _is_integer(kind: pa.DataType) -> bool:
    return bool(_T.is_signed_integer(kind))


def _literal(kind: pa.DataType, scalar: pa.Scalar) -> Literal:
    found = scalar.type
    if _T.is_integer(found) or _T.is_floating(found) or _T.is_decimal(found):
        return _number(kind, scalar)
    if _T.is_date32(kind) and _T.is_date32(found):
        return Day(scalar.value)
    if _T.is_timestamp(kind) and _T.is_timestamp(found) and found.unit in _UNITS:
        if (kind.tz is None) != (found.tz is None):
            raise UntranslatableError
        return Moment(scalar.value * _UNITS[found.unit], zoned=found.tz is not None)
    same = (
        (_T.is_boolean(kind) and _T.is_boolean(found))
        or (_T.is_string(kind) and (_T.is_string(found) or _T.is_large_string(found)))
        or (_T.is_binary(kind) and (_T.is_binary(found) or _T.is_large_binary(found)))
    )
    value = scalar.as_py()
    if not same or isinstance(value, (dt.date, dt.timedelta)):
        raise UntranslatableError
    literal: Literal = value
    return literal


def _number(kind: pa.DataType, scalar: pa.Scalar) -> Literal:
    """Take a number where Arrow's common type holds it and every value of the column."""
    found, value = scalar.type, scalar.as_py()
    exact = (
        (_T.is_signed_integer(kind) and _T.is_signed_integer(found))
        or (_T.is_decimal(kind) and isinstance(value, Decimal))
        or (_T.is_decimal(kind) and _T.is_signed_integer(found))
        or (_T.is_floating(kind) and _is_held(kind, found, value))
        or (_T.is_signed_integer(kind) and _is_held_with(kind, found, value))
    )
    if not exact:
        raise UntranslatableError
    literal: Literal = value
    return literal


def _is_held(kind: pa.DataType, found: pa.DataType, value: object) -> bool:
    """Tell whether a floating column meets this literal without rounding."""
    if isinstance(value, int):
        return abs(value) <= _EXACT[kind]
    return bool(_T.is_float64(found) or found == kind)


def _is_held_with(kind: pa.DataType, found: pa.DataType, value: object) -> bool:
    """Tell whether whole numbers, as doubles, lie on the same side of this literal."""
    if not _T.is_float64(found) or not isinstance(value, float):
        return False
    narrow: bool = kind.bit_width < _LONG_BITS
    return narrow or not abs(value) >= _EXACT[found]
