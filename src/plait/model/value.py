"""Canonical text of plain values: what partitions and column bounds hold in the metadata.

Each value has exactly one text and each text one value, so that equal partitions have equal
texts. ``from_text`` refuses every other spelling: metadata is untrusted.

| type | text |
|---|---|
| boolean | ``true``, ``false`` |
| whole numbers | ``-12`` |
| float, double | the fewest digits that read back: ``1.5``, ``1e+30``, ``-0.0``, ``inf``, ``nan`` |
| decimal(p,s) | all s digits: ``1.50`` |
| string | itself |
| binary | hexadecimal: ``00ff`` |
| date | ``2026-01-31`` |
| timestamp | ``2026-01-31T00:00:00.000000Z``, UTC; without ``Z`` for timestamp_ntz |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from plait.errors import plain
from plait.model.schema import type_name

Raw: TypeAlias = bool | int | float | str | bytes | Decimal
"""A value without nulls: dates are days, timestamps microseconds, since the epoch."""

_INTEGER = re.compile(r"-?\d{1,20}", re.ASCII)
_DECIMAL = re.compile(r"-?\d{1,38}(?:\.\d{1,38})?", re.ASCII)
_FLOAT = re.compile(r"-?(?:\d{1,20}(?:\.\d{1,20})?(?:e[+-]\d{1,3})?|inf)|nan", re.ASCII)
_BOOLEAN = {"true": True, "false": False}
_TIME = re.compile(r"(-?\d{1,12}-\d\d-\d\d(?:T\d\d:\d\d:\d\d\.\d{6})?|NaT)Z?", re.ASCII)
_EXPONENT_MIN, _EXPONENT_END = -4, 16
"""Floats of these powers of ten are written without an exponent."""
_SHOWN = 80
_T = pa.types


def is_plain(kind: pa.DataType) -> bool:
    """Tell whether values of this type have a canonical text.

    >>> is_plain(pa.int64()), is_plain(pa.list_(pa.int64()))
    (True, False)
    """
    return bool(
        _T.is_boolean(kind)
        or _T.is_signed_integer(kind)
        or _T.is_floating(kind)
        or _T.is_decimal128(kind)
        or _T.is_string(kind)
        or _T.is_binary(kind)
        or _T.is_date32(kind)
        or _T.is_timestamp(kind)
    )


def to_text(scalar: pa.Scalar, kind: pa.DataType) -> str | None:
    """Write a scalar of type ``kind``; None if it is null.

    Raises:
        ValueError: the type has no canonical text, or the scalar has another type.

    >>> to_text(pa.scalar(0, pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC"))
    '1970-01-01T00:00:00.000000Z'
    """
    if scalar.type != kind:
        raise ValueError(f"expected a {type_name(kind)}, found a {type_name(scalar.type)}")
    raw = to_raw(scalar)
    return None if raw is None else raw_text(raw, kind)


def from_text(text: str, kind: pa.DataType) -> pa.Scalar:
    """Read what ``to_text`` wrote.

    Raises:
        ValueError: it is not the canonical text of a value of this type.

    >>> from_text("1.50", pa.decimal128(4, 2))
    <pyarrow.Decimal128Scalar: Decimal('1.50')>
    """
    return _scalar(raw_value(text, kind), kind)


def to_raw(scalar: pa.Scalar) -> Raw | None:
    """Return the value of a scalar, dates and timestamps as numbers; None if it is null."""
    if not scalar.is_valid:
        return None
    if _T.is_timestamp(scalar.type) or _T.is_date32(scalar.type):
        return int(scalar.value)
    value: Raw = scalar.as_py()
    return value


def raw_text(value: Raw, kind: pa.DataType) -> str:
    """Write a value that is not null; raise ValueError for a type without canonical text."""
    if _T.is_string(kind):
        return str(value)
    if _T.is_boolean(kind):
        return "true" if value else "false"
    if isinstance(value, bytes) and _T.is_binary(kind):
        return value.hex()
    if isinstance(value, Decimal) and _T.is_decimal128(kind):
        return f"{value or value.copy_abs():.{kind.scale}f}"
    if _T.is_floating(kind):
        return _float_text(np.float32(value) if _T.is_float32(kind) else np.float64(value))
    if isinstance(value, int):
        return _integer_text(value, kind)
    raise ValueError(f"values of type {type_name(kind)} have no canonical text")


def _float_text(value: np.floating) -> str:
    """Write the shortest text that reads back; ``str`` differs between versions of numpy."""
    if not np.isfinite(value):
        return str(value)
    text = np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)
    if _EXPONENT_MIN <= int(text.rpartition("e")[2]) < _EXPONENT_END:
        return np.format_float_positional(value, unique=True, trim="0")
    return text


def _integer_text(value: int, kind: pa.DataType) -> str:
    if _T.is_signed_integer(kind):
        return str(value)
    try:
        if _T.is_date32(kind):
            return str(np.datetime64(value, "D"))
        if _T.is_timestamp(kind):
            return str(np.datetime64(value, "us")) + ("" if kind.tz is None else "Z")
    except OverflowError as error:
        raise ValueError(f"{value:,} is beyond every {type_name(kind)}") from error
    raise ValueError(f"values of type {type_name(kind)} have no canonical text")


def raw_value(text: str, kind: pa.DataType) -> Raw:
    """Read what ``raw_text`` wrote; raise ValueError for any other text."""
    try:
        value = _parse(text, kind)
        _scalar(value, kind)  # in range
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise _not_a(text, kind) from error
    if raw_text(value, kind) != text:
        raise _not_a(text, kind)
    return value


def _parse(text: str, kind: pa.DataType) -> Raw:
    if _T.is_string(kind):
        return text
    if _T.is_boolean(kind):
        if text in _BOOLEAN:
            return _BOOLEAN[text]
    elif _T.is_binary(kind):
        return bytes.fromhex(text)
    elif _T.is_decimal128(kind) and _DECIMAL.fullmatch(text):
        return Decimal(text)
    elif _T.is_floating(kind) and _FLOAT.fullmatch(text):
        with np.errstate(over="ignore"):  # too large: reads back as another text
            return float(np.float32(text)) if _T.is_float32(kind) else float(text)
    elif _T.is_signed_integer(kind) and _INTEGER.fullmatch(text):
        return int(text)
    elif _T.is_temporal(kind) and (match := _TIME.fullmatch(text)):
        unit: Literal["D", "us"] = "D" if _T.is_date32(kind) else "us"
        return int(np.datetime64(match[1], unit).astype(np.int64))
    raise _not_a(text, kind)


def _scalar(value: Raw, kind: pa.DataType) -> pa.Scalar:
    if _T.is_timestamp(kind):
        return pa.scalar(value, pa.int64()).cast(kind)
    if _T.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    return pa.scalar(value, kind)


def texts_of(array: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Write every value of an array; meant for distinct values, not for rows."""
    return [to_text(scalar, array.type) for scalar in array]


def array_of(texts: Iterable[str | None], kind: pa.DataType) -> pa.Array:
    """Read many texts; raise ValueError for one that is not canonical."""
    known: dict[str | None, Raw | None] = {None: None}
    every = list(texts)
    for text in every:
        if text is not None and text not in known:
            known[text] = raw_value(text, kind)
    return from_raws((known[text] for text in every), kind)


def from_raws(values: Iterable[Raw | None], kind: pa.DataType) -> pa.Array:
    """Make an array of raw values."""
    raws = list(values)
    if _T.is_timestamp(kind):
        return pa.array(raws, pa.int64()).cast(kind)
    if _T.is_date32(kind):
        return pa.array(raws, pa.int32()).cast(kind)
    return pa.array(raws, kind)


def plain_value(scalar: pa.Scalar) -> object:
    """Return any value as JSON has it: what neither JSON nor Python can spell is canonical text.

    Booleans, whole numbers, finite floating-point numbers and texts are themselves, a struct is an
    object, a list a list, and a map a list of pairs. Errors, samples and commands show values so:
    Python has no day after the year 9999, and JSON no NaN.

    >>> plain_value(pa.scalar(float("nan"))), plain_value(pa.scalar([1, None]))
    ('nan', [1, None])
    >>> plain_value(pa.scalar(253402300800000000, pa.timestamp("us")))
    '10000-01-01T00:00:00.000000'
    """
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if isinstance(kind, pa.BaseExtensionType) or _T.is_dictionary(kind):
        return plain_value(scalar.value)
    if _T.is_struct(kind):
        return {field.name: plain_value(scalar[at]) for at, field in enumerate(kind.fields)}
    if _T.is_map(kind):
        return [[plain_value(each[at]) for at in range(2)] for each in scalar.values]
    if _T.is_nested(kind) and hasattr(scalar, "values"):
        return [plain_value(each) for each in scalar.values]
    if _T.is_large_string(kind) or _T.is_string_view(kind) or _T.is_integer(kind):
        return plain(scalar.as_py())
    try:
        raw = to_raw(scalar) if is_plain(kind) else None
        text = str(scalar) if raw is None else raw_text(raw, kind)
    except (ValueError, OverflowError, pa.ArrowException):  # of a foreign type
        return f"a {kind}"
    exact = _T.is_boolean(kind) or (_T.is_floating(kind) and math.isfinite(scalar.as_py()))
    return scalar.as_py() if exact else plain(text)


def plain_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, object]]:
    """Return rows as JSON has them; see ``plain_value``."""
    columns = [[plain_value(each) for each in column] for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def shown_value(scalar: pa.Scalar) -> str:
    """Return any value as a person reads it, on one line.

    >>> shown_value(pa.scalar({"a": [1.5]})), shown_value(pa.scalar(None))
    ('{"a": [1.5]}', 'null')
    """
    value = plain_value(scalar)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_kept(value: object, kept: object) -> bool:
    """Tell whether a column that has ``kept`` of a value has just that value.

    Booleans are no numbers. A date is the midnight of its day, without a zone.

    >>> is_kept(1.0, 1), is_kept(1.5, 1), is_kept(True, 1)
    (True, False, False)
    """
    if isinstance(value, date) and isinstance(kept, date):
        value, kept = _moment(value), _moment(kept)
    return isinstance(value, (bool, np.bool_)) == isinstance(kept, bool) and bool(value == kept)


def _moment(day: date) -> datetime:
    return day if isinstance(day, datetime) else datetime.combine(day, time())


def _not_a(text: str, kind: pa.DataType) -> ValueError:
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return ValueError(f"not the text of a {type_name(kind)}: {shown!r}")
