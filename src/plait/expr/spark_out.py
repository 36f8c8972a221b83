"""Predicates as Spark SQL text, for ``F.expr``; no Spark is needed to write them."""

from __future__ import annotations

import re

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

_PLAIN = re.compile(r"(?:[^\x00-\x1f\x7f'\\$]|\$(?!\{))*")
_YEAR = re.compile(r"^(-?)(\d+)")
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
            return f"({_name(column)} IS {'NOT NULL OR' if value else 'NULL AND'} NULL)"
        case Compare(column, op, value):
            return f"({_name(column)} {op} {_literal(value)})"
        case In(column, values, negated):
            listed = ", ".join(map(_literal, _with_both_zeros(values)))
            return f"({_name(column)} {'NOT ' if negated else ''}IN ({listed}))"
        case IsNull(column, negated):
            return f"({_name(column)} IS {'NOT ' if negated else ''}NULL)"
        case Like(column, pattern, negated):
            return f"({_name(column)} {'NOT ' if negated else ''}LIKE {_text(pattern)})"
        case And(items):
            return "(" + " AND ".join(map(to_sql, items)) + ")"
        case Or(items):
            return "(" + " OR ".join(map(to_sql, items)) + ")"
        case _:
            message = "a pyarrow expression cannot be handed to Spark"
            raise PredicateError(message, hint="give the predicate as SQL text", text="")


def _name(column: Column) -> str:
    if any("${" in part for part in column.path):
        message = f"Spark puts a variable in place of the column name {'.'.join(column.path)!r}"
        raise PredicateError(message, hint="rename the column", text="", column=column.path[0])
    return ".".join("`" + part.replace("`", "``") + "`" for part in column.path)


def _text(text: str) -> str:
    # What a backslash, a quote and ${ mean in a literal depends on the session: not in a dump.
    if _PLAIN.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _with_both_zeros(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Name both zeros if there is one: long lists are looked up by the bits."""
    kind = values[0].type
    if not _T.is_floating(kind) or all(value.text not in ("0.0", "-0.0") for value in values):
        return values
    return tuple(dict.fromkeys((*values, Value("0.0", kind), Value("-0.0", kind))))


def _literal(value: Value) -> str:
    kind = value.type
    if _T.is_string(kind):
        return _text(value.text)
    if _T.is_binary(kind):
        return f"X'{value.text}'"
    if _T.is_boolean(kind):
        return value.text.upper()
    if _T.is_signed_integer(kind):
        return value.text
    text = value.text
    if _T.is_temporal(kind):
        text = _YEAR.sub(lambda year: year[1] + year[2].rjust(4, "0"), text)
    return f"CAST('{text}' AS {type_name(kind).upper()})"
