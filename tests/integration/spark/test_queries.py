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


PUSHED = """
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

class Reader(DataSourceReader):
    wanted = None

    def pushFilters(self, filters):
        for found in filters:
            if isinstance(found, EqualTo):
                self.wanted = found.value
        return filters  # not one is promised: Spark applies them all again

    def partitions(self):
        return [InputPartition(0)]

    def read(self, partition):
        return iter([(n,) for n in range(10) if self.wanted in (None, n)])

class Probe(DataSource):
    @classmethod
    def name(cls):
        return "pushed"

    def schema(self):
        return "id int"

    def reader(self, schema):
        return Reader()
"""


def test_spark_mixes_up_the_filters_of_queries(spark: SparkSession) -> None:
    """Why none is taken. When this fails, Spark keeps them apart, and pruning by them is safe."""
    names: dict[str, object] = {"__name__": "__main__"}
    exec(PUSHED, names)  # a class of no module is sent to Spark by its code
    spark.dataSource.register(names["Probe"])
    frame = spark.read.format("pushed").load()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert frame.filter("id = 3").count() == 1
        assert frame.count() == 1, "ten rows are right"
        other = spark.read.format("pushed").load()
        both = other.filter("id = 3").unionAll(other.filter("id = 4"))
        assert both.count() == 1, "two rows are right"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
