"""pyarrow expressions as predicates: evaluated by Arrow. Only pruning looks into them."""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait.errors import PredicateError
from plait.expr import columns_read, may_match, negate, parse_ddl, parse_where, to_json, to_sql
from plait.expr.tree import all_of, any_of
from tests.support.expressions import filtered

SCHEMA = parse_ddl("at int, id bigint, s string, f double, b boolean, ts timestamp")
F = pc.field
ROWS: list[dict[str, Any]] = [
    {"at": 0, "id": 5, "s": "a%b", "f": 1.5, "b": True},
    {"at": 1, "id": -1, "s": "ab\n", "f": math.nan, "b": False},
    {"at": 2, "id": 2**50, "s": "", "f": -0.0},
    {"at": 3},
]
TABLE = pa.Table.from_pylist(ROWS, schema=SCHEMA)
EXPRESSIONS = [
    F("id") > 5,
    F("f") > 1,
    F("b"),
    F("id").isin([5, None]),
    F("f").is_null(nan_is_null=True),
    pc.utf8_upper(F("s")) == "A%B",
    pc.if_else(F("b"), F("id") > 1, F("id") < 1),
    pc.scalar(True),
]


def rows_of(predicate: object) -> list[int]:
    found: list[int] = filtered(TABLE, predicate)["at"].to_pylist()  # type: ignore[arg-type]  # any predicate
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_keeps_the_meaning_of_arrow(expression: pc.Expression) -> None:
    """Of nulls and NaN too, which Arrow compares in its own way."""
    predicate = parse_where(expression, SCHEMA)
    assert rows_of(predicate) == TABLE.filter(expression)["at"].to_pylist()
    assert rows_of(negate(predicate)) == TABLE.filter(~expression)["at"].to_pylist()


@pytest.mark.parametrize(
    ("joined", "same"), [(all_of, operator.and_), (any_of, operator.or_)], ids=["and", "or"]
)
def test_an_expression_joins_other_predicates(
    joined: Callable[..., object], same: Callable[..., pc.Expression]
) -> None:
    predicate = joined(parse_where("id > 4", SCHEMA), parse_where(F("f") > 1, SCHEMA))
    assert rows_of(predicate) == TABLE.filter(same(F("id") > 4, F("f") > 1))["at"].to_pylist()


def test_an_expression_prunes_nothing_and_stays_in_this_process() -> None:
    predicate = parse_where(F("id") == 77, SCHEMA)
    assert columns_read(predicate) is None
    assert may_match(predicate, {"id": pa.array([5], pa.int64())}, 1).all()
    for write in (to_sql, to_json):
        with pytest.raises(PredicateError) as caught:
            write(predicate)
        assert "SQL text" in caught.value.hint


@pytest.mark.parametrize(
    "expression",
    [F("nothing") > 2, F("s") == 5, F("id"), F("ts") > dt.datetime(2026, 1, 1)],  # noqa: DTZ001 - as users write it
    ids=str,
)
def test_an_expression_that_does_not_fit_the_table_is_refused(expression: pc.Expression) -> None:
    with pytest.raises(PredicateError, match="does not fit"):
        parse_where(expression, SCHEMA)


def test_an_expression_names_its_columns() -> None:
    """By position it would look at another column of rows that have fewer."""
    for expression in (F(1) > 1, F("b") & (F(0) == 1)):
        with pytest.raises(PredicateError, match="name the columns"):
            parse_where(expression, SCHEMA)
