"""What a predicate says of rows that are known only roughly: bounds, partitions, keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from plait.expr.arrow_out import like_head, like_regex, text_after
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

POINTS_MAX = 1_000
PAIRS_MAX = 10_000
TRIED_MAX = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a column in some rows; None where it is not known.

    Of floating columns the bounds leave NaN out, as those of Parquet do.
    """

    lower: Raw | None = None
    upper: Raw | None = None
    nulls: int | None = None
    rows: int | None = None


_UNKNOWN = Bounds()


def may_match(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """Tell whether a row within the bounds could match; never False when one could."""
    match predicate:
        case Always(value):
            return value is True
        case And(items):
            return all(may_match(item, bounds) for item in items)
        case Or(items):
            return any(may_match(item, bounds) for item in items)
        case Fixed() | IsNull() | Compare() | In() | Like():
            return _may_match(predicate, _of(predicate.column, bounds))
    return True


def _may_match(leaf: Fixed | IsNull | Compare | In | Like, known: Bounds) -> bool:
    if isinstance(leaf, IsNull) and not leaf.negated:
        return known.nulls != 0
    if known.nulls is not None and known.rows is not None and known.nulls >= known.rows:
        return False
    match leaf:
        case Fixed(_, value):
            return value
        case Compare(_, op, value):
            return _may_compare(op, value.raw, known)
        case In(_, values, False):
            return any(_may_compare("=", value.raw, known) for value in values)
        case Like(_, pattern, False):
            return _may_begin(like_head(pattern), known)
    return True


def _of(column: Column, bounds: Mapping[str, Bounds]) -> Bounds:
    if len(column.path) > 1:
        return _UNKNOWN
    return bounds.get(column.path[0], _UNKNOWN)


def _may_compare(op: str, value: Raw, known: Bounds) -> bool:
    low, high = _number_or_none(known.lower), _number_or_none(known.upper)
    if _is_nan(value):
        return True  # bounds say nothing of NaN
    # a NaN is greater than every bound
    high_nan = isinstance(value, float)
    match op:
        case "=":
            return (low is None or not _less(value, low)) and (
                high is None or not _less(high, value)
            )
        case "<":
            return low is None or _less(low, value)
        case "<=":
            return low is None or not _less(value, low)
        case ">":
            return high_nan or high is None or _less(value, high)
        case ">=":
            return high_nan or high is None or not _less(high, value)
    return high_nan or low is None or high is None or not low == high == value


def _number_or_none(bound: Raw | None) -> Raw | None:
    return None if bound is None or _is_nan(bound) else bound


def _is_nan(value: Raw) -> bool:
    return isinstance(value, (float, Decimal)) and value != value  # noqa: PLR0124 - NaN


def _less(one: Raw, other: Raw) -> bool:
    # texts compare by code points, which is the order of their UTF-8 bytes
    return bool(one < other)  # type: ignore[operator]  # both of the column's type


def _may_begin(head: str, known: Bounds) -> bool:
    """Tell whether a text within the bounds may begin with ``head``."""
    low, high = known.lower, known.upper
    after = text_after(head)
    too_high = isinstance(low, str) and after is not None and low >= after
    too_low = isinstance(high, str) and high < head
    return not too_high and not too_low


def on_partition(predicate: Predicate, values: Mapping[str, Raw | None]) -> Predicate:
    """Put in known values of whole columns; what remains asks about other columns only.

    ``Always`` means that the values alone decide: TRUE, FALSE or NULL.
    """
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
    return predicate


def _on_value(leaf: Fixed | IsNull | Compare | In | Like, value: Raw | None) -> bool | None:
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
            return any(_compare("=", value, item) for item in values) != negated
        case Like(_, pattern, negated):
            return _matches(pattern, str(value)) != negated


def _compare(op: str, value: Raw, literal: Value) -> bool:
    """Compare as SQL does: NaN equals itself and is greater than everything."""
    other = literal.raw
    if _is_nan(value) or _is_nan(other):
        equal, less = _is_nan(value) and _is_nan(other), not _is_nan(value)
    else:
        equal, less = value == other, _less(value, other)
    match op:
        case "=":
            return equal
        case "!=":
            return not equal
        case "<":
            return less and not equal
        case "<=":
            return less or equal
        case ">":
            return not less and not equal
    return equal or not less


def _matches(pattern: str, text: str) -> bool:
    # by Arrow's engine, whose cost is linear whatever the pattern, and not by Python's
    found = pc.match_substring_regex(pa.scalar(text, pa.string()), like_regex(pattern))
    return bool(found.as_py())


def key_points(predicate: Predicate, key: Sequence[str]) -> list[tuple[Raw, ...]] | None:
    """Give the record keys that a predicate asks for, if it pins every key column.

    None if it does not, or to more than 1,000 keys. Other conditions may narrow them further.
    """
    if not key:
        return None
    if isinstance(predicate, Or):
        return _united(key_points(item, key) for item in predicate.items)
    items = _conjuncts(predicate)
    pinned: dict[str, list[Raw]] = {}
    for item in items:
        name, raws = _pinned(item)
        if raws and (name not in pinned or len(raws) < len(pinned[name])):
            pinned[name] = raws
    if set(key) <= set(pinned):
        chosen = [pinned[name] for name in key]
        return _united([list(itertools.islice(itertools.product(*chosen), POINTS_MAX + 1))])
    for item in items:
        if isinstance(item, Or) and (found := key_points(item, key)) is not None:
            return found
    return None


def _pinned(item: Predicate) -> tuple[str, list[Raw]]:
    match item:
        case Compare(Column((name,), _), "=", value):
            return name, [value.raw]
        case In(Column((name,), _), values, False):
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


def overlap(one: Predicate, other: Predicate) -> bool:
    """Tell whether a row could satisfy both; never False when one could.

    Sees through ORs at the top and conjunctions of conditions on single columns.
    """
    ours = one.items if isinstance(one, Or) else (one,)
    theirs = other.items if isinstance(other, Or) else (other,)
    if len(ours) * len(theirs) > PAIRS_MAX:
        ours, theirs = (one,), (other,)
    return any(_meet(a, b) and _meet(b, a) for a in ours for b in theirs)


def _meet(one: Predicate, other: Predicate) -> bool:
    """Tell whether rows of ``one``, of which only some bounds are kept, could satisfy ``other``."""
    bounds: dict[str, Bounds] = {}
    for item in _conjuncts(one):
        if isinstance(item, (Fixed, IsNull, Compare, In, Like)) and len(item.column.path) == 1:
            name = item.column.path[0]
            known = _narrowed(bounds.get(name, _UNKNOWN), item)
            if known is None:
                return False
            bounds[name] = known
    if not may_match(other, bounds):
        return False
    theirs = [(name, raws) for name, raws in map(_pinned, _conjuncts(other)) if raws]
    return all(
        _may_share(name, raws, theirs) and _may_hold(other, bounds, name, raws)
        for name, raws in map(_pinned, _conjuncts(one))
        if raws
    )


def _conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    return predicate.items if isinstance(predicate, And) else (predicate,)


def _may_share(name: str, raws: list[Raw], pinned: list[tuple[str, list[Raw]]]) -> bool:
    """Tell whether lists of values of one column meet; of floats, which have NaN, they may."""
    if isinstance(raws[0], float):
        return True
    values = set(raws)
    return all(found != name or not values.isdisjoint(others) for found, others in pinned)


def _may_hold(
    predicate: Predicate, bounds: Mapping[str, Bounds], name: str, raws: list[Raw]
) -> bool:
    """Tell whether a row with one of these values could match; long lists may."""
    return len(raws) > TRIED_MAX or any(
        may_match(predicate, {**bounds, name: Bounds(raw, raw, 0, 1)}) for raw in raws
    )


def _narrowed(known: Bounds, leaf: Fixed | IsNull | Compare | In | Like) -> Bounds | None:
    """Add to what is known of a column in a matching row; None if no row can match."""
    if isinstance(leaf, IsNull) and not leaf.negated:
        return Bounds(known.lower, known.upper, 1, 1) if known.nulls != 0 else None
    if known.nulls == 1:
        return None
    low, high = known.lower, known.upper
    match leaf:
        case Compare(_, op, value) if not _is_nan(value.raw):
            raw = value.raw
            step = isinstance(raw, int) and not isinstance(raw, bool)
            if op in ("=", ">", ">="):
                least = raw + 1 if step and op == ">" else raw  # type: ignore[operator]  # an int
                low = least if low is None or _less(low, least) else low
            if op in ("=", "<", "<="):
                most = raw - 1 if step and op == "<" else raw  # type: ignore[operator]  # an int
                high = most if high is None or _less(most, high) else high
        case Like(_, pattern, False) if head := like_head(pattern):
            low = head if not isinstance(low, str) or low < head else low
    floating = isinstance(low, float) or isinstance(high, float)
    if low is not None and high is not None and not floating and _less(high, low):
        return None
    return Bounds(low, high, 0, 1)
