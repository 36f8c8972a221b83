"""Predicates and Arrow: in without a change of meaning, out so that datasets prune."""

from __future__ import annotations

import datetime as dt
import functools
import math
import operator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import PredicateError
from plait.expr import negate, parse_ddl, parse_where, to_arrow, to_sql
from plait.expr.tree import LEAVES_MAX, Opaque, Or

SCHEMA = parse_ddl(
    "id bigint, t tinyint, d decimal(5,2), s string, f double, g float, b boolean, day date, "
    "ts timestamp, tn timestamp_ntz, x binary, st struct<a:int>, `a > 1` int"
)
UTC = dt.UTC
NAN = math.nan
F = pc.field
MOMENT = dt.datetime(2026, 1, 1, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {
        "id": 5,
        "t": 1,
        "d": Decimal("1.50"),
        "s": "a%b",
        "f": 1.5,
        "g": 0.1,
        "b": True,
        "day": dt.date(2026, 1, 1),
        "ts": MOMENT,
        "tn": MOMENT.replace(tzinfo=None),
        "x": b"a",
        "st": {"a": 1},
        "a > 1": 1,
    },
    {"id": -1, "s": "ab\n", "f": NAN, "g": NAN, "b": False, "d": Decimal("-2.00"), "st": {"a": 2}},
    {"id": 2**50, "s": "", "f": -0.0, "g": 0.0, "x": b"", "st": {"a": None}},
    {"s": "a_b", "f": math.inf, "g": 2.0, "t": -128},
    {},
]
TABLE = pa.Table.from_pylist([{**row, "st": row.get("st")} for row in ROWS], schema=SCHEMA)

UNDERSTOOD = [
    F("id") > 5,
    F("id") >= 5,
    pc.scalar(5) < F("id"),
    F("t") < 0.5,
    F("id") == pa.scalar(5, pa.int8()),
    F("id") == pc.scalar(None),
    F("t") < 1000,
    F("t") != 1.5,
    F("t") < NAN,
    F("t") != NAN,
    F("d") == Decimal("1.5"),
    F("s") == "a%b",
    F("s") >= pa.scalar("a", pa.large_string()),
    F("f") > 1,
    F("f") >= -math.inf,
    F("f") != 1.5,
    F("f") == NAN,
    F("f") != NAN,
    F("f") == 0.0,
    F("g") >= 0.1,
    F("g") == pa.scalar(0.1, pa.float32()),
    F("b"),
    F("b") == True,  # noqa: E712 - an expression
    F("day") <= dt.date(2026, 1, 1),
    F("ts") == MOMENT,
    F("ts") < pa.scalar(MOMENT, pa.timestamp("s", "UTC")),
    F("tn") >= MOMENT.replace(tzinfo=None),
    F("x") == b"a",
    F("st", "a") == 1,
    F("a > 1") == 1,
    F("id").is_null(),
    F("f").is_null(nan_is_null=True),
    F("s").is_null(nan_is_null=True),
    F("st").is_valid(),
    pc.is_nan(F("f")),
    F("id").isin([5, 7]),
    F("id").isin([5, None]),
    F("t").isin(pa.array([1, -128], pa.int8())),
    F("f").isin([1.5, math.inf]),
    pc.is_in(F("s"), options=pc.SetLookupOptions(pa.array(["a_b", None]), skip_nulls=True)),
    pc.match_like(F("s"), "a_%"),
    pc.starts_with(F("s"), "a%"),
    pc.ends_with(F("s"), "_b"),
    pc.match_substring(F("s"), "%"),
    pc.scalar(True),
]
LEFT_TO_ARROW = [
    F("f").isin([0.0]),
    F("f").isin([NAN]),
    F("id") > 1e17,
    F("d") < 2.5,
    F("id") < F("t"),
    F("id").cast("string") == "5",
    pc.utf8_upper(F("s")) == "A%B",
    pc.starts_with(F("s"), "A", ignore_case=True),
    pc.match_like(F("s"), r"a\%b"),
    pc.field(0) > 1,
    F("ts") > pa.scalar(1, pa.timestamp("ns", "UTC")),
    pc.if_else(F("b"), F("id") > 1, F("id") < 1),
]


def rows_of(expression: pc.Expression) -> list[int]:
    numbered = TABLE.append_column("at", pa.array(range(TABLE.num_rows)))
    found: list[int] = numbered.filter(expression)["at"].to_pylist()
    return found


@pytest.mark.parametrize("expression", UNDERSTOOD, ids=str)
def test_an_understood_expression_keeps_the_meaning_of_arrow(expression: pc.Expression) -> None:
    """Nulls and NaN too; and as a tree it prunes, is recorded, and goes to Spark."""
    predicate = parse_where(expression, SCHEMA)
    assert not isinstance(predicate, Opaque)
    assert rows_of(to_arrow(predicate)) == rows_of(expression)
    assert rows_of(to_arrow(negate(predicate))) == rows_of(~expression)
    assert to_sql(predicate)


@pytest.mark.parametrize("expression", LEFT_TO_ARROW, ids=str)
def test_any_other_expression_is_left_to_arrow(expression: pc.Expression) -> None:
    """It selects what it selects, and Spark is refused."""
    predicate = parse_where(expression, SCHEMA)
    assert isinstance(predicate, Opaque)
    assert rows_of(to_arrow(predicate)) == rows_of(expression)
    assert rows_of(to_arrow(negate(predicate))) == rows_of(~expression)
    with pytest.raises(PredicateError, match="SQL text"):
        to_sql(predicate)


