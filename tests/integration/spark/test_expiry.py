"""Spark reads what an expiry left, and its writers go on beside one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.expiry import NEW, TYPES, YOUNG, filled, ids, make_at, rows
from tests.support.protocol import beside

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table_type", TYPES)
def test_spark_reads_and_writes_beside_an_expiry(spark, tmp_path: Path, table_type: str) -> None:
    """INV-15: rows are hidden by masks, also in files of copy-on-write tables."""
    table = filled(make_at(str(tmp_path / "t"), table_type))
    table.expire()
    found = table.scan(columns=["id"]).to_spark(spark).collect()
    assert sorted(row["id"] for row in found) == YOUNG
    other = filled(make_at(str(tmp_path / "other"), table_type))
    frame = spark.createDataFrame(rows((1, NEW, "b", 9), (70, NEW, "b", 9)).to_pandas())
    beside(other, "publish", other.expire).upsert(frame)
    assert ids(other) == [*YOUNG, 70]
    assert not other.verify().problems
