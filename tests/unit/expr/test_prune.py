"""What bounds, partitions and keys say: never that a matching row is not there."""

from __future__ import annotations

import math

import pytest

from plait.expr import (
    Always,
    Bounds,
    key_points,
    may_match,
    on_partition,
    overlap,
    parse_ddl,
    parse_where,
)

SCHEMA = parse_ddl("id bigint, s string, f double, b boolean, d decimal(5,2), st struct<a:int>")


def where(text: str):
    return parse_where(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 3", False),
        ("id = 5", True),
        ("id > 9", False),
        ("id >= 9", True),
        ("id < 5", False),
        ("id IN (1, 12)", False),
        ("id IN (1, 6)", True),
        ("id NOT IN (6)", True),
        ("id IS NULL", False),
        ("id < 1000000000000000000000", True),
        ("id = 2.5", False),
        ("s LIKE 'a%'", False),
        ("s LIKE 'ba%'", True),
        ("s LIKE 'c_'", True),
        ("s LIKE 'd%'", False),
        ("s LIKE '%x'", True),
        ("s NOT LIKE 'a%'", True),
        ("s IS NULL", True),
        ("f > 100", True),  # a NaN is greater, and not within the bounds
        ("f < 0", False),
        ("f <> 1", True),
        ("f = CAST('nan' AS DOUBLE)", True),
        ("b = true", False),  # only nulls
        ("b IS NOT NULL", False),
        ("b IS NULL", True),
        ("st.a = 5", True),
        ("d = 1", True),
        ("NULL", False),
        ("id = 3 OR s = 'b'", True),
        ("id = 5 AND s = 'a'", False),
    ],
)
def test_bounds_rule_out_only_what_is_not_there(text: str, expected: bool) -> None:
    bounds = {
        "id": Bounds(5, 9, 0, 10),
        "s": Bounds("b", "cz", 1, 10),
        "f": Bounds(0.0, 2.0, 0, 10),
        "b": Bounds(None, None, 10, 10),
    }
    assert may_match(where(text), bounds) is expected


@pytest.mark.parametrize("bounds", [{}, {"f": Bounds(math.nan, math.nan, 0, 3)}])
def test_nothing_is_ruled_out_by_bounds_that_say_nothing(bounds: dict[str, Bounds]) -> None:
    for text in ("f < 1", "f = 1", "f > 1", "id = 1", "id IS NULL", "s LIKE 'a%'"):
        assert may_match(where(text), bounds)


def test_one_value_everywhere_rules_out_others() -> None:
    assert not may_match(where("id != 5"), {"id": Bounds(5, 5, 0, 3)})
    assert may_match(where("f != 5"), {"f": Bounds(5.0, 5.0, 0, 3)})


def test_known_partition_values_leave_the_rest() -> None:
    """What remains asks about other columns only."""
    predicate = where("s = 'a' AND id > 3")
    assert on_partition(predicate, {"s": "b"}) == Always(value=False)
    assert on_partition(predicate, {"s": "a"}) == where("id > 3")
    assert on_partition(predicate, {"s": None, "id": 4}) != Always(value=True)
    assert on_partition(where("s LIKE 'a%' OR id > 3"), {"s": "ab"}) == Always(value=True)
    assert on_partition(where("st.a = 1"), {"st": None}) == where("st.a = 1")


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("f = CAST('nan' AS DOUBLE)", math.nan, True),
        ("f IN (1, CAST('nan' AS DOUBLE))", math.nan, True),
        ("f > 5", math.nan, True),
        ("f < CAST('nan' AS DOUBLE)", math.nan, False),
        ("f < CAST('nan' AS DOUBLE)", 5.0, True),
        ("f = 0", -0.0, True),
        ("f = 1", None, None),
        ("f IS NULL", None, True),
    ],
)
def test_partition_values_compare_as_rows_do(
    text: str, value: float | None, expected: bool | None
) -> None:
    assert on_partition(where(text), {"f": value}) == Always(expected)


