"""Predicates as Arrow expressions, for tables and for datasets with row-group pruning."""

from __future__ import annotations

import functools
import itertools
import math
import operator
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
_LAST = "\U0010ffff"
_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xE000


def to_arrow(predicate: Predicate) -> pc.Expression:
    """Give the Arrow expression that selects the same rows.

    NaN compares as in Spark: equal to itself, greater than every number.

    Exact for ``Table.filter`` and Acero. A dataset may leave out row groups with it; of columns
    that hold NaN it leaves out too many: Arrow takes the bounds of a row group, which know nothing
    of NaN, for those of all its rows. Plait's own scans judge row groups themselves.
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
            found = _like(_ref(column), pattern)
            return ~found if negated else found
        case And(items):
            return functools.reduce(operator.and_, map(to_arrow, items))
        case Or(items):
            return functools.reduce(operator.or_, map(to_arrow, items))
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
    if op in (">", ">="):
        return plain | nan
    # Says nothing new of rows, but keeps a dataset from taking bounds for a proof.
    return plain & ~nan if op in ("<", "<=") else plain


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


def _like(ref: pc.Expression, pattern: str) -> pc.Expression:
    """Compare the fixed beginning, by which row groups are left out, then the rest."""
    head = like_head(pattern)
    if head == pattern:
        return ref == pc.scalar(pa.scalar(pattern, pa.string()))
    found = pc.match_substring_regex(ref, like_regex(pattern))
    if not head:
        return found
    inside = ref >= pc.scalar(pa.scalar(head, pa.string()))
    end = text_after(head)
    if end is not None:
        inside = inside & (ref < pc.scalar(pa.scalar(end, pa.string())))
        if pattern == head + "%":
            return inside
    return inside & found


def like_head(pattern: str) -> str:
    """Give the text with which every match begins, without escapes."""
    return "".join(itertools.takewhile(lambda char: char not in "%_\\", pattern))


def text_after(head: str) -> str | None:
    """Give the least text above all that begin with ``head``; None if there is none.

    >>> text_after("ab")
    'ac'
    """
    stem = head.rstrip(_LAST)
    if not stem:
        return None
    code = ord(stem[-1]) + 1
    return stem[:-1] + chr(_AFTER_SURROGATES if code == _SURROGATES else code)


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
