"""Whether a predicate can be true somewhere, judged from bounds; many files at once.

The answer errs to one side only: what is ruled out holds no matching row.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.expr.tree import Always, And, Compare, Fixed, In, IsNull, Like, Or, Predicate, Value
from plait.files.stats import Range
from plait.model.value import array_of, from_raws, from_text

Flags: TypeAlias = npt.NDArray[np.bool_]

LOOKED_AT_MAX: Final = 64
"""Of longer IN lists only the least and the largest value are looked at."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one column in many places; null: nothing is known."""

    lower: pa.Array
    upper: pa.Array
    null_count: pa.Array
    rows: pa.Array

    @classmethod
    def exact(cls, values: pa.Array) -> Bounds:
        """Make the bounds of places that hold one value each."""
        ones = pa.array(np.ones(len(values), dtype=np.int64))
        return cls(values, values, values.is_null().cast(pa.int64()), ones)

    @classmethod
    def of(cls, ranges: list[Range], rows: list[int], kind: pa.DataType) -> Bounds:
        """Make bounds from ranges, one a place."""
        return cls(
            from_raws((part.lower for part in ranges), kind),
            from_raws((part.upper for part in ranges), kind),
            pa.array([part.null_count for part in ranges], pa.int64()),
            pa.array(rows, pa.int64()),
        )

    @property
    def has_values(self) -> Flags:
        """Where there may be a value that is not null."""
        return ~_known(pc.equal(self.null_count, self.rows))

    @property
    def has_nulls(self) -> Flags:
        """Where there may be a null."""
        return ~_known(pc.equal(self.null_count, pa.scalar(0, pa.int64())))


def _known(flags: pa.Array) -> Flags:
    """Give where something is known to be true."""
    found: Flags = flags.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return found


def may_match(predicate: Predicate, bounds: Mapping[str, Bounds], places: int) -> Flags:
    """Tell for each place whether some row there may fulfil a predicate.

    Args:
        predicate: the tree.
        bounds: what is known of columns; of others nothing is known.
        places: how many places there are; the length of every bound.
    """
    match predicate:
        case And(items):
            return functools.reduce(np.logical_and, (may_match(p, bounds, places) for p in items))
        case Or(items):
            return functools.reduce(np.logical_or, (may_match(p, bounds, places) for p in items))
        case Always(value):
            return np.full(places, value is True)
        case Compare() | In() | IsNull() | Like() | Fixed():
            name = predicate.column.path[0]
            if len(predicate.column.path) == 1 and name in bounds:
                return _leaf(predicate, bounds[name])
    return np.ones(places, dtype=np.bool_)


def _leaf(leaf: Compare | In | IsNull | Like | Fixed, known: Bounds) -> Flags:
    match leaf:
        case IsNull(_, negated):
            return known.has_values if negated else known.has_nulls
        case Fixed(_, value):
            return known.has_values & value
        case Compare(_, op, value):
            return known.has_values & _compared(op, value, known)
        case In(_, values, False):
            return known.has_values & _contained(values, known)
        case Like(_, pattern, False):
            return known.has_values & _beginning(pattern, known)
    return known.has_values


def _compared(op: str, value: Value, known: Bounds) -> Flags:
    scalar = from_text(value.text, value.type)
    lower, upper = known.lower, known.upper
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


def _contained(values: tuple[Value, ...], known: Bounds) -> Flags:
    if len(values) <= LOOKED_AT_MAX:
        return functools.reduce(np.logical_or, (_compared("=", value, known) for value in values))
    kind = values[0].type
    ends = pc.min_max(array_of((value.text for value in values), kind))
    below = _known(pc.greater(known.lower, ends["max"]))
    above = _known(pc.less(known.upper, ends["min"]))
    return ~(below | above)


def _beginning(pattern: str, known: Bounds) -> Flags:
    """Compare the fixed beginning of a pattern."""
    head = _fixed_head(pattern)
    if not head:
        return np.ones(len(known.lower), dtype=np.bool_)
    beginning = pc.utf8_slice_codeunits(known.lower, 0, len(head))
    ends_before = _known(pc.less(known.upper, pa.scalar(head)))
    return ~(_known(pc.greater(beginning, pa.scalar(head))) | ends_before)


def _fixed_head(pattern: str) -> str:
    for index, character in enumerate(pattern):
        if character in "%_\\":
            return pattern[:index]
    return pattern


def group_bounds(
    groups: list[tuple[int, dict[str, Range]]], kinds: Mapping[str, pa.DataType]
) -> dict[str, Bounds]:
    """Put the ranges of row groups (rows, range by column) side by side."""
    rows = [count for count, _ in groups]
    return {
        name: Bounds.of([ranges.get(name, Range()) for _, ranges in groups], rows, kind)
        for name, kind in kinds.items()
    }
