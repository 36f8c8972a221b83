"""Predicates as JSON values, checked when they are read: metadata is untrusted."""

from __future__ import annotations

import pyarrow as pa

from plait.errors import CorruptMetadataError, PredicateError
from plait.expr.tree import (
    DEPTH_MAX,
    LEAVES_MAX,
    NEGATED,
    VALUES_MAX,
    Always,
    And,
    Compare,
    Fixed,
    In,
    IsNull,
    Like,
    Opaque,
    Or,
    Predicate,
    Value,
    bounded,
    find_column,
)
from plait.model.value import raw_value

_LEAVES = ("fixed", "compare", "in", "null", "like")


def to_json(predicate: Predicate) -> dict[str, object]:
    """Write a predicate as JSON values.

    Raises:
        PredicateError: it holds a pyarrow expression that has no tree: what is read from metadata
            is checked node by node, and such an expression could not be.
    """
    match predicate:
        case Always(value):
            return {"always": value}
        case Fixed(column, value):
            return {"fixed": list(column.path), "value": value}
        case Compare(column, op, value):
            return {"compare": list(column.path), "op": op, "value": value.text}
        case In(column, values, negated):
            texts = [value.text for value in values]
            return {"in": list(column.path), "values": texts, "negated": negated}
        case IsNull(column, negated):
            return {"null": list(column.path), "negated": negated}
        case Like(column, pattern, negated):
            return {"like": list(column.path), "pattern": pattern, "negated": negated}
        case And(items):
            return {"and": [to_json(item) for item in items]}
        case Or(items):
            return {"or": [to_json(item) for item in items]}
        case Opaque(expression):
            message = f"the pyarrow expression {str(expression)[:200]} cannot be recorded"
            hint = "give the predicate as SQL text"
            raise PredicateError(message, hint=hint, text=str(expression)[:200])


def from_json(value: object, schema: pa.Schema) -> Predicate:
    """Read what ``to_json`` wrote, for a table with this schema.

    Raises:
        CorruptMetadataError: it is anything else, too deep, or too large.
    """
    try:
        return bounded(_Reader(schema).read(value, 0))
    except (KeyError, TypeError, ValueError, RecursionError, pa.ArrowException) as error:
        shown = str(value)[:120] if not isinstance(value, (dict, list)) else type(value).__name__
        message = f"not a predicate: {shown}: {str(error)[:200]}"
        raise CorruptMetadataError(
            message, expected="a predicate", found=str(error)[:200]
        ) from error


class _Reader:
    """Reads one predicate, of bounded size."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._left = 2 * LEAVES_MAX  # with what joins them

    def read(self, value: object, depth: int) -> Predicate:
        """Read one node."""
        self._left -= 1
        if depth > DEPTH_MAX or self._left < 0:
            message = "the predicate is too deep or too large"
            raise ValueError(message)
        node = _dict(value)
        for name, kind in (("and", And), ("or", Or)):
            if name in node:
                items = tuple(self.read(item, depth + 1) for item in _list(node[name]))
                if not items:
                    raise ValueError(name)
                return kind(items)
        if "always" in node:
            return Always(None if node["always"] is None else _bool(node["always"]))
        return _leaf(node, self._schema)


def _leaf(value: dict[str, object], schema: pa.Schema) -> Predicate:
    name = next((name for name in _LEAVES if name in value), None)
    if name is None:
        raise ValueError(value)
    path = tuple(_text(part) for part in _list(value[name]))
    column = find_column(schema, path, "")
    if column.path != path:
        raise ValueError(path)
    if name == "fixed":
        return Fixed(column, _bool(value["value"]))
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


def _value(text: object, kind: pa.DataType) -> Value:
    raw_value(_text(text), kind)
    return Value(_text(text), kind)


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