def test_patterns_cost_little_whatever_they_are() -> None:
    """Each % multiplies the work of an engine that tries every way."""
    assert on_partition(where(f"s LIKE '{'%a' * 40}b'"), {"s": "a" * 20_000}) == Always(value=False)


def test_key_points_need_every_key_column() -> None:
    """Only a predicate that pins the whole key prunes buckets."""
    one = where("id = 3 AND s IN ('a', 'b') AND f > 1")
    assert key_points(one, ["id", "s"]) == [(3, "a"), (3, "b")]
    assert key_points(one, ["id", "b"]) is None
    assert key_points(one, []) is None
    assert key_points(where("id > 3"), ["id"]) is None
    assert key_points(where("id NOT IN (3)"), ["id"]) is None
    assert key_points(where("st.a = 3"), ["st"]) is None


def test_key_points_see_through_or_and_are_few() -> None:
    assert key_points(where("id = 1 OR id IN (2, 1)"), ["id"]) == [(1,), (2,)]
    assert key_points(where("f > 1 AND (id = 1 OR id = 2)"), ["id"]) == [(1,), (2,)]
    assert key_points(where("id = 1 OR s = 'a'"), ["id"]) is None
    assert key_points(where("id IN (1, 2) AND id = 2"), ["id"]) == [(2,)]
    listed = ", ".join(map(str, range(1001)))
    assert key_points(where(f"id IN ({listed})"), ["id"]) is None
    pairs = ", ".join(map(str, range(40))), ", ".join(f"'{n}'" for n in range(40))
    assert key_points(where(f"id IN ({pairs[0]}) AND s IN ({pairs[1]})"), ["id", "s"]) is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("id < 4", "id >= 5", False),
        ("id < 4", "id >= 4", False),
        ("id <= 4", "id >= 4", True),
        ("id < 4", "id <= 4 AND s = 'x'", True),
        ("id < 4", "s = 'x'", True),
        ("s = 'a'", "s = 'b' OR s = 'c'", False),
        ("s = 'a' OR id = 1", "s = 'b' AND id = 2", False),
        ("id IN (1, 5)", "id IN (3)", False),
        ("id IN (1, 5)", "id IN (3, 7)", False),
        ("id IN (1, 5)", "id IN (3, 5)", True),
        ("id IS NULL", "id = 3", False),
        ("id IS NULL", "id IS NULL", True),
        ("s LIKE 'a%'", "s LIKE 'b%'", False),
        ("s LIKE 'b%'", "s < 'a'", False),
        ("id = 1 AND id = 2", "s = 'a'", False),
        ("f > 5", "f < 3", False),
        ("f > 5", "f = CAST('nan' AS DOUBLE)", True),
        ("FALSE", "id = 1", False),
        ("f IN (1, CAST('nan' AS DOUBLE))", "f IN (2, CAST('nan' AS DOUBLE))", True),
        ("f IN (0, 1)", "f IN (CAST('-0.0' AS DOUBLE), 5)", True),
    ],
)
def test_predicates_that_share_no_row_do_not_overlap(one: str, other: str, expected: bool) -> None:
    """INV-07: never False when a row could satisfy both; here, as sharp as it should be."""
    assert overlap(where(one), where(other)) is expected
    assert overlap(where(other), where(one)) is expected


def test_overlap_of_large_predicates_is_bounded() -> None:
    """What is too much to compare overlaps; lists of values are compared whole."""
    even, odd = (", ".join(str(2 * number + rest) for number in range(2000)) for rest in (0, 1))
    assert not overlap(where(f"id IN ({even})"), where(f"id IN ({odd})"))
    assert overlap(where(f"id IN ({even})"), where(f"id IN ({odd}, 8)"))
    assert not overlap(where(f"id IN ({even})"), where("id = 7"))
    one, other = (
        where(" OR ".join(f"(id = {number} AND s = '{text}')" for number in range(150)))
        for text in ("a", "b")
    )
    assert overlap(one, other)
    assert not overlap(one, where("s = 'b'"))
