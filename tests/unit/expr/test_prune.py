"""What bounds, partitions and keys say: never that a matching row is not there."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from plait.expr import (
    Bounds,
    key_points,
    may_match,
    parse_ddl,
    parse_where,
)

SCHEMA = parse_ddl("id bigint, s string, f double, b boolean, d decimal(5,2), st struct<a:int>")


def where(text: str):
    return parse_where(text, SCHEMA)


def bounds(name: str, lower: object, upper: object, nulls: int | None, rows: int) -> Bounds:
    """Return the bounds of one place."""
    kind = SCHEMA.field(name).type
    counts = (pa.array([count], pa.int64()) for count in (nulls, rows))
    return Bounds(pa.array([lower], kind), pa.array([upper], kind), *counts)


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
        ("f > 100", False),  # a column in which a NaN stands has no bounds
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
    known = {
        "id": bounds("id", 5, 9, 0, 10),
        "s": bounds("s", "b", "cz", 1, 10),
        "f": bounds("f", 0.0, 2.0, 0, 10),
        "b": bounds("b", None, None, 10, 10),
    }
    assert may_match(where(text), known, 1).tolist() == [expected]


@pytest.mark.parametrize("known", [{}, {"f": bounds("f", None, None, None, 3)}])
def test_nothing_is_ruled_out_by_bounds_that_say_nothing(known: dict[str, Bounds]) -> None:
    for text in ("f < 1", "f = 1", "f > 1", "id = 1", "id IS NULL", "s LIKE 'a%'"):
        assert may_match(where(text), known, 1).all()


def test_one_value_everywhere_rules_out_others() -> None:
    assert not may_match(where("id != 5"), {"id": bounds("id", 5, 5, 0, 3)}, 1).any()


def test_long_lists_of_values_are_judged_by_their_ends() -> None:
    listed = where(f"id IN ({', '.join(map(str, range(10, 200)))})")
    assert not may_match(listed, {"id": bounds("id", 5, 9, 0, 3)}, 1).any()
    assert may_match(listed, {"id": bounds("id", 5, 10, 0, 3)}, 1).all()


def on_values(text: str, **values: object) -> bool:
    arrays = {name: pa.array([value], SCHEMA.field(name).type) for name, value in values.items()}
    return bool(may_match(where(text), arrays, 1)[0])


def test_known_values_are_judged_exactly() -> None:
    """Of a partition whose values are known, only other columns are in doubt."""
    assert not on_values("s = 'a' AND id > 3", s="b")
    assert on_values("s = 'a' AND id > 3", s="a")
    assert not on_values("s NOT IN ('a') AND id > 3", s="a")
    assert not on_values("s NOT LIKE 'a%'", s="ab")
    assert not on_values("s = 'a' AND id > 3", s=None, id=4)
    assert on_values("s LIKE 'a%' OR id > 3", s="ab")
    assert on_values("st.a = 1", st=None)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("f = CAST('nan' AS DOUBLE)", math.nan, True),
        ("f IN (1, CAST('nan' AS DOUBLE))", math.nan, True),
        ("f > 5", math.nan, True),
        ("f < CAST('nan' AS DOUBLE)", math.nan, False),
        ("f < CAST('nan' AS DOUBLE)", 5.0, True),
        ("f = 0", -0.0, True),
        ("f IN (0, 1)", -0.0, True),
        ("f = 1", None, False),
        ("f IS NULL", None, True),
    ],
)
def test_partition_values_compare_as_rows_do(
    text: str, value: float | None, expected: bool
) -> None:
    assert on_values(text, f=value) is expected


def test_patterns_cost_little_whatever_they_are() -> None:
    """Each % multiplies the work of an engine that tries every way."""
    assert not on_values(f"s LIKE '{'%a' * 40}b'", s="a" * 20_000)


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
    pairs_of_keys = "f > 1 AND ((id = 1 AND s = 'a') OR (id = 2 AND s = 'b'))"
    assert key_points(where(pairs_of_keys), ["id", "s"]) == [(1, "a"), (2, "b")]
    assert key_points(where("id = 1 OR s = 'a'"), ["id"]) is None
    assert key_points(where("id IN (1, 2) AND id = 2"), ["id"]) == [(2,)]
    listed = ", ".join(map(str, range(1001)))
    assert key_points(where(f"id IN ({listed})"), ["id"]) is None
    pairs = ", ".join(map(str, range(40))), ", ".join(f"'{n}'" for n in range(40))
    assert key_points(where(f"id IN ({pairs[0]}) AND s IN ({pairs[1]})"), ["id", "s"]) is None
