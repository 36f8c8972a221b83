"""Spark selects the same rows: by our SQL text, and by the text that the user wrote."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from plait.expr import parse_where, to_sql
from tests.property.predicates import (
    BEYOND_LONG,
    LITERALS,
    PATTERNS,
    SCHEMA,
    SPECS,
    VALUES,
    Row,
    Spec,
    quoted,
    table_of,
)
from tests.support.effort import share
from tests.support.expressions import filtered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
AT_ONCE = 80


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Give rows in which every value of every column occurs, and null."""
    longest = max(map(len, VALUES.values())) + 1
    every = {
        name: list(itertools.islice(itertools.cycle([*values, None]), 2 * longest))
        for name, values in VALUES.items()
    }
    return [{name: values[at] for name, values in every.items()} for at in range(2 * longest)]


@pytest.fixture
def frame(spark: SparkSession, rows: list[Row], tmp_path: Path) -> DataFrame:
    path = tmp_path / "rows.parquet"
    # without bounds: those of Parquet know nothing of NaN, and Spark believes them
    pq.write_table(table_of(rows), path, write_statistics=False)
    return spark.read.parquet(str(path))


def in_arrow(texts: list[str], rows: list[Row]) -> list[list[int]]:
    table = table_of(rows)
    trees = [parse_where(text, table.schema) for text in texts]
    return [filtered(table, tree)["at"].to_pylist() for tree in trees]


def in_spark(texts: list[str], frame: DataFrame) -> list[list[int]]:
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    columns = [F.expr(f"coalesce({text}, false)").alias(f"c{n}") for n, text in enumerate(texts)]
    found = frame.select("at", *columns).orderBy("at").toArrow()
    return [found.filter(found[f"c{n}"])["at"].to_pylist() for n in range(len(texts))]


def ours(texts: list[str]) -> list[str]:
    return [to_sql(parse_where(text, SCHEMA)) for text in texts]


def require_agreement(texts: list[str], frame: DataFrame, rows: list[Row]) -> None:
    """Compare with what Spark makes of our text, and of the text itself."""
    # Spark puts a variable in the place of ${x} even inside a literal; and Spark 4.2 takes
    # `bigint < 1e20` for TRUE of a null too, against its own rules.
    own = [text for text in texts if BEYOND_LONG not in text and "${" not in text]
    for asked, given_to_spark in ((texts, ours(texts)), (own, own)):
        expected, found = in_arrow(asked, rows), in_spark(given_to_spark, frame)
        every = zip(given_to_spark, expected, found, strict=True)
        assert [case for case in every if case[1] != case[2]] == []


@settings(
    max_examples=share(4),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # the frame is only read
)
@given(st.lists(SPECS, min_size=AT_ONCE, max_size=AT_ONCE))
def test_spark_selects_what_arrow_selects(
    frame: DataFrame, rows: list[Row], specs: list[Spec]
) -> None:
    """One meaning everywhere."""
    require_agreement([spec.sql for spec in specs], frame, rows)


def test_every_literal_and_pattern_means_the_same_in_spark(
    frame: DataFrame, rows: list[Row]
) -> None:
    texts = [
        f"{name} {op} {literal.sql}"
        for name, literals in LITERALS.items()
        for literal in literals
        for op in ("=", "<")
    ]
    texts += [f"s LIKE {quoted(pattern)}" for pattern in PATTERNS]
    for start in range(0, len(texts), AT_ONCE):
        require_agreement(texts[start : start + AT_ONCE], frame, rows)


def test_filters_that_spark_pushes_down_keep_the_same_rows(
    frame: DataFrame, rows: list[Row]
) -> None:
    """Long lists of values are looked up by hash, filters go into the Parquet reader."""
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    many = ", ".join(str(number) for number in range(2, 40))
    texts = [
        f"f IN (0, {many})",
        f"f NOT IN (0, CAST('NaN' AS DOUBLE), {many})",
        f"g IN ({many}, CAST('NaN' AS FLOAT))",
        "s IN (" + ", ".join(f"'{chr(97 + n)}'" for n in range(20)) + ", NULL)",
        "st.a > 0 AND s LIKE 'a%'",
        "ts >= TIMESTAMP '2026-01-01 00:00:00Z' AND day <= DATE '2026-01-01'",
        "t < 1000 OR x > X'00'",
    ]
    expected = in_arrow(texts, rows)
    found = [
        sorted(row["at"] for row in frame.filter(F.expr(text)).select("at").collect())
        for text in ours(texts)
    ]
    assert found == expected


def test_dates_and_times_of_any_year_reach_spark(spark: SparkSession) -> None:
    """The canonical text of a year before 1000 or after 9999 is not Spark's."""
    kinds = {"day": pa.date32(), "ts": pa.timestamp("us", "UTC"), "tn": pa.timestamp("us")}
    schema = pa.schema(list(kinds.items()))
    texts = {
        "day": ["-0044-03-15", "0000-01-01", "0987-12-31", "9999-12-31", "12026-01-01"],
        "ts": ["-0044-03-15 00:00:00Z", "0987-12-31 23:59:59.999999Z", "12026-01-01 00:00:00Z"],
        "tn": ["-0044-03-15 00:00:00", "0987-12-31 23:59:59.999999", "12026-01-01 00:00:00"],
    }
    for name, written in texts.items():
        sqls = [to_sql(parse_where(f"{name} = '{text}'", schema)) for text in written]
        kind = {"day": "DATE", "ts": "TIMESTAMP", "tn": "TIMESTAMP_NTZ"}[name]
        for text, sql in zip(written, sqls, strict=True):
            frame = spark.sql(f"SELECT CAST('{text}' AS {kind}) AS {name}")
            assert frame.filter(sql).count() == 1, sql


def test_the_settings_of_a_session_do_not_change_the_meaning(spark: SparkSession) -> None:
    """Zone, escapes, doubled quotes, variables: a literal means what it meant here."""
    schema = pa.schema([("s", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    text = "it's ${spark.app.name} \\n"
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    wheres = [f"s = {quoted(text)}", "s LIKE '%${_park%'", "ts = '2026-01-01T00:00:00Z'"]
    wheres += ["ts = TIMESTAMP '2026-01-01 00:00:00'"]  # no zone: UTC
    settings_ = {
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.parser.escapedStringLiterals": "true",
    }
    before = {name: spark.conf.get(name) for name in settings_}
    frame = spark.createDataFrame(pa.table({"s": [text], "ts": [moment]}, schema=schema))
    try:
        for name, value in settings_.items():
            spark.conf.set(name, value)
        found = [frame.filter(to_sql(parse_where(where, schema))).count() for where in wheres]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert dict(zip(wheres, found, strict=True)) == dict.fromkeys(wheres, 1)
