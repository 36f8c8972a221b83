"""What a predicate says of rows that are known only roughly: bounds, partitions, keys."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plait.expr.arrow_out import like_regex
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
    all_of,
    any_of,
)
from plait.model.value import Raw

_POINTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a column in some rows; None where it is not known."""

    lower: Raw | None = None
    upper: Raw | None = None
    nulls: int | None = None
    rows: int | None = None


def may_match(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """Tell whether a row within the bounds could match; never False when one could."""
    match predicate:
        case Always(value):
            return value is True
        case And(items):
            return all(may_match(item, bounds) for item in items)
        case Or(items):
            return any(may_match(item, bounds) for item in items)
        case Fixed(column, value):
            return value and _may_hold_values(_of(column, bounds))
        case IsNull(column, negated):
            known = _of(column, bounds)
            return _may_hold_values(known) if negated else known.nulls != 0
        case Compare(column, op, value):
            known = _of(column, bounds)
            return _may_hold_values(known) and _may_compare(op, value.raw, known)
        case In(column, values, negated):
            known = _of(column, bounds)
            if not _may_hold_values(known):
                return False
            return negated or any(_may_compare("=", value.raw, known) for value in values)
        case Like(column, pattern, negated):
            known = _of(column, bounds)
            return _may_hold_values(known) and (negated or _may_start(pattern, known))
        case _:
            return True


def _of(column: Column, bounds: Mapping[str, Bounds]) -> Bounds:
    return bounds.get(column.path[0], Bounds()) if len(column.path) == 1 else Bounds()


def _may_hold_values(known: Bounds) -> bool:
    return known.nulls is None or known.rows is None or known.nulls < known.rows


def _may_compare(op: str, value: Raw, known: Bounds) -> bool:
    low, high = known.lower, known.upper
    if value != value:  # noqa: PLR0124 - NaN; bounds say nothing of it
        return True
    above = high is not None and value > high  # type: ignore[operator]  # both of the column's type
    below = low is not None and value < low  # type: ignore[operator]  # both of the column's type
    if op == "=":
        return not above and not below
    if op == "<":
        return low is None or low < value  # type: ignore[operator]  # both of the column's type
    if op == "<=":
        return not below
    if op == ">":
        # a NaN is greater than every bound, and bounds leave NaN out
        return high is None or isinstance(high, float) or high > value  # type: ignore[operator]  # both of the column's type
    if op == ">=":
        return isinstance(high, float) or not above
    return low is None or high is None or not low == high == value or isinstance(value, float)


def _may_start(pattern: str, known: Bounds) -> bool:
    prefix = "".join(itertools.takewhile(lambda char: char not in "%_\\", pattern))
    low, high = known.lower, known.upper
    if not prefix or not isinstance(low, str) or not isinstance(high, str):
        return True
    # compared as bytes, as the bounds were made
    start, first, last = prefix.encode(), low.encode(), high.encode()
    return not (last < start and not last.startswith(start)) and first[: len(start)] <= start


def on_partition(predicate: Predicate, values: Mapping[str, Raw | None]) -> Predicate:
    """Put in known values of whole columns; what remains asks about other columns only."""
    match predicate:
        case And(items):
            return all_of(*(on_partition(item, values) for item in items))
        case Or(items):
            return any_of(*(on_partition(item, values) for item in items))
        case Fixed() | IsNull() | Compare() | In() | Like():
            column = predicate.column
            if len(column.path) > 1 or column.path[0] not in values:
                return predicate
            return Always(_on_value(predicate, values[column.path[0]]))
        case _:
            return predicate


def _on_value(leaf: Predicate, value: Raw | None) -> bool | None:
    if isinstance(leaf, IsNull):
        return (value is None) != leaf.negated
    if value is None:
        return None
    match leaf:
        case Fixed(_, fixed):
            return fixed
        case Compare(_, op, literal):
            return _compare(op, value, literal)
        case In(_, values, negated):
            return any(value == item.raw for item in values) != negated
        case Like(_, pattern, negated):
            return _matches(pattern, str(value)) != negated
    return None


def _compare(op: str, value: Raw, literal: Value) -> bool:
    other = literal.raw
    if isinstance(value, str) and isinstance(other, str):
        value, other = value.encode(), other.encode()
    if op in ("=", "!="):
        return (value == other) == (op == "=")
    less = value < other  # type: ignore[operator]  # both of the column's type
    return {"<": less, "<=": less or value == other}.get(
        op, not less if op == ">=" else not less and value != other
    )


def _matches(pattern: str, text: str) -> bool:
    return re.search(like_regex(pattern).replace(r"\z", r"\Z"), text) is not None


def key_points(predicate: Predicate, key: Sequence[str]) -> list[tuple[Raw, ...]] | None:
    """Give the record keys that a predicate asks for, if it pins every key column.

    None if it does not, or to more than 1,000 keys. Other conditions may narrow them further.
    """
    items = predicate.items if isinstance(predicate, And) else (predicate,)
    pinned: dict[str, list[Raw]] = {}
    for item in items:
        if isinstance(item, Compare) and item.op == "=" and len(item.column.path) == 1:
            pinned.setdefault(item.column.path[0], [item.value.raw])
        elif isinstance(item, In) and not item.negated and len(item.column.path) == 1:
            pinned.setdefault(item.column.path[0], [value.raw for value in item.values])
    if not key or not set(key) <= set(pinned):
        return None
    count = 1
    for name in key:
        count *= len(pinned[name])
    if count > _POINTS_MAX:
        return None
    return list(itertools.product(*(pinned[name] for name in key)))


def overlap(one: Predicate, other: Predicate) -> bool:
    """Tell whether a row could satisfy both; never False when one could.

    Looks at conjunctions of comparisons of single columns only.
    """
    bounds: dict[str, Bounds] = {}
    for item in one.items if isinstance(one, And) else (one,):
        if isinstance(item, Compare) and item.op != "!=" and len(item.column.path) == 1:
            name, raw = item.column.path[0], item.value.raw
            if isinstance(raw, float):
                continue
            known = bounds.get(name, Bounds(nulls=0, rows=1))
            low = raw if item.op in ("=", ">", ">=") else known.lower
            high = raw if item.op in ("=", "<", "<=") else known.upper
            bounds[name] = Bounds(low, high, 0, 1)
    return may_match(other, bounds)
