"""Formulas: what is computed, what is guarded, and what is refused by name."""

from __future__ import annotations

import datetime as dt
import pickle  # noqa: TID251 - what a formula must survive
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait.errors import PredicateError
from plait.expr.formula import SOURCE, TARGET, columns_read, resolve
from plait.expr.formula_out import Sides, compute, holds
from plait.expr.formula_sql import parse_formula
from tests.support.formulas import AGREED, FAILING, REFUSED, ROWS


def computed(value: object, rows: pa.Table = ROWS) -> pa.Array:
    formula = resolve(parse_formula(value), {TARGET: rows.schema}, str(value))
    return compute(formula, Sides.of(t=rows))


@pytest.mark.parametrize("text", AGREED)
def test_a_formula_has_one_type_whatever_rows_there_are(text: str) -> None:
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


def test_a_formula_travels_to_other_processes() -> None:
    for value in ("CASE WHEN i > 0 THEN s || 'x' ELSE UPPER(s) END", pc.field("i") + 1, 5):
        formula = resolve(parse_formula(value), {TARGET: ROWS.schema}, "")
        again = pickle.loads(pickle.dumps(formula))
        assert compute(again, Sides.of(t=ROWS)).equals(compute(formula, Sides.of(t=ROWS)))


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


def test_sides_are_named_where_both_have_a_column() -> None:
    sides = {TARGET: ROWS.schema, SOURCE: pa.schema([("i", pa.int32()), ("op", pa.string())])}
    with pytest.raises(PredicateError, match="both"):
        resolve(parse_formula("i + 1"), sides, "")
    with pytest.raises(PredicateError, match="nothing"):
        resolve(parse_formula("t.nothing"), sides, "")
    formula = resolve(parse_formula("s.i + target.i + length(op) + ID"), sides, "")
    assert columns_read(formula, TARGET) == {"i", "id"}
    assert columns_read(formula, SOURCE) == {"i", "op"}


def test_a_condition_is_true_or_not() -> None:
    rows = Sides.of(t=ROWS)
    schemas = {TARGET: ROWS.schema}
    assert holds(None, rows).to_pylist() == [True] * 6
    found = holds(resolve(parse_formula("i > 1"), schemas, ""), rows)
    assert found.to_pylist() == [False, True, False, True, False, True]
    with pytest.raises(PredicateError, match="not boolean"):
        holds(resolve(parse_formula("i + 1"), schemas, ""), rows)
