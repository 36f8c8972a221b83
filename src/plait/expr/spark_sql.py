"""Predicates as Spark SQL text that means the same under all settings of a session.

No Spark is needed to write it. Spark's parser reads settings for names in backticks (they may be
regular expressions), for what stands between quotes, for ``${``, for ``TIMESTAMP`` and for numbers
with an exponent. So text for Spark has aliases for names, plain characters between quotes, and
types that have one meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from plait.expr.tree import (
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    Predicate,
    opaque,
)
from plait.model.schema import type_name

_PLAIN = re.compile(r"(?:[^\x00-\x1f\x7f'\\$]|\$(?!\{))*")
_YEAR = re.compile(r"^(-?)(\d+)")
_T = pa.types
Aliases: TypeAlias = Mapping[tuple[str, ...], str]


def to_sql(predicate: Predicate, aliases: Aliases | None = None) -> str:
    """Write a predicate as Spark SQL text that selects the same rows.

    Args:
        predicate: it is bound.
        aliases: what to write for columns and their members; else names in backticks, as people
            write them.

    Raises:
        PredicateError: it is more than conditions on one column and literals, as every pyarrow
            expression is.
    """

    def name(column: Column) -> str:
        return ".".join(map(_quoted, column.path)) if aliases is None else aliases[column.path]

    match predicate:
        case Literal(None):
            return "CAST(NULL AS BOOLEAN)"
        case Literal():
            return _literal(predicate)
        case Compare(Column() as column, op, Literal() as value):
            return f"({name(column)} {op} {_literal(value)})"
        case In(Column() as column, values, negated):
            listed = ", ".join(map(_literal, _with_both_zeros(values)))
            return f"({name(column)} {'NOT ' if negated else ''}IN ({listed}))"
        case IsNull(Column() as column, negated):
            return f"({name(column)} IS {'NOT ' if negated else ''}NULL)"
        case Like(Column() as column, pattern, negated):
            return f"({name(column)} {'NOT ' if negated else ''}LIKE {_text(pattern)})"
        case And(items):
            return "(" + " AND ".join(to_sql(item, aliases) for item in items) + ")"
        case Or(items):
            return "(" + " OR ".join(to_sql(item, aliases) for item in items) + ")"
    raise opaque(predicate, "handed to Spark")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(text: str) -> str:
    # What a backslash, a quote and ${ mean in a literal depends on the session: not in a dump.
    if _PLAIN.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _with_both_zeros(values: tuple[Literal, ...]) -> tuple[Literal, ...]:
    """Name both zeros if there is one: long lists are looked up by the bits."""
    kind = values[0].type
    if not _T.is_floating(kind) or all(value.text not in ("0.0", "-0.0") for value in values):
        return values
    return tuple(dict.fromkeys((*values, Literal("0.0", kind), Literal("-0.0", kind))))


def _literal(value: Literal) -> str:
    return _typed(value.text or "", value.type)


def _typed(text: str, kind: pa.DataType) -> str:
    if _T.is_string(kind):
        return _text(text)
    if _T.is_binary(kind):
        return f"X'{text}'"
    if _T.is_boolean(kind):
        return text.upper()
    if _T.is_signed_integer(kind):
        return text
    zoned = _T.is_timestamp(kind) and kind.tz is not None
    # What TIMESTAMP means is for the setting spark.sql.timestampType to say.
    name = "TIMESTAMP_LTZ" if zoned else type_name(kind).upper()
    return f"CAST('{readable(text, kind)}' AS {name})"


def readable(text: str, kind: pa.DataType) -> str:
    """Return the canonical text of a value as Spark casts it to its type, in any time zone.

    >>> readable("-44-03-15", pa.date32())
    '-0044-03-15'
    """
    if _T.is_temporal(kind):
        return _YEAR.sub(lambda year: year[1] + year[2].rjust(4, "0"), text)
    return text
