"""Predicates as Spark SQL text, for ``F.expr``; no Spark is needed to write them."""

from __future__ import annotations

import re

import pyarrow as pa

from plait.errors import PredicateError
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


def to_sql(predicate: Predicate) -> str:
    """Write a predicate as Spark SQL text that selects the same rows.

    Raises:
        PredicateError: it is more than conditions on one column and literals, as every pyarrow
            expression is.
    """
    match predicate:
        case Literal(None):
            return "CAST(NULL AS BOOLEAN)"
        case Literal():
            return _literal(predicate)
        case Compare(Column() as column, op, Literal() as value):
            return f"({_name(column)} {op} {_literal(value)})"
        case In(Column() as column, values, negated):
            listed = ", ".join(map(_literal, _with_both_zeros(values)))
            return f"({_name(column)} {'NOT ' if negated else ''}IN ({listed}))"
        case IsNull(Column() as column, negated):
            return f"({_name(column)} IS {'NOT ' if negated else ''}NULL)"
        case Like(Column() as column, pattern, negated):
            return f"({_name(column)} {'NOT ' if negated else ''}LIKE {_text(pattern)})"
        case And(items):
            return "(" + " AND ".join(map(to_sql, items)) + ")"
        case Or(items):
            return "(" + " OR ".join(map(to_sql, items)) + ")"
    raise opaque(predicate, "handed to Spark")


def _name(column: Column) -> str:
    if any("${" in part for part in column.path):
        message = f"Spark would substitute a variable for the column name {'.'.join(column.path)!r}"
        raise PredicateError(message, hint="rename the column", text="", column=column.path[0])
    return ".".join("`" + part.replace("`", "``") + "`" for part in column.path)


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


def typed_literal(text: str | None, kind: pa.DataType) -> str:
    """Write a value, by its canonical text, as Spark SQL of exactly its type; None for null."""
    written = "NULL" if text is None else _typed(text, kind)
    return f"CAST({written} AS {type_name(kind)})"


def _typed(text: str, kind: pa.DataType) -> str:
    if _T.is_string(kind):
        return _text(text)
    if _T.is_binary(kind):
        return f"X'{text}'"
    if _T.is_boolean(kind):
        return text.upper()
    if _T.is_signed_integer(kind):
        return text
    if _T.is_temporal(kind):
        text = _YEAR.sub(lambda year: year[1] + year[2].rjust(4, "0"), text)
    return f"CAST('{text}' AS {type_name(kind).upper()})"