@given(
    st.recursive(
        st.sampled_from(UNDERSTOOD),
        lambda inner: st.one_of(
            inner.map(operator.invert),
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        ),
        max_leaves=6,
    )
)
def test_combinations_keep_the_meaning_of_arrow(expression: pc.Expression) -> None:
    predicate = parse_where(expression, SCHEMA)
    assert not isinstance(predicate, Opaque)
    assert rows_of(to_arrow(predicate)) == rows_of(expression)
    assert rows_of(to_arrow(negate(predicate))) == rows_of(~expression)


@pytest.mark.parametrize(
    "expression",
    [F("nothing") > 2, F("s") == 5, F("id"), F("ts") > dt.datetime(2026, 1, 1)],  # noqa: DTZ001 - as users write it
    ids=str,
)
def test_an_expression_that_does_not_fit_the_table_is_refused(expression: pc.Expression) -> None:
    with pytest.raises(PredicateError, match="does not fit"):
        parse_where(expression, SCHEMA)


def test_a_chain_of_many_ors_is_understood() -> None:
    chain = functools.reduce(operator.or_, [F("id") == number for number in range(500)])
    predicate = parse_where(chain, SCHEMA)
    assert not isinstance(predicate, Opaque)
    assert rows_of(to_arrow(predicate)) == [0]


@pytest.mark.parametrize("head", ["a", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "é"])
def test_a_beginning_ends_before_the_next_text(head: str) -> None:
    """The order is that of code points, which leaves out surrogates."""
    texts = [head, head + "\U0010ffff", head + "x", head[:-1], "b", "\ue000", "z", "", None]
    table = pa.table({"s": texts})
    for pattern in (head + "%", head + "_"):
        expression = to_arrow(parse_where(f"s LIKE '{pattern}'", table.schema))
        expected = [
            text
            for text in texts
            if text is not None
            and text.startswith(head)
            and (pattern[-1] == "%" or len(text) == len(head) + 1)
        ]
        assert table.filter(expression)["s"].to_pylist() == expected


def test_very_many_conditions_do_not_exhaust_the_stack() -> None:
    """Arrow evaluates an expression with a level of the stack for each leaf."""
    values = " OR ".join(f"id = {number}" for number in range(12_000))
    assert rows_of(to_arrow(parse_where(values, SCHEMA))) == [0]
    pairs = [f"(id = {number} AND t = 1)" for number in range(6_000)]
    few = parse_where(" OR ".join(pairs[: LEAVES_MAX // 2]), SCHEMA)
    assert rows_of(to_arrow(few)) == [0]
    assert rows_of(to_arrow(negate(few))) == [1, 2, 3]
    with pytest.raises(PredicateError, match="conditions"):
        parse_where(" OR ".join(pairs), SCHEMA)
    with pytest.raises(PredicateError, match="conditions"):
        parse_where(Or((few, few)), SCHEMA)
    chain = functools.reduce(operator.or_, [F("id") == number for number in range(5000)])
    with pytest.raises(PredicateError, match="nodes"):
        parse_where(chain, SCHEMA)


@pytest.fixture(scope="module")
def fragment(tmp_path_factory: pytest.TempPathFactory) -> ds.ParquetFileFragment:
    """Give a file with ten row groups of a hundred rows."""
    path: Path = tmp_path_factory.mktemp("pruning") / "rows.parquet"
    count = 1000
    moments = [MOMENT + dt.timedelta(minutes=number) for number in range(count)]
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "s": [f"{number:04d}" for number in range(count)],
            "day": [moment.date() + dt.timedelta(days=at) for at, moment in enumerate(moments)],
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "f": pa.array(range(count), pa.float64()),
        }
    )
    pq.write_table(table, path, row_group_size=100)
    return next(iter(ds.dataset(path).get_fragments()))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("id = 150", 1),
        ("id < 150", 2),
        ("id IN (5, 950)", 2),
        ("id BETWEEN 150 AND 250", 2),
        ("id IS NULL", 0),
        ("s LIKE '000%'", 1),
        ("s LIKE '000_'", 1),
        ("s LIKE '0150'", 1),
        ("ts < '2026-01-01T01:00:00Z'", 1),
        ("day > DATE '2028-09-01'", 1),
        ("f < 150", 2),
        ("id = 2.5 OR id = 950", 1),
    ],
)
def test_a_dataset_prunes_row_groups(
    fragment: ds.ParquetFileFragment, text: str, groups: int
) -> None:
    schema = fragment.physical_schema
    expression = to_arrow(parse_where(text, schema))
    assert len(fragment.split_by_row_group(expression, schema=schema)) == groups
    table = fragment.to_table()
    assert fragment.to_table(filter=expression).equals(table.filter(expression))


@pytest.mark.parametrize("text", ["f > 1", "f >= 9", "f < 9", "f <= 2", "f != 9", "NOT f > 9"])
def test_a_dataset_finds_nan_beside_other_values(tmp_path: Path, text: str) -> None:
    """The bounds of Parquet leave NaN out. (Beside one single value Arrow overlooks it.)"""
    table = pa.table({"f": [1.0, NAN, 5.0, None]})
    pq.write_table(table, tmp_path / "nan.parquet")
    expression = to_arrow(parse_where(text, table.schema))
    found = ds.dataset(tmp_path / "nan.parquet").to_table(filter=expression)
    assert str(found.to_pylist()) == str(table.filter(expression).to_pylist())
