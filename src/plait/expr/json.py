"""Predicates as JSON values, checked when they are read: metadata is untrusted."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from plait.errors import CorruptMetadataError
from plait.expr.bind import find_column
from plait.expr.tree import (
    DEPTH_MAX,
    FALSE,
    LEAVES_MAX,
    NEGATED,
    NULL,
    TRUE,
    VALUES_MAX,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    Predicate,
    bounded,
    opaque,
)
from plait.model.value import from_text, raw_value, to_text

_LEAVES = ("compare", "in", "null", "like")


def to_json(predicate: Predicate) -> dict[str, object]:
    """Write a predicate as JSON values.

    Raises:
        PredicateError: it is more than conditions on one column and literals, as every pyarrow
            expression is: what is read from metadata is checked node by node.
    """
    match predicate:
        case Literal(text, kind) if pa.types.is_boolean(kind):
            return {"always": None if text is None else text == "true"}
        case Compare(Column(path), op, Literal(text)):
            return {"compare": list(path), "op": op, "value": text}
        case In(Column(path), values, negated):
            return {"in": list(path), "values": [v.text for v in values], "negated": negated}
        case IsNull(Column(path), negated):
            return {"null": list(path), "negated": negated}
        case Like(Column(path), pattern, negated):
            return {"like": list(path), "pattern": pattern, "negated": negated}
        case And(items):
            return {"and": [to_json(item) for item in items]}
        case Or(items):
            return {"or": [to_json(item) for item in items]}
    raise opaque(predicate, "recorded in the table")


def from_json(value: object, schema: pa.Schema) -> Predicate:
    """Read what ``to_json`` wrote, for a table with this schema.

    Raises:
        CorruptMetadataError: it is anything else, too deep, or too large.
    """
    try:
        return bounded(_JsonReader(schema).read(value, 0))
    except (KeyError, TypeError, ValueError, RecursionError, pa.ArrowException) as error:
        shown = str(value)[:120] if not isinstance(value, (dict, list)) else type(value).__name__
        message = f"not a predicate: {shown}: {str(error)[:200]}"
        raise CorruptMetadataError(
            message, expected="a predicate", found=str(error)[:200]
        ) from error


def retyped(value: object, old: pa.Schema, new: pa.Schema) -> dict[str, object]:
    """Return a predicate of one schema for another, in which its columns have wider types.

    Raises:
        CorruptMetadataError: it is none of the first schema.
        PredicateError: it names a column that the other schema lacks.

    >>> was, now = (pa.schema([("d", kind)]) for kind in (pa.date32(), pa.timestamp("us")))
    >>> retyped({"compare": ["d"], "op": "=", "value": "2026-01-31"}, was, now)["value"]
    '2026-01-31T00:00:00.000000'
    """
    return to_json(_retyped(from_json(value, old), new))


def _retyped(node: Predicate, schema: pa.Schema) -> Predicate:
    match node:
        case Compare(Column(path), _, Literal() as value):
            column = find_column(schema, path)
            return replace(node, left=column, right=_cast(value, column.type))
        case In(Column(path), values):
            column = find_column(schema, path)
            cast = tuple(_cast(value, column.type) for value in values)
            return replace(node, item=column, values=cast)
        case And(items) | Or(items):
            return replace(node, items=tuple(_retyped(item, schema) for item in items))
    return node


def _cast(value: Literal, kind: pa.DataType) -> Literal:
    if value.text is None or value.type == kind:
        return Literal(value.text, kind)
    return Literal(to_text(from_text(value.text, value.type).cast(kind), kind), kind)


class _JsonReader:
    """Reads one predicate, of bounded size."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._left = 2 * LEAVES_MAX  # with what joins them

    def read(self, value: object, depth: int) -> Predicate:
        """Read one node."""
        self._left -= 1
        if depth > DEPTH_MAX or self._left < 0:
            raise ValueError("the predicate is too deep or too large")
        node = _dict(value)
        for name, kind in (("and", And), ("or", Or)):
            if name in node:
                items = tuple(self.read(item, depth + 1) for item in _list(node[name]))
                if not items:
                    raise ValueError(name)
                return kind(items)
        if "always" in node:
            value = node["always"]
            return NULL if value is None else TRUE if _bool(value) else FALSE
        return _leaf(node, self._schema)


def _leaf(value: dict[str, object], schema: pa.Schema) -> Predicate:
    name = next((name for name in _LEAVES if name in value), None)
    if name is None:
        raise ValueError(value)
    path = tuple(_text(part) for part in _list(value[name]))
    column = find_column(schema, path)
    if column.path != path:
        raise ValueError(path)
    if name == "compare":
        if _text(value["op"]) not in NEGATED:
            raise ValueError(value["op"])
        return Compare(column, _text(value["op"]), _value(value["value"], column.type))
    negated = _bool(value["negated"])
    if name == "in":
        values = tuple(_value(item, column.type) for item in _list(value["values"]))
        if not values:
            raise ValueError(name)
        return In(column, values, negated)
    if name == "null":
        return IsNull(column, negated)
    return Like(column, _text(value["pattern"]), negated)


def _value(text: object, kind: pa.DataType) -> Literal:
    raw_value(_text(text), kind)
    return Literal(_text(text), kind)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list) or len(value) > VALUES_MAX:
        raise TypeError(value)
    return value


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value
