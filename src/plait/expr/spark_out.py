"""Predicates as Spark SQL text, for ``F.expr``; no Spark is needed to write them."""

from __future__ import annotations

import pyarrow as pa

from plait.errors import PredicateError
from plait.expr.tree import (
    Always,
    And,
    Column,
    Compare,
    Fixed,
    In,
    IsNull,
    Like,
    Or,
    Predicate,
    Value,
)
from plait.model.schema import type_name

_T = pa.types


def to_sql(predicate: Predicate) -> str:
    """Write a predicate as Spark SQL text that selects the same rows.

    Raises:
        PredicateError: it is a pyarrow expression, which cannot be translated.
    """
    match predicate:
        case Always(value):
            return "CAST(NULL AS BOOLEAN)" if value is None else str(value).upper()
        case Fixed(column, value):
            null = f"{_name(column)} IS NULL"
            return f"(CASE WHEN {null} THEN CAST(NULL AS BOOLEAN) ELSE {str(value).upper()} END)"
        case Compare(column, op, value):
            return f"({_name(column)} {op} {_literal(value)})"
        case In(column, values, negated):
            listed = ", ".join(map(_literal, values))
            return f"({_name(column)} {'NOT ' if negated else ''}IN ({listed}))"
        case IsNull(column, negated):
            return f"({_name(column)} IS {'NOT ' if negated else ''}NULL)"
        case Like(column, pattern, negated):
            return f"({_name(column)} {'NOT ' if negated else ''}LIKE {_quoted(pattern)})"
        case And(items):
            return "(" + " AND ".join(map(to_sql, items)) + ")"
        case Or(items):
            return "(" + " OR ".join(map(to_sql, items)) + ")"
        case _:
            message = "a pyarrow expression cannot be handed to Spark"
            raise PredicateError(message, hint="give the predicate as SQL text", text="")


def _name(column: Column) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in column.path)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0") + "'"


def _literal(value: Value) -> str:
    kind = value.type
    if _T.is_string(kind):
        return _quoted(value.text)
    if _T.is_binary(kind):
        return f"X'{value.text}'"
    if _T.is_boolean(kind):
        return value.text.upper()
    if _T.is_signed_integer(kind):
        return value.text
    return f"CAST({_quoted(value.text)} AS {type_name(kind).upper()})"
