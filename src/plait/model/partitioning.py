"""Partition fields: columns, and transforms of columns (RFC 0024)."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

PERIODS: Final = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
"""Transforms of dates and timestamps, and the unit of numpy that each goes down to."""
BUCKET, TRUNCATE = "bucket", "truncate"
COLUMN = ""
"""The transform of a plain column."""
_SIZED: Final = (BUCKET, TRUNCATE)
_SIZE_MAX: Final = 1_000_000
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\((.*)\)", re.ASCII | re.DOTALL)
_ARGUMENT = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,()]+?))\s*(?:,|$)")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One of the values that make a partition, and how it comes from the columns of a row."""

    transform: str
    """``COLUMN``, one of the built-in transforms, or the name of a registered function."""
    sources: tuple[str, ...]
    size: int = 0
    """The number of buckets, or the width to which values are cut."""

    @property
    def is_column(self) -> bool:
        """Whether the value is that of a column."""
        return self.transform == COLUMN

    @property
    def is_custom(self) -> bool:
        """Whether a registered function computes it."""
        return self.transform not in (COLUMN, *PERIODS, *_SIZED)

    @property
    def is_ordered(self) -> bool:
        """Whether a value says between which two values its source is."""
        return self.transform in (COLUMN, *PERIODS, TRUNCATE)

    @property
    def text(self) -> str:
        """The field as definitions have it.

        >>> parse_field(" bucket( 16,user)").text, parse_field("day").text
        ('bucket(16, user)', 'day')
        """
        if self.is_column:
            (name,) = self.sources
            return _quoted(name) if name.startswith("`") or _CALL.fullmatch(name) else name
        names = [each if _WORD.fullmatch(each) else _quoted(each) for each in self.sources]
        return f"{self.transform}({', '.join([*([str(self.size)] if self.size else []), *names])})"

    def kind(self, schema: pa.Schema) -> pa.DataType:
        """Return the type of its values.

        Raises:
            ValueError: the transform does not take columns of this type.
        """
        if self.is_custom:
            return pa.string()
        kind = schema.field(self.sources[0]).type
        is_time = pa.types.is_timestamp(kind)
        if self.transform in PERIODS and (is_time or pa.types.is_date32(kind)):
            if self.transform != "hour":
                return pa.date32()
            if is_time:
                return kind
        elif self.transform == BUCKET and not (
            pa.types.is_floating(kind) or pa.types.is_nested(kind)
        ):
            return pa.int32()
        elif self.is_column or (
            self.transform == TRUNCATE and (pa.types.is_signed_integer(kind) or _is_text(kind))
        ):
            return kind
        raise ValueError(f"{self.text} does not take a column of type {kind}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


@functools.lru_cache(maxsize=4096)
def parse_field(text: str) -> PartitionField:
    """Read a column's name, or a transform of columns.

    Raises:
        ValueError: it is neither.

    >>> parse_field("truncate(10, name)")
    PartitionField(transform='truncate', sources=('name',), size=10)
    """
    if text.startswith("`") and text.endswith("`") and len(text) > 2:  # noqa: PLR2004 - two quotes
        return PartitionField(COLUMN, (text[1:-1].replace("``", "`"),))
    call = _CALL.fullmatch(text.strip())
    if call is None:
        return PartitionField(COLUMN, (text,))
    name, arguments = call[1], _arguments(call[2])
    lowered, size = name.lower(), 0
    if lowered in _SIZED:
        name, size = lowered, _size(text, arguments)
        arguments = arguments[1:]
    elif lowered.removesuffix("s") in PERIODS:
        name = lowered.removesuffix("s")  # Spark and Iceberg say days(c)
    built_in = name in (*PERIODS, *_SIZED)
    if not arguments or (built_in and len(arguments) > 1):
        raise ValueError(f"{text!r} needs {'one column' if built_in else 'columns'}")
    return PartitionField(name, tuple(arguments), size)


def is_transform(text: str) -> bool:
    """Tell whether a text calls a built-in transform, rightly or not.

    >>> is_transform("days(at)"), is_transform("upper(name)"), is_transform("day(at) + 1")
    (True, False, False)
    """
    call = _CALL.fullmatch(text.strip())
    name = "" if call is None else call[1].lower()
    return name in _SIZED or name.removesuffix("s") in PERIODS


def is_plain_name(text: str) -> bool:
    """Tell whether a field is a column, and its text the name of it."""
    return not text.startswith("`") and _CALL.fullmatch(text.strip()) is None


def _arguments(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = _ARGUMENT.match(text, at)
        if match is None:
            raise ValueError(f"{text!r} is no list of columns")
        found.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end()
    return found


def _size(text: str, arguments: Sequence[str]) -> int:
    size = int(arguments[0]) if arguments and arguments[0].isdecimal() else 0
    if not 1 <= size <= _SIZE_MAX:
        raise ValueError(f"{text!r} needs a number of 1 to {_SIZE_MAX} first")
    return size


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def sources_of(fields: Collection[PartitionField]) -> tuple[str, ...]:
    """Return the columns from which fields come, each once."""
    return tuple(dict.fromkeys(name for field in fields for name in field.sources))


def determines(
    fields: Collection[PartitionField], key: Sequence[str], field: PartitionField
) -> bool:
    """Tell whether rows that agree in some fields and the record key agree in another field."""
    fixed = {*key, *(name for each in fields if each.is_column for name in each.sources)}
    return field in fields or set(field.sources) <= fixed
