"""Pruning: what a predicate says of rows of which only bounds, partitions or keys are known.

The answer errs to one side only: what is ruled out holds no matching row.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.expr.evaluate import Sides, holds
from plait.expr.tree import (
    TARGET,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    Predicate,
    conjuncts,
)
from plait.model.value import Raw, array_of

Flags: TypeAlias = npt.NDArray[np.bool_]

POINTS_MAX: Final = 1_000
LOOKED_AT_MAX: Final = 64
"""Length of an IN list beyond which only its least and largest value are compared."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one column in many places; null: nothing is known."""

    lower: pa.Array
    upper: pa.Array
    null_count: pa.Array
    rows: pa.Array

    @property
    def has_values(self) -> Flags:
        """Where there may be a value that is not null."""
        return ~_known(pc.equal(self.null_count, self.rows))

    @property
    def has_nulls(self) -> Flags:
        """Where there may be a null."""
        return ~_known(pc.equal(self.null_count, pa.scalar(0, pa.int64())))


def _known(flags: pa.Array) -> Flags:
    """Return where something is known to be true."""
    plain: Flags = flags.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return plain


def may_match(predicate: Predicate, known: Mapping[str, Bounds | pa.Array], places: int) -> Flags:
    """Tell for each place whether the predicate may be TRUE for some row there.

    Args:
        predicate: a bound predicate.
        known: the bounds of columns, or an array of the one value that all rows of a place have,
            which is judged exactly; nothing is known of other columns.
        places: the number of places; the length of each array.
    """

    def judge(leaf: Predicate, column: str) -> Flags:
        values = known[column]
        if isinstance(values, Bounds):
            return _within(leaf, values)
        rows = pa.record_batch([values], names=[column])
        return _known(holds(leaf, Sides.of(**{TARGET: rows})))

    return _judged(predicate, known, judge, np.ones(places, dtype=np.bool_))


def satisfied(predicate: Predicate, known: Mapping[str, Bounds], places: int) -> Flags:
    """Tell for each place whether the predicate is TRUE for every row there, as bounds prove it.

    Args:
        predicate: a bound predicate.
        known: the bounds of columns; nothing is known of other columns.
        places: the number of places; the length of each array.
    """

    def judge(leaf: Predicate, column: str) -> Flags:
        return _all_within(leaf, known[column])

    return _judged(predicate, known, judge, np.zeros(places, dtype=np.bool_))


def _judged(
    predicate: Predicate,
    known: Container[str],
    judge: Callable[[Predicate, str], Flags],
    unknown: Flags,
) -> Flags:
    """Judge a predicate part by part: a comparison of a known column, or else ``unknown``."""
    match predicate:
        case And(items):
            parts = (_judged(each, known, judge, unknown) for each in items)
            return functools.reduce(np.logical_and, parts)
        case Or(items):
            parts = (_judged(each, known, judge, unknown) for each in items)
            return functools.reduce(np.logical_or, parts)
        case Literal(text):
            return np.full(len(unknown), text == "true")
    column = _column_of(predicate)
    if column is None or len(column.path) > 1 or column.path[0] not in known:
        return unknown
    return judge(predicate, column.path[0])


def _all_within(leaf: Predicate, known: Bounds) -> Flags:
    if isinstance(leaf, IsNull):
        return ~known.has_values if not leaf.negated else ~known.has_nulls
    # A bound that is NaN compares as false with everything: it proves nothing.
    no_nulls = ~known.has_nulls
    match leaf:
        case Compare(_, op, Literal() as value):
            return no_nulls & _all_compared(op, value, known)
        case In(_, values, False) if len(values) <= LOOKED_AT_MAX:
            each = (_all_compared("=", value, known) for value in values)
            return no_nulls & functools.reduce(np.logical_or, each)
        case In(_, values, True) if len(values) <= LOOKED_AT_MAX:
            each = (_all_compared("!=", value, known) for value in values)
            return no_nulls & functools.reduce(np.logical_and, each)
    return np.zeros(len(known.rows), dtype=np.bool_)


