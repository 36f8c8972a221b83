"""``partitionOverwriteMode``: the session or the write says what an overwrite replaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import Table
from tests.integration.spark.tables import arrow_rows, assert_sound, frame, make, revisions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MODE = "spark.sql.sources.partitionOverwriteMode"


@pytest.fixture
def dynamic(spark: SparkSession) -> Iterator[None]:
    """Have the session overwrite just the partitions of the rows."""
    spark.conf.set(MODE, "dynamic")
    yield
    spark.conf.unset(MODE)


@pytest.fixture(params=[True, False], ids=["keyed", "plain"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    found = make(tmp_path / "t", partitioned=True, keyed=request.param, buckets=2)
    found.append(arrow_rows(0, 30, 1))
    return found


def path_of(table: Table) -> str:
    return str(table.inspect.describe()["uri"])


def overwrite(spark: SparkSession, table: Table, **options: str) -> None:
    """Overwrite by rows of the partition p1 alone."""
    rows = frame(spark, 0, 30, 2).where("part = 'p1'")
    rows.write.format("plait").options(**options).mode("overwrite").save(path_of(table))


BY_PARTITION = {key: 2 if key % 3 == 1 else 1 for key in range(30)}
WHOLE = {key: 2 for key in range(30) if key % 3 == 1}


@pytest.mark.usefixtures("dynamic")
def test_an_overwrite_of_a_dynamic_session_keeps_the_other_partitions(
    spark: SparkSession, table: Table
) -> None:
    """INV-04: and rows of no partition replace nothing."""
    overwrite(spark, table)
    assert revisions(table) == BY_PARTITION
    nothing = spark.createDataFrame([], "id long, part string, rev long, name string")
    nothing.write.format("plait").mode("overwrite").save(path_of(table))
    assert revisions(table) == BY_PARTITION
    assert_sound(table)


@pytest.mark.usefixtures("dynamic")
def test_spark_refuses_the_statement_that_it_cannot_hand_over(
    spark: SparkSession, table: Table
) -> None:
    """Spark 4.2 has no dynamic overwrite in SQL for sources that are written in Python."""
    spark.sql(f"CREATE TEMPORARY VIEW target USING plait OPTIONS (path '{path_of(table)}')")
    try:
        with pytest.raises(Exception, match="does not support dynamic overwrite"):
            spark.sql("INSERT OVERWRITE TABLE target VALUES (1, 'p1', 5, 'x')")
    finally:
        spark.catalog.dropTempView("target")
    assert revisions(table) == dict.fromkeys(range(30), 1)


@pytest.mark.usefixtures("dynamic")
def test_what_a_write_says_itself_goes_before_the_setting(
    spark: SparkSession, table: Table
) -> None:
    overwrite(spark, table, where="part = 'p1' OR part = 'p2'")
    assert set(revisions(table)) == {key for key in range(30) if key % 3 != 2}
    overwrite(spark, table, partitionOverwriteMode="STATIC")
    assert revisions(table) == WHOLE


def test_the_option_of_spark_goes_before_a_static_session(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    overwrite(spark, table, partitionOverwriteMode="dynamic")
    assert revisions(table) == BY_PARTITION
    for options in (
        {"partitionOverwriteMode": "both"},
        {"partitionOverwriteMode": "static", "partitions": "dynamic"},
    ):
        with pytest.raises(Exception, match="partitionOverwriteMode"):
            overwrite(spark, table, **options)
    overwrite(spark, table)
    assert revisions(table) == WHOLE
    whole = make(tmp_path / "whole")
    whole.append(arrow_rows(0, 30, 1))
    overwrite(spark, whole, partitionOverwriteMode="dynamic")
    assert revisions(whole) == WHOLE, "a table without partitions goes as a whole, as in Spark"
    assert_sound(table)
