"""Predicates as JSON values, checked when they are read: metadata is untrusted."""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError, PredicateError
from plait.expr.tree import (
    DEPTH_MAX,
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
    find_column,
)
from plait.model.value import raw_value

_LEAVES = ("fixed", "compare", "in", "null", "like")


def to_json(predicate: Predicate) -> dict[str, object]:
    """Write a predicate as JSON values."""
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
        case Opaque():
            return _opaque_json(predicate)


def from_json(value: object, schema: pa.Schema) -> Predicate:
    """Read what ``to_json`` wrote, for a table with this schema.

    Raises:
        CorruptMetadataError: it is anything else.
    """
    try:
        return _from(value, schema, 0)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        message = f"not a predicate: {str(value)[:120]}"
        raise CorruptMetadataError(message, expected="a predicate", found=str(error)) from error


def _from(value: object, schema: pa.Schema, depth: int) -> Predicate:
    if not isinstance(value, dict) or depth > DEPTH_MAX:
        raise TypeError(value)
    for name, kind in (("and", And), ("or", Or)):
        if name in value:
            items = tuple(_from(item, schema, depth + 1) for item in _list(value[name]))
            if not items:
                raise ValueError(value)
            return kind(items)
    if "always" in value:
        return Always(None if value["always"] is None else _bool(value["always"]))
    if "substrait" in value:
        return _opaque_from(value, schema)
    return _leaf(value, schema)


def _leaf(value: dict[str, object], schema: pa.Schema) -> Predicate:
    name = next((name for name in _LEAVES if name in value), None)
    if name is None:
        raise ValueError(value)
    column = find_column(schema, tuple(str(part) for part in _list(value[name])), "")
    if name == "fixed":
        return Fixed(column, _bool(value["value"]))
    if name == "compare":
        if value["op"] not in NEGATED:
            raise ValueError(value["op"])
        return Compare(column, str(value["op"]), _value(value["value"], column.type))
    negated = _bool(value["negated"])
    if name == "in":
        values = tuple(_value(item, column.type) for item in _list(value["values"]))
        return In(column, values, negated)
    if name == "null":
        return IsNull(column, negated)
    return Like(column, str(value["pattern"]), negated)


def _value(text: object, kind: pa.DataType) -> Value:
    if not isinstance(text, str):
        raise TypeError(text)
    raw_value(text, kind)
    return Value(text, kind)


def _list(value: object) -> list[object]:
    if not isinstance(value, list) or len(value) > VALUES_MAX:
        raise TypeError(value)
    return value


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _opaque_json(predicate: Opaque) -> dict[str, object]:
    from pyarrow import substrait  # noqa: PLC0415 - large, and rarely needed

    try:
        body = substrait.serialize_expressions([predicate.expression], ["where"], predicate.schema)
    except (pa.ArrowException, NotImplementedError) as error:
        message = f"the pyarrow expression {predicate.expression} cannot be recorded: {error}"
        hint = "give the predicate as SQL text"
        raise PredicateError(message, hint=hint, text=str(predicate.expression)) from error
    text = base64.b64encode(bytes(body)).decode()
    return {"substrait": text, "names": list(predicate.names), "negated": predicate.negated}


def _opaque_from(value: dict[str, object], schema: pa.Schema) -> Opaque:
    from pyarrow import substrait  # noqa: PLC0415 - large, and rarely needed

    body = base64.b64decode(str(value["substrait"]), validate=True)
    bound = substrait.deserialize_expressions(pa.py_buffer(body))
    expression: pc.Expression = next(iter(bound.expressions.values()))
    names = tuple(str(name) for name in _list(value["names"]))
    return Opaque(expression, names, schema, _bool(value["negated"]))
