"""DataFrames written into a table whose keys are unique in all partitions (RFC 0030)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from plait import DuplicateKeyError, Insert, OptionError, Table, Update
from tests.support.protocol import beside

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_dataframes_move_rows_and_leave_each_key_once(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """INV-07, INV-08: each bucket number is one task's in all partitions."""
    table = Table.create(
        str(tmp_path / "t"),
        "id bigint, day string, v bigint",
        record_key="id",
        partition_by="day",
        buckets=3,
        table_type=kind,
        unique="table",
    )

    def frame(count: int, day: str, value: int) -> DataFrame:
        return spark.range(count).selectExpr("id", f"{day} AS day", f"{value}L AS v")

    def content() -> dict[int, tuple[str, int]]:
        rows = table.scan().to_arrow().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows), "INV-08"
        return {row["id"]: (row["day"], row["v"]) for row in rows}

    table.upsert(frame(40, "concat('d', id % 5)", 1))
    moved = table.upsert(frame(20, "concat('d', (id + 1) % 5)", 2))
    assert (moved.stats.rows_inserted, moved.stats.rows_updated) == (0, 20)
    model = {n: (f"d{(n + 1) % 5}", 2) if n < 20 else (f"d{n % 5}", 1) for n in range(40)}
    assert content() == model
    with pytest.raises(DuplicateKeyError):
        table.insert(frame(1, "'z'", 3))
    with pytest.raises(OptionError):
        table.overwrite(frame(1, "'z'", 3), partitions="dynamic")
    table.merge(frame(2, "'m'", 4), matched=[Update()], not_matched=[Insert()])
    table.delete(keys=spark.range(38, 40))
    model = {n: row for n, row in model.items() if n < 38} | dict.fromkeys(range(2), ("m", 4))
    assert content() == model
    frame(3, "'s'", 5).write.format("plait").option("operation", "upsert").mode("append").save(
        str(tmp_path / "t")
    )
    theirs = pa.table({"id": [2, 50], "day": ["x", "x"], "v": [6, 6]})
    client = beside(table, "publish", lambda: table.upsert(theirs))
    client.upsert(frame(3, "'w'", 7), on_conflict="retry")
    assert content() == model | {50: ("x", 6)} | dict.fromkeys(range(3), ("w", 7))
    assert not table.check.verify().problems
