"""Predicates mean the same as text, as a tree, as JSON, in Arrow and in pruning."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.errors import CorruptMetadataError, PredicateError, SchemaError
from plait.expr import (
    Always,
    Bounds,
    from_json,
    key_points,
    may_match,
    on_partition,
    overlap,
    parse_ddl,
    parse_where,
    to_arrow,
    to_json,
    to_sql,
)

SCHEMA = parse_ddl(
    "id bigint not null, t tinyint, d decimal(5,2), s string, f double, b boolean, day date, "
    "ts timestamp, st struct<a:int>"
)


def test_supported_text_selects_rows() -> None:
    """A row is selected only if the predicate is TRUE for it."""
    table = pa.table(
        {"id": [1, 2, 3, 4], "s": ["a", None, "ab", "b"], "f": [1.0, math.nan, None, -1.0]},
        schema=pa.schema([SCHEMA.field(n) for n in ("id", "s", "f")]),
    )
    cases = {
        "id = 2": [2],
        "2 < id": [3, 4],
        "id BETWEEN 2 AND 3": [2, 3],
        "s LIKE 'a%'": [1, 3],
        "s NOT LIKE 'a%'": [4],
        "s IN ('a', NULL)": [1],
        "s NOT IN ('a', NULL)": [],
        "NOT (s = 'a')": [3, 4],
        "s <=> NULL": [2],
        "s IS NOT NULL AND id > 1": [3, 4],
        "f > 100": [2],
        "f >= CAST('NaN' AS DOUBLE)": [2],
        "NOT (f <= 0)": [1, 2],
        "id < 2.5": [1, 2],
        "id = 2.5 OR id <=> 4": [4],
        "`ID` != -1 AND true": [1, 2, 3, 4],
    }
    for text, expected in cases.items():
        found = table.filter(to_arrow(parse_where(text, table.schema)))["id"].to_pylist()
        assert found == expected, text


def test_literals_beyond_a_type_are_folded() -> None:
    """``tinyint < 1000`` is true of every value, and NULL of a null."""
    table = pa.table({"t": pa.array([1, None], pa.int8())})
    for text, expected in {"t < 1000": [1], "NOT (t < 1000)": [], "t > 1000": []}.items():
        found = table.filter(to_arrow(parse_where(text, SCHEMA)))["t"].to_pylist()
        assert found == expected, text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("id + 1 = 2", "id + 1"),
        ("upper(s) = 'A'", "UPPER(s)"),
        ("nothing = 1", "nothing"),
        ("id = 'x'", "bigint"),
        ("day = 'soon'", "day"),
        ("id =", "id ="),
        ("id IN (SELECT 1)", "SELECT"),
        ("id = 1; DROP TABLE x", ""),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text: str, part: str) -> None:
    """Never a silent wrong answer."""
    with pytest.raises(PredicateError) as caught:
        parse_where(text, SCHEMA)
    assert part in str(caught.value)


def test_deep_nesting_is_refused() -> None:
    """Rubbish costs an error, not the stack."""
    with pytest.raises(PredicateError):
        parse_where("(" * 5000 + "id = 1" + ")" * 5000, SCHEMA)


@pytest.mark.parametrize(
    "value", [None, 3, {}, {"and": []}, {"compare": ["id"], "op": "~", "value": "1"}, {"null": 1}]
)
def test_json_that_is_no_predicate_is_refused(value: object) -> None:
    """Metadata is untrusted."""
    with pytest.raises(CorruptMetadataError):
        from_json(value, SCHEMA)


def test_an_arrow_expression_is_taken_as_it_is() -> None:
    """It filters in Arrow, survives JSON, and Spark is refused."""
    predicate = parse_where(pc.field("id") > 2, SCHEMA)
    table = SCHEMA.empty_table()
    assert table.filter(to_arrow(from_json(to_json(predicate), SCHEMA))).num_rows == 0
    with pytest.raises(PredicateError):
        to_sql(predicate)
    with pytest.raises(PredicateError):
        parse_where(pc.field("nothing") > 2, SCHEMA)


def test_key_points_need_every_key_column() -> None:
    """Only a predicate that pins the whole key prunes buckets."""
    one = parse_where("id = 3 AND s IN ('a', 'b')", SCHEMA)
    assert key_points(one, ["id", "s"]) == [(3, "a"), (3, "b")]
    assert key_points(one, ["id", "t"]) is None
    assert key_points(parse_where("id > 3", SCHEMA), ["id"]) is None


def test_predicates_that_share_no_row_do_not_overlap() -> None:
    """Never False when a row could satisfy both."""
    low, high = parse_where("id < 4", SCHEMA), parse_where("id >= 5", SCHEMA)
    assert not overlap(low, high)
    assert overlap(low, parse_where("id <= 4 AND s = 'x'", SCHEMA))
    assert overlap(low, parse_where("s = 'x'", SCHEMA))


def test_known_partition_values_leave_the_rest() -> None:
    """What remains asks about other columns only."""
    predicate = parse_where("s = 'a' AND id > 3", SCHEMA)
    assert on_partition(predicate, {"s": "b"}) == Always(value=False)
    assert on_partition(predicate, {"s": "a"}) == parse_where("id > 3", SCHEMA)


@pytest.mark.parametrize("text", ["", "id", "id bigint,", "id nothing", "id array<int", "a b c"])
def test_ddl_that_is_none_is_refused(text: str) -> None:
    """The error names the position."""
    with pytest.raises(SchemaError, match="character"):
        parse_ddl(text)


# --- laws ------------------------------------------------------------------------------------

ROW = st.fixed_dictionaries(
    {
        "id": st.integers(-3, 3) | st.none(),
        "s": st.sampled_from(["", "a", "ab", "b", "ü"]) | st.none(),
        "f": st.sampled_from([-1.0, 0.0, -0.0, 1.5, math.nan]) | st.none(),
    }
)
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
LEAF = st.one_of(
    st.tuples(st.just("id"), st.sampled_from(OPERATORS), st.integers(-4, 4)),
    st.tuples(st.just("s"), st.sampled_from(OPERATORS), st.sampled_from(["", "a", "ab", "z"])),
    st.tuples(st.just("f"), st.sampled_from(OPERATORS), st.sampled_from([-1.0, 0.0, 1.5])),
    st.tuples(st.sampled_from(["id", "s", "f"]), st.just("null"), st.none()),
)
TREE: st.SearchStrategy[Any] = st.recursive(
    LEAF,
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner)
    ),
    max_leaves=6,
)
PLAIN = pa.schema([("id", pa.int64()), ("s", pa.string()), ("f", pa.float64())])


def text_of(tree: Any) -> str:
    match tree:
        case ("not", inner):
            return f"(NOT {text_of(inner)})"
        case (("and" | "or") as word, left, right):
            return f"({text_of(left)} {word} {text_of(right)})"
        case (column, "null", _):
            return f"({column} IS NULL)"
        case (column, op, str(value)):
            return f"({column} {op} '{value}')"
        case (column, op, value):
            return f"({column} {op} {value})"
    raise AssertionError(tree)


def truth(tree: Any, row: dict[str, Any]) -> bool | None:
    """Evaluate by the book: three values, NaN greater than everything."""
    match tree:
        case ("not", inner):
            value = truth(inner, row)
            return None if value is None else not value
        case (("and" | "or") as word, left, right):
            both = {truth(left, row), truth(right, row)}
            strong = word == "or"
            return strong if strong in both else None if None in both else not strong
        case (column, "null", _):
            return row[column] is None
        case (column, op, literal):
            value = row[column]
            if value is None:
                return None
            if isinstance(value, float) and math.isnan(value):
                return op in ("!=", ">", ">=")
            left, right = (
                (value.encode(), literal.encode()) if isinstance(value, str) else (value, literal)
            )
            return {
                "=": left == right,
                "!=": left != right,
                "<": left < right,
                "<=": left <= right,
                ">": left > right,
                ">=": left >= right,
            }[op]
    raise AssertionError(tree)


@settings(max_examples=200, deadline=None)
@given(TREE, st.lists(ROW, max_size=6))
def test_arrow_selects_what_the_book_says(tree: Any, rows: list[dict[str, Any]]) -> None:
    """Also through JSON, and back from Spark SQL text."""
    predicate = parse_where(text_of(tree), PLAIN)
    assert from_json(to_json(predicate), PLAIN) == predicate
    numbered = [{**row, "at": at} for at, row in enumerate(rows)]
    table = pa.Table.from_pylist(numbered, schema=pa.schema([*PLAIN, ("at", pa.int64())]))
    expected = [row["at"] for row in numbered if truth(tree, row) is True]
    assert table.filter(to_arrow(predicate))["at"].to_pylist() == expected


@settings(max_examples=200, deadline=None)
@given(TREE, st.lists(ROW, min_size=1, max_size=6))
def test_pruning_never_drops_a_matching_row(tree: Any, rows: list[dict[str, Any]]) -> None:
    """INV-04: what is skipped holds no row that a reader asked for."""
    predicate = parse_where(text_of(tree), PLAIN)
    bounds = {}
    for name in PLAIN.names:
        known = [row[name] for row in rows if row[name] is not None]
        plain = [value for value in known if value == value]  # noqa: PLR0124 - not a NaN
        ordered = sorted(plain, key=lambda v: v.encode() if isinstance(v, str) else v)
        low, high = (ordered[0], ordered[-1]) if ordered else (None, None)
        bounds[name] = Bounds(low, high, len(rows) - len(known), len(rows))
    if any(truth(tree, row) is True for row in rows):
        assert may_match(predicate, bounds)
    for row in rows:
        values = {"id": row["id"], "s": row["s"]}
        rest = on_partition(predicate, values)
        if truth(tree, row) is True:
            assert rest != Always(value=False)
