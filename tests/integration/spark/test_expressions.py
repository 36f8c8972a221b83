"""Expressions mean in Arrow what they mean in Spark's ANSI mode."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from plait.expr import parse_value
from plait.expr.bind import bind
from plait.expr.evaluate import Sides, compute
from plait.expr.tree import TARGET
from tests.support.expressions import AGREED, FAILING, ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> DataFrame:
    path = tmp_path / "rows.parquet"
    pq.write_table(ROWS, path, write_statistics=False)
    return spark.read.parquet(str(path))


def in_arrow(text: str) -> list[object]:
    expression = bind(parse_value(text), {TARGET: ROWS.schema}, text)
    return compute(expression, Sides.of(t=ROWS)).to_pylist()


def plain(value: object) -> object:
    """Make NaN comparable, and numbers of one value the same."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return float(value) if isinstance(value, float) else value


def test_values_are_those_of_spark(rows: DataFrame) -> None:
    """In one query: each expression is a column."""
    named = [f"{text} AS `c{at}`" for at, text in enumerate(AGREED)]
    found = rows.selectExpr("at", *named).toArrow().sort_by("at")
    wrong = {}
    for at, text in enumerate(AGREED):
        expected = [plain(v) for v in found[f"c{at}"].to_pylist()]
        ours = [plain(v) for v in in_arrow(text)]
        if ours != expected:
            wrong[text] = (ours, expected)
    assert not wrong


@pytest.mark.parametrize("text", FAILING)
def test_rows_without_an_answer_are_errors_in_both(rows: DataFrame, text: str) -> None:
    with pytest.raises(PySparkException):
        rows.selectExpr(text).toArrow()
    with pytest.raises(pa.ArrowInvalid):
        in_arrow(text)
