"""Predicates as Arrow expressions, for tables and for datasets with row-group pruning."""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pyarrow.compute as pc

from plait.expr.tree import (
    Always,
    And,
    Column,
    Compare,
    Fixed,
    In,
    IsNull,
    Like,
    Opaque,
    Or,
    Predicate,
)
from plait.model.value import array_of, from_text

_T = pa.types


def to_arrow(predicate: Predicate) -> pc.Expression:
    """Give the Arrow expression that selects the same rows.

    NaN compares as in Spark: equal to itself, greater than every number.
    """
    match predicate:
        case Always(value):
            return pc.scalar(pa.scalar(value, pa.bool_()))
        case Fixed(column, value):
            return _ref(column).is_valid() if value else pc.scalar(value)
        case Compare():
            return _compare(predicate)
        case In():
            return _in(predicate)
        case IsNull(column, negated):
            # a NaN is a value, not a null
            return _ref(column).is_valid() if negated else _ref(column).is_null()
        case Like(column, pattern, negated):
            found = pc.match_substring_regex(_ref(column), like_regex(pattern))
            return ~found if negated else found
        case And(items):
            result = to_arrow(items[0])
            for item in items[1:]:
                result = result & to_arrow(item)
            return result
        case Or(items):
            result = to_arrow(items[0])
            for item in items[1:]:
                result = result | to_arrow(item)
            return result
        case Opaque(expression, _, _, negated):
            return ~expression if negated else expression


def _ref(column: Column) -> pc.Expression:
    return pc.field(*column.path)


def _compare(leaf: Compare) -> pc.Expression:
    ref, value = _ref(leaf.column), from_text(leaf.value.text, leaf.value.type)
    if _T.is_floating(leaf.value.type):
        return _compare_float(ref, leaf.op, value)
    return _plain(ref, leaf.op, value)


def _compare_float(ref: pc.Expression, op: str, value: pa.Scalar) -> pc.Expression:
    nan = pc.is_nan(ref)
    if math.isnan(value.as_py()):
        # less than NaN are all numbers; nothing is greater
        return {
            "=": nan,
            ">=": nan,
            "!=": ~nan,
            "<": ~nan,
            "<=": ref.is_valid(),
            ">": nan & ~nan,
        }[op]
    plain = _plain(ref, op, value)
    return plain | nan if op in (">", ">=") else plain


def _plain(ref: pc.Expression, op: str, value: pa.Scalar) -> pc.Expression:
    literal = pc.scalar(value)
    if op == "=":
        return ref == literal
    if op == "!=":
        return ref != literal
    if op == "<":
        return ref < literal
    if op == "<=":
        return ref <= literal
    if op == ">":
        return ref > literal
    return ref >= literal


def _in(leaf: In) -> pc.Expression:
    ref, kind = _ref(leaf.column), leaf.column.type
    values = array_of([value.text for value in leaf.values], kind)
    found = ref.isin(values)
    if _T.is_floating(kind) and any(math.isnan(v) for v in values.to_pylist()):
        found = found | pc.is_nan(ref)
    if _T.is_floating(kind) and any(v == 0 for v in values.to_pylist()):
        # is_in looks at bits, and there are two zeros
        found = found | (ref == pc.scalar(pa.scalar(0.0, kind)))
    # is_in says FALSE for null where SQL says NULL, which matters under NOT
    return (~found) & ref.is_valid() if leaf.negated else found


def like_regex(pattern: str) -> str:
    """Give the regular expression of an SQL pattern, for the whole text."""
    parts, escaped = [], False
    for char in pattern:
        if escaped or char not in "\\%_":
            parts.append(re.escape(char) if char.isascii() else char)
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            parts.append(".*" if char == "%" else ".")
    return "(?s)^" + "".join(parts) + r"\z"
