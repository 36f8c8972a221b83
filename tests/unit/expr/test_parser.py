"""SQL text of anybody's is bounded in length, parts and depth before it is parsed."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from plait.errors import MissingDependencyError, PredicateError
from plait.expr import parse_value, parse_where
from plait.expr.bind import bind
from plait.expr.evaluate import Sides, compute
from plait.expr.parser import PREDICATE, parsed
from plait.expr.sql import parse_expression
from plait.expr.tree import DEPTH_MAX, TARGET

SCHEMA = pa.schema([("id", pa.int64()), ("t", pa.string()), ("b", pa.bool_())])
TOO_LARGE = {
    "length": "id = 1" + " " * (1 << 20),
    "levels": "(" * 101 + "id = 1" + ")" * 101,
    "very many levels": "(" * 100_000,
    "brackets": "[" * 101 + "]" * 101,
    "or": " OR ".join(["id = 1"] * 30_000),
    "one more or": " OR ".join(["id = 1"] * 5_002),
    "values": f"id IN ({', '.join(map(str, range(100_001)))})",
    "digits": "id < " + "9" * 100_000,
    "digits behind the point": "id < 0." + "9" * 1_000,
    "not": "NOT " * 24_000 + "b",
    "minus": "id = " + "- " * 24_000 + "1",
    "unclosed texts": "'\\'" * 300_000,
    "number in a text": f"id = CAST('{'1' * 8_000}x' AS INT)",
    "blanks in a text": f"id = CAST('{' ' * 300_000}x' AS INT)",
    "date": f"id = CAST('{'1' * 300_000}x' AS DATE)",
    "pattern": f"t LIKE '{'%a' * 100_000}'",
}
REMEDIES = {
    "length": "isin",
    "values": "isin",
    "one more or": "with IN",
    "levels": "at most 100; leave needless",
    "not": "leave needless",
    "digits": "no column holds",
}
"""What helps against the limit that was met: ``isin`` takes many values, and no deeper ones."""
FITS = {
    "levels": "(" * (DEPTH_MAX - 1) + "id = 1" + ")" * (DEPTH_MAX - 1),
    "fifty levels": "(" * 50 + "id = 1" + ")" * 50,
    "or": " OR ".join(f"id = {number}" for number in range(5_000)),
    "values": f"id IN ({', '.join(map(str, range(10_000)))})",
    "signs in texts": "t = '" + "(" * 20_000 + "' AND t <> ' and or '",
}


@pytest.mark.timeout(60)  # a bound on a hang: each takes less than a second alone
@pytest.mark.parametrize("name", TOO_LARGE)
def test_text_that_is_too_large_is_refused_at_once_with_what_helps(name: str) -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(PredicateError) as error:
        parse_where(TOO_LARGE[name], SCHEMA)
    assert len(str(error.value)) < 1_000
    assert REMEDIES.get(name, "") in error.value.hint
    assert sys.getrecursionlimit() == limit


@pytest.mark.timeout(60)
def test_value_that_is_too_large_is_refused_at_once_with_what_helps() -> None:
    with pytest.raises(PredicateError) as error:
        parse_value("1" + " + 1" * 20_000)
    assert "a function" in error.value.hint
    for name in ("levels", "very many levels", "or", "digits", "unclosed texts"):
        with pytest.raises(PredicateError):
            parse_value(TOO_LARGE[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_text_within_the_bounds_is_parsed(name: str) -> None:
    """Fifty parentheses were more than the parser's stack."""
    parse_where(FITS[name], SCHEMA)
    if name == "levels":
        parse_value("(" * (DEPTH_MAX - 1) + "1" + ")" * (DEPTH_MAX - 1))


def test_a_missing_parser_is_named_and_size_is_counted_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(MissingDependencyError) as caught:
        parse_where("id = 1", SCHEMA)
    assert "sqlglot" in caught.value.hint
    for text in (TOO_LARGE["or"], TOO_LARGE["values"], TOO_LARGE["very many levels"]):
        with pytest.raises(PredicateError, match="too large"), parsed(text, PREDICATE):
            pass


@pytest.mark.parametrize("name", ["concat", "greatest", "least", "coalesce"])
def test_a_function_of_very_many_values_is_refused(name: str) -> None:
    parse_expression(f"{name}({', '.join(['v'] * 1_000)})")
    with pytest.raises(PredicateError):
        parse_expression(f"{name}({', '.join(['v'] * 1_001)})")


def test_texts_that_fill_the_memory_are_refused_before_they_are_made() -> None:
    rows = pa.table({"v": ["x" * 1_000_000]})
    once = "concat(" + ", ".join(["v"] * 100) + ")"
    expression = bind(parse_expression(f"length({once})"), {TARGET: rows.schema})
    assert compute(expression, Sides.of(t=rows)).to_pylist() == [100_000_000]
    twice = bind(parse_expression(f"concat({', '.join([once] * 9)})"), {TARGET: rows.schema})
    with pytest.raises(PredicateError):
        compute(twice, Sides.of(t=rows))
