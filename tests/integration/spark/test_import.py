"""Parquet files that Spark wrote, brought over."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from plait import Table, import_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TIMES = (
    "0001-01-01 00:00:00",
    "1600-02-29 01:02:03.000004",
    "1899-12-31 23:59:59",
    "2300-01-01 00:00:00",
)


def test_int96_of_spark_keeps_its_instants_in_any_year(spark: SparkSession, tmp_path: Path) -> None:
    """RFC 0048: also deeper in a type, and in folders of partitions."""
    values = ", ".join(f"({at}, timestamp '{text} UTC')" for at, text in enumerate(TIMES))
    rows = spark.sql(f"SELECT id, at, struct(at AS inner) AS s FROM VALUES {values} AS v(id, at)")
    written = rows.selectExpr("*", "id % 2 AS p").coalesce(1).write.partitionBy("p")
    options = {"outputTimestampType": "INT96", "int96RebaseModeInWrite": "CORRECTED"}
    for name, value in options.items():
        spark.conf.set(f"spark.sql.parquet.{name}", value)
    try:
        written.parquet(str(tmp_path / "old"))
    finally:
        for name in options:
            spark.conf.unset(f"spark.sql.parquet.{name}")
    file = next((tmp_path / "old").rglob("*.parquet"))
    assert pq.ParquetFile(file).schema.column(1).physical_type == "INT96"
    report = import_table(str(tmp_path / "old"), str(tmp_path / "new"), record_key="id")
    assert report.rows == len(TIMES)
    table = Table.open(str(tmp_path / "new"))
    assert table.inspect.describe()["partition_by"] == ["p"]
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    expected = [dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) for text in TIMES]
    assert [each["at"] for each in found] == expected
    assert [each["s"]["inner"] for each in found] == expected
