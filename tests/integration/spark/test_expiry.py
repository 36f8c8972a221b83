"""Spark reads what an expiry left, and its writers go on beside one."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import SchemaMismatchError
from tests.support.expiry import NEW, TYPES, YOUNG, filled, ids, make_at, rows
from tests.support.protocol import beside

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table_type", TYPES)
def test_spark_reads_and_writes_beside_an_expiry(spark, tmp_path: Path, table_type: str) -> None:
    """INV-15: rows are hidden by masks, also in files of copy-on-write tables."""
    table = filled(make_at(str(tmp_path / "t"), table_type))
    table.maintenance.expire()
    found = table.scan(columns=["id"]).to_spark(spark).collect()
    assert sorted(row["id"] for row in found) == YOUNG
    other = filled(make_at(str(tmp_path / "other"), table_type))
    frame = spark.createDataFrame(rows((1, NEW, "b", 9), (70, NEW, "b", 9)).to_pandas())
    beside(other, "publish", other.maintenance.expire).upsert(frame)
    assert ids(other) == [*YOUNG, 70]
    assert not other.check.verify().problems


@pytest.mark.parametrize("table_type", TYPES)
def test_executors_copy_rows_with_the_version_that_wrote_them(
    spark, tmp_path: Path, table_type: str
) -> None:
    """RFC 0023: an upsert, a delete and a compaction on Spark write no row that they only copy."""
    on = {"rows.written": "on"}
    table = make_at(str(tmp_path / "t"), table_type, ttl=None, properties=on)
    table.upsert(rows(*((number, NEW, "a", 0) for number in range(8))))
    table.upsert(spark.createDataFrame(rows((1, NEW, "b", 9), (70, NEW, "b", 9)).to_pandas()))
    table.delete(where="id = 5", spark=spark)
    table.maintenance.compact(full=True, spark=spark)
    told = table.scan(columns=["id", "_written"]).to_arrow().to_pylist()
    expected = {number: 1 for number in range(8) if number != 5} | {1: 2, 70: 2}
    assert {row["id"]: row["_written"] for row in told} == expected
    assert table.scan().to_spark(spark).columns == ["id", "ts", "p", "v"]
    with pytest.raises(SchemaMismatchError):
        table.scan(columns=["id", "_written"]).to_spark(spark)
    with pytest.raises(SchemaMismatchError):
        table.scan(where="_written > 1").to_spark(spark)
    assert not table.check.verify().problems
