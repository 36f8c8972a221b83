"""One DataFrame of the data source may serve several queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from plait import Table

pytestmark = pytest.mark.spark


def test_a_frame_that_was_filtered_once_still_has_all_its_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-04: Spark keeps a reader between queries, filters and all."""
    table = Table.create(str(tmp_path / "t"), "id bigint, value double", record_key=["id"])
    table.insert(spark.range(120).selectExpr("id", "id * 0.5D value"))
    frame = spark.read.format("plait").load(str(tmp_path / "t"))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert frame.filter("id = 7").count() == 1
        assert frame.count() == 120
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