def _all_compared(op: str, value: Literal, known: Bounds) -> Flags:
    scalar, lower, upper = value.scalar, known.lower, known.upper
    match op:
        case "=":
            return _known(pc.equal(lower, scalar)) & _known(pc.equal(upper, scalar))
        case "!=":
            return _known(pc.greater(lower, scalar)) | _known(pc.less(upper, scalar))
        case "<":
            return _known(pc.less(upper, scalar))
        case "<=":
            return _known(pc.less_equal(upper, scalar))
        case ">":
            return _known(pc.greater(lower, scalar))
        case _:
            return _known(pc.greater_equal(lower, scalar))


def _column_of(leaf: Predicate) -> Column | None:
    match leaf:
        case Compare(Column() as column, _, Literal()) | In(Column() as column):
            return column
        case IsNull(Column() as column) | Like(Column() as column):
            return column
    return None


def _within(leaf: Predicate, known: Bounds) -> Flags:
    match leaf:
        case IsNull(_, negated):
            return known.has_values if negated else known.has_nulls
        case Compare(_, op, Literal() as value):
            return known.has_values & _compared(op, value, known)
        case In(_, values, False):
            return known.has_values & _contained(values, known)
        case Like(_, pattern, False):
            return known.has_values & _beginning(pattern, known)
    return known.has_values


def _compared(op: str, value: Literal, known: Bounds) -> Flags:
    scalar, lower, upper = value.scalar, known.lower, known.upper
    match op:
        case "=":
            out = _known(pc.greater(lower, scalar)) | _known(pc.less(upper, scalar))
        case "!=":
            out = _known(pc.equal(lower, scalar)) & _known(pc.equal(upper, scalar))
        case "<":
            out = _known(pc.greater_equal(lower, scalar))
        case "<=":
            out = _known(pc.greater(lower, scalar))
        case ">":
            out = _known(pc.less_equal(upper, scalar))
        case _:
            out = _known(pc.less(upper, scalar))
    return ~out


def _contained(values: tuple[Literal, ...], known: Bounds) -> Flags:
    if len(values) <= LOOKED_AT_MAX:
        return functools.reduce(np.logical_or, (_compared("=", value, known) for value in values))
    kind = values[0].type
    ends = pc.min_max(array_of((value.text for value in values), kind))
    below = _known(pc.greater(known.lower, ends["max"]))
    above = _known(pc.less(known.upper, ends["min"]))
    return ~(below | above)


def _beginning(pattern: str, known: Bounds) -> Flags:
    """Judge by the text with which every match begins."""
    head = _head_of(pattern)
    if not head:
        return np.ones(len(known.lower), dtype=np.bool_)
    beginning = pc.utf8_slice_codeunits(known.lower, 0, len(head))
    ends_before = _known(pc.less(known.upper, pa.scalar(head)))
    return ~(_known(pc.greater(beginning, pa.scalar(head))) | ends_before)


def _head_of(pattern: str) -> str:
    """Return the text with which every match begins, without escapes."""
    return "".join(itertools.takewhile(lambda char: char not in "%_\\", pattern))


def key_points(predicate: Predicate, key: Sequence[str]) -> list[tuple[Raw, ...]] | None:
    """Return the record keys that a predicate asks for, if it pins every key column.

    None if it does not, or to more than 1,000 keys. Other conditions may narrow them further.
    """
    if not key:
        return None
    if isinstance(predicate, Or):
        return _united(key_points(item, key) for item in predicate.items)
    items = conjuncts(predicate)
    pinned: dict[str, list[Raw]] = {}
    for item in items:
        name, raws = _pinned(item)
        if raws and (name not in pinned or len(raws) < len(pinned[name])):
            pinned[name] = raws
    if set(key) <= set(pinned):
        chosen = [pinned[name] for name in key]
        return _united([list(itertools.islice(itertools.product(*chosen), POINTS_MAX + 1))])
    for item in items:
        if isinstance(item, Or) and (points := key_points(item, key)) is not None:
            return points
    return None


def _pinned(item: Predicate) -> tuple[str, list[Raw]]:
    match item:
        case Compare(Column((name,)), "=", Literal() as value):
            return name, [value.raw]
        case In(Column((name,)), values, False):
            return name, [value.raw for value in values]
    return "", []


def _united(parts: Iterable[list[tuple[Raw, ...]] | None]) -> list[tuple[Raw, ...]] | None:
    points: dict[tuple[Raw, ...], None] = {}
    for part in parts:
        if part is None:
            return None
        points.update(dict.fromkeys(part))
        if len(points) > POINTS_MAX:
            return None
    return list(points)
