"""Expressions: what is computed, what is guarded, and what is refused by name."""

from __future__ import annotations

import datetime as dt
import pickle  # noqa: TID251 - what a expression must survive
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait.errors import InvariantError, PredicateError
from plait.expr import columns_read, negate, parse_value, parse_where
from plait.expr.bind import bind
from plait.expr.evaluate import Sides, compute, holds
from plait.expr.tree import LEAVES_MAX, SOURCE, TARGET, Or
from tests.support.expressions import AGREED, FAILING, REFUSED, ROWS, filtered


def computed(value: object, rows: pa.Table = ROWS) -> pa.Array:
    expression = bind(parse_value(value), {TARGET: rows.schema}, str(value))
    return compute(expression, Sides.of(t=rows))


@pytest.mark.parametrize("text", AGREED)
def test_an_expression_has_one_type_whatever_rows_there_are(text: str) -> None:
    """So that types are checked on none, before anything is written."""
    found = computed(text)
    assert len(found) == ROWS.num_rows
    for rows in (ROWS.slice(0, 0), ROWS.slice(3, 1)):
        assert computed(text, rows).type == found.type


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_one_meaning_is_refused_by_name(text: str) -> None:
    with pytest.raises(PredicateError) as caught:
        computed(text)
    assert caught.value.message


@pytest.mark.parametrize("text", FAILING)
def test_a_row_without_an_answer_is_an_error_and_never_a_wrong_answer(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        computed(text)


def test_what_stands_behind_a_condition_is_not_computed_for_other_rows() -> None:
    """Arrow's own if_else would divide by zero here."""
    assert computed("CASE WHEN i = 0 THEN 0 ELSE 6 / i END").to_pylist()[:3] == [0, 3, -2]
    assert computed("i <> 0 AND 6 / i = 3").to_pylist()[:3] == [False, True, False]
    assert computed("COALESCE(NULLIF(i, 0), 1) * 2").to_pylist()[:2] == [2, 4]


def test_an_expression_travels_to_other_processes() -> None:
    for value in ("CASE WHEN i > 0 THEN s || 'x' ELSE UPPER(s) END", pc.field("i") + 1, 5):
        expression = bind(parse_value(value), {TARGET: ROWS.schema}, "")
        again = pickle.loads(pickle.dumps(expression))
        assert compute(again, Sides.of(t=ROWS)).equals(compute(expression, Sides.of(t=ROWS)))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, pa.int64()),
        (1.5, pa.float64()),
        (None, pa.null()),
        (True, pa.bool_()),
        (b"x", pa.binary()),
        (Decimal("1.50"), pa.decimal128(3, 2)),
        (dt.date(2026, 1, 1), pa.date32()),
        (pa.scalar("text"), pa.string()),
        (pc.field("s"), pa.string()),
        (lambda rows: rows["i"], pa.int32()),
        (lambda _: 7, pa.int64()),
        (lambda rows: pa.chunked_array([rows["i"]]), pa.int32()),
        ([1], pa.list_(pa.int64())),
    ],
)
def test_values_may_be_literals_expressions_and_functions(value: object, kind: pa.DataType) -> None:
    found = computed(value)
    assert (found.type, len(found)) == (kind, ROWS.num_rows)


def test_a_function_must_give_a_value_a_row() -> None:
    with pytest.raises(PredicateError, match="2 values for 6 rows"):
        computed(lambda _: pa.array([1, 2]))
    with pytest.raises(PredicateError, match="not a value"):
        computed(object())


def test_a_part_of_a_text_may_begin_or_end_behind_it() -> None:
    most = (1 << 63) - 1
    texts = pa.table({"a": ["", "abc", None]})
    assert computed(f"substring(a, 2, {most})", texts).to_pylist() == ["", "bc", None]
    assert computed(f"substring(a, {most}, {most})", texts).to_pylist() == ["", "", None]


def test_sides_are_named_where_both_have_a_column() -> None:
    sides = {TARGET: ROWS.schema, SOURCE: pa.schema([("i", pa.int32()), ("op", pa.string())])}
    with pytest.raises(PredicateError, match="both"):
        bind(parse_value("i + 1"), sides, "")
    with pytest.raises(PredicateError, match="nothing"):
        bind(parse_value("t.nothing"), sides, "")
    expression = bind(parse_value("s.i + target.i + length(op) + ID"), sides, "")
    assert columns_read(expression, TARGET) == {"i", "id"}
    assert columns_read(expression, SOURCE) == {"i", "op"}
    chosen = bind(parse_value("CASE WHEN op IN ('d') THEN s.i ELSE id END"), sides, "")
    assert columns_read(chosen, SOURCE) == {"op", "i"}


def test_names_are_looked_up_before_anything_is_computed() -> None:
    with pytest.raises(InvariantError):
        compute(parse_value("i"), Sides.of(t=ROWS))


def test_a_condition_is_true_or_not() -> None:
    rows = Sides.of(t=ROWS)
    schemas = {TARGET: ROWS.schema}
    assert holds(None, rows).to_pylist() == [True] * 6
    found = holds(bind(parse_value("i > 1"), schemas, ""), rows)
    assert found.to_pylist() == [False, True, False, True, False, True]
    with pytest.raises(PredicateError, match="not boolean"):
        holds(bind(parse_value("i + 1"), schemas, ""), rows)


@pytest.mark.parametrize("head", ["a", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "é"])
def test_a_pattern_matches_whole_texts_of_any_characters(head: str) -> None:
    texts = [head, head + "\U0010ffff", head + "x", head[:-1], "b", "\ue000", "z", "", None]
    table = pa.table({"s": texts})
    for pattern in (head + "%", head + "_"):
        found = filtered(table, parse_where(f"s LIKE '{pattern}'", table.schema))
        assert found["s"].to_pylist() == [
            text
            for text in texts
            if text is not None
            and text.startswith(head)
            and (pattern[-1] == "%" or len(text) == len(head) + 1)
        ]


@pytest.mark.slow
def test_very_many_conditions_are_few_or_refused() -> None:
    """Engines descend a level of the stack for each condition."""
    values = parse_where(" OR ".join(f"id = {number}" for number in range(5_000)), ROWS.schema)
    assert filtered(ROWS, values)["id"].to_pylist() == [1, 3, 0]
    pairs = [f"(id = {number} AND i = 2)" for number in range(-2, 2_000)]
    few = parse_where(" OR ".join(pairs[: LEAVES_MAX // 2]), ROWS.schema)
    assert filtered(ROWS, few)["id"].to_pylist() == [-2]
    assert filtered(ROWS, negate(few))["id"].to_pylist() == [1, 3, None, 9_007_199_254_740_993, 0]
    with pytest.raises(PredicateError, match="conditions"):
        parse_where(" OR ".join(pairs), ROWS.schema)
    with pytest.raises(PredicateError, match="conditions"):
        parse_where(Or((few, few)), ROWS.schema)
