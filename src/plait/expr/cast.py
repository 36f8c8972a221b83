"""Types of values: casts as Spark's ANSI mode has them, and a type that values share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.expr.literal import temporal
from plait.model.schema import type_name

Value: TypeAlias = pa.Array | pa.Scalar
_T = pa.types
_INT64_DIGITS: Final = 20
_DECIMAL_DIGITS: Final = 38


def cast(value: Value, kind: pa.DataType) -> Value:
    """Return a value in another type.

    Raises:
        PredicateError: engines do not agree on what becomes of such values.
        pa.ArrowInvalid: a value has no place in the type.
    """
    source = value.type
    if source == kind or _T.is_null(source):
        return value.cast(kind)
    if _T.is_integer(kind) and (_T.is_floating(source) or _T.is_decimal(source)):
        return pc.cast(pc.trunc(value), kind)
    if _T.is_floating(kind) and _T.is_decimal(source):
        # By way of its text: Arrow's own cast is not always the nearest number.
        return pc.cast(pc.cast(value, pa.string()), kind)
    if _T.is_floating(kind) and _is_number(source):
        return pc.cast(value, kind, safe=False)
    if _T.is_decimal(kind) and _T.is_integer(source):
        return pc.cast(pc.cast(value, pa.decimal128(_INT64_DIGITS, 0)), kind)
    if _T.is_decimal(kind) and _T.is_decimal(source):
        if kind.scale < source.scale:
            value = pc.round(wider(value), ndigits=kind.scale, round_mode="half_towards_infinity")
        return pc.cast(value, kind)
    if _T.is_string(source) and (_is_number(kind) or _T.is_boolean(kind) or _T.is_date(kind)):
        return pc.cast(pc.utf8_trim_whitespace(value), kind)
    if _plain(source, kind):
        return pc.cast(value, kind)
    message = f"CAST from {type_name(source)} to {type_name(kind)} is not supported"
    raise PredicateError(message, hint="pass a function instead", text="")


def wider(value: Value) -> Value:
    """Return decimals with a digit more: without room Arrow rounds to zero, without a word."""
    kind = value.type
    if kind.precision >= _DECIMAL_DIGITS:
        message = f"{type_name(kind)} has too many digits to be rounded"
        raise PredicateError(message, hint="cast it to a type with fewer digits first", text="")
    return pc.cast(value, pa.decimal128(kind.precision + 1, kind.scale))


def _plain(source: pa.DataType, kind: pa.DataType) -> bool:
    """Tell whether Arrow's own cast says the same as Spark's."""
    if _T.is_integer(source) and _T.is_integer(kind):
        return True
    if _T.is_string(kind):
        known = _T.is_integer, _T.is_boolean, _T.is_date, _T.is_binary
        return any(is_known(source) for is_known in known)
    return bool(_T.is_date(source) and _T.is_timestamp(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(_T.is_integer(kind) or _T.is_floating(kind) or _T.is_decimal(kind))


def aligned(values: Sequence[Value], *, moments: bool = False) -> list[Value]:
    """Bring values to a type that holds all of them.

    Numbers become the widest; with ``moments`` a text literal that stands beside a date or a time
    is read as one.

    Raises:
        PredicateError: there is no such type.
    """
    kinds = list(dict.fromkeys(value.type for value in values if not _T.is_null(value.type)))
    times = [kind for kind in kinds if _T.is_date(kind) or _T.is_timestamp(kind)]
    if moments and times and any(map(_T.is_string, kinds)):
        when = _widest(times) if len(times) > 1 else times[0]
        return [_moment(value, when) for value in values]
    if not kinds:
        return list(values)
    kind = kinds[0] if len(kinds) == 1 else _widest(kinds)
    return [value if value.type == kind else cast(value, kind) for value in values]


def _widest(kinds: Sequence[pa.DataType]) -> pa.DataType:
    if all(map(_is_number, kinds)):
        floats = [kind for kind in kinds if _T.is_floating(kind)]
        if floats:
            return floats[0] if len(kinds) == 1 else pa.float64()
        decimals = [kind for kind in kinds if _T.is_decimal(kind)]
        if decimals:
            scale = max(kind.scale for kind in decimals)
            digits = max(kind.precision - kind.scale for kind in decimals)
            if len(decimals) < len(kinds):
                digits = max(digits, _INT64_DIGITS - 1)
            return pa.decimal128(min(_DECIMAL_DIGITS, digits + scale), scale)
        return max(kinds, key=lambda kind: kind.bit_width)
    if all(_T.is_date(kind) or _T.is_timestamp(kind) for kind in kinds):
        timestamps = [kind for kind in kinds if _T.is_timestamp(kind)]
        if len(set(timestamps)) == 1:
            return timestamps[0]
    names = " and ".join(type_name(kind) for kind in kinds)
    message = f"values of types {names} have no common type"
    raise PredicateError(message, hint="cast one of them", text="")


def _moment(value: Value, kind: pa.DataType) -> Value:
    if not (isinstance(value, pa.Scalar) and _T.is_string(value.type) and value.is_valid):
        return value if value.type == kind or _T.is_null(value.type) else cast(value, kind)
    text = value.as_py()
    try:
        return temporal(text, kind).scalar
    except ValueError as error:
        message = f"{text!r} cannot be compared with a {type_name(kind)}: {error}"
        hint = "write '2026-01-31' or '2026-01-31 12:00:00Z', without a zone if the type has none"
        raise PredicateError(message, hint=hint, text=text) from error
