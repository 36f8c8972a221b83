"""Spark writes and repushes tables that are partitioned by transforms (RFC 0024)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from plait import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_COUNT = 200


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_executors_find_the_partition_of_a_row_by_its_sources(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """INV-08: a row that went to another task the second time would be there twice."""
    table = Table.create(
        str(tmp_path / "t"),
        "id bigint, at timestamp, user string",
        record_key="id",
        partition_by=["day(at)", "bucket(3, user)"],
        buckets=2,
        table_type=kind,
    )
    rows = {
        "id": list(range(_COUNT)),
        "at": [_BEGIN + dt.timedelta(hours=n) for n in range(_COUNT)],
        "user": [f"u{n % 5}" for n in range(_COUNT)],
    }
    frame = spark.createDataFrame(pa.table(rows))
    for _ in range(2):
        table.upsert(frame)
        assert table.scan().count() == _COUNT
    table.delete(keys=frame.where("id < 50"))
    table.layout.repush(partition_by="month(at)", spark=spark)
    assert table.scan().count() == _COUNT - 50
    assert table.scan(where="at < TIMESTAMP '2026-01-04 00:00:00Z'").to_spark(spark).count() == 22
    assert not table.check.verify().problems
