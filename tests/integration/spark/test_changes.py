"""Change reads in Spark: ``changes().to_spark()`` and ``since`` of the data source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import Table
from plait.read.change_scan import ADDED_COLUMNS, TYPE, VERSION
from plait.spark import change_shares as changes
from tests.integration.spark.tables import arrow_rows, frame, make

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def changed(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    """Give a table with an insert, an update, a delete and an overwrite."""
    table = make(tmp_path / "t", getattr(request, "param", "mor"), partitioned=True, buckets=1)
    table.append(arrow_rows(0, 60, 1))
    table.upsert(arrow_rows(50, 70, 2))
    table.delete(where="id < 6")
    table.overwrite(frame(spark, 3, 9, 4, tasks=2).where("part = 'p1'").toArrow(), where="id < 9")
    return table


def told(rows: DataFrame) -> list[tuple[object, ...]]:
    columns = [VERSION, TYPE, "id", "rev", "name"]
    found = rows.select(columns).toArrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_spark_reads_the_changes_that_arrow_reads(
    spark: SparkSession, changed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors run the same code, each on its share."""
    monkeypatch.setattr(changes, "SHARE_BYTES", 8 << 20)
    scan = changed.changes(0)
    found = scan.to_spark(spark)
    assert found.columns == [*changed.schema.names, *ADDED_COLUMNS.names]
    expected = scan.to_arrow().select([VERSION, TYPE, "id", "rev", "name"]).to_pylist()
    assert told(found) == sorted(tuple(row.values()) for row in expected)
    times = {row[0] for row in found.select("_commit_timestamp").distinct().collect()}
    assert len(times) == 4
    some = changed.changes(1, 2, columns=["name", TYPE], where="id = 55").to_spark(spark)
    assert some.columns == ["name", TYPE]
    assert some.count() == 2
    assert changed.changes(4).to_spark(spark).count() == 0


@pytest.mark.parametrize("changed", ["cow"], indirect=True)
def test_the_data_source_reads_changes_with_since(spark: SparkSession, changed: Table) -> None:
    uri = str(changed.inspect.describe()["uri"])

    def load(**options: str) -> DataFrame:
        return spark.read.format("plait").options(**options).load(uri)

    loaded = load(since="1")
    expected = told(changed.changes(1).to_spark(spark))
    changed.delete(where="id = 20")
    assert told(loaded) == expected, "the end is pinned when it is loaded"
    between = load(since="1", until="2")
    assert between.groupBy(TYPE).count().sort(TYPE).collect() == [
        ("insert", 10), ("update_postimage", 10), ("update_preimage", 10),
    ]  # fmt: skip
    after = str(changed.inspect.timeline().decided[2].to_dict()["completed"])
    assert {row[VERSION] for row in load(since=after).collect()} == {3, 4, 5}
    chosen = spark.read.format("plait").schema("_change_type string, id bigint")
    narrow = chosen.option("since", "2").option("where", "id = 1").load(uri)
    assert narrow.collect() == [("delete", 1)]
    assert chosen.option("since", "5").option("where", "id = 1").load(uri).count() == 0
