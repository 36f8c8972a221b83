"""Compaction by a Spark job over many buckets, beside writers of both engines."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Table
from plait.errors import OptionError
from tests.support.protocol import beside

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("place", pa.string()), ("value", pa.int64())])


def rows(ids: range, value: int) -> pa.Table:
    places = ["ab"[i % 2] for i in ids]
    return pa.table({"id": list(ids), "place": places, "value": [value] * len(ids)}, schema=SCHEMA)


def make(tmp_path: Path, *, keyed: bool) -> Table:
    table = Table.create(
        str(tmp_path / "t"),
        SCHEMA,
        record_key=["id"] if keyed else [],
        partition_by=["place"],
        buckets=3 if keyed else None,
        table_type="mor",
    )
    for value in range(9):
        ids = range(20 * value, 20 * value + 40) if keyed else range(40 * value, 40 * value + 40)
        table.upsert(rows(ids, value)) if keyed else table.append(rows(ids, value))
    return table


def content(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def files(table: Table) -> int:
    return int(table._handle.cache.snapshot().files.num_rows)


@pytest.mark.parametrize("keyed", [True, False])
def test_executors_compact_what_one_process_would(spark, tmp_path: Path, keyed: bool) -> None:
    """INV-14: one commit, and the files and rows of a compaction in this process."""
    table = make(tmp_path, keyed=keyed)
    before = content(table)
    report = table.maintenance.compact(full=True, spark=spark)
    assert len(report.commits) == 1
    assert files(table) == (6 if keyed else 2)
    assert content(table) == before
    assert not table.check.verify().problems
    assert not table.check.verify(history=True).problems
    assert table.maintenance.compact(full=True, spark=spark).commits == ()


def test_writers_go_on_beside_a_compaction_on_spark(spark, tmp_path: Path) -> None:
    """INV-14, INV-15: rows that were hidden meanwhile are hidden in its files."""
    table = make(tmp_path, keyed=True)

    def meanwhile() -> None:
        table.upsert(rows(range(60, 90), 99))
        table.delete(where="id < 10")

    report = beside(table, "publish", meanwhile).maintenance.compact(full=True, spark=spark)
    assert [each.rebased for each in report.commits] == [0]
    assert table.inspect.history()[0].operation == "compact"
    held = {row[0]: row[2] for row in content(table)}
    assert held == {
        **{i: i // 20 if i < 180 else 8 for i in range(10, 200)},
        **dict.fromkeys(range(60, 90), 99),
    }
    assert not table.check.verify().problems


def test_a_spark_write_follows_a_compaction(spark, tmp_path: Path) -> None:
    """INV-14, INV-15: the masks that executors staged are carried over by the driver."""
    table = make(tmp_path, keyed=True)
    frame = spark.createDataFrame(rows(range(60, 90), 99).to_pandas())
    with table.writer("upsert") as writer:
        writer.write(frame)
        Table.open(str(table.inspect.describe()["uri"])).maintenance.compact(full=True)
    assert writer.result.rebased == 0
    assert {row[2] for row in content(table) if 60 <= row[0] < 90} == {99}
    assert not table.check.verify().problems


def test_only_a_session_of_spark_is_taken_for_one(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="session"):
        make(tmp_path, keyed=True).maintenance.compact(full=True, spark="local[2]")


def test_executors_put_buckets_in_order_and_write_into_them(spark, tmp_path: Path) -> None:
    """INV-08, INV-14: a Spark upsert finds keys in files that are not sorted by key."""
    table = make(tmp_path, keyed=True)
    table.alter.set({"cluster.by": "value,id"})
    before = content(table)
    assert len(table.maintenance.cluster(spark=spark).commits) == 1
    assert set(table.inspect.files()["order"].to_pylist()).isdisjoint({-1, 0})
    assert content(table) == before
    table.upsert(spark.createDataFrame(rows(range(50, 70), 77).to_pandas()))
    held = {row[0]: row[2] for row in content(table)}
    assert held == {row[0]: row[2] for row in before} | dict.fromkeys(range(50, 70), 77)
    assert not table.check.verify().problems


def test_spark_writes_key_indexes_and_reads_past_them(spark, tmp_path: Path) -> None:
    """INV-08: the index is between rows and footer, where Spark's own reader does not look."""
    uri = str(tmp_path / "t")
    table = Table.create(uri, SCHEMA, record_key="id", buckets=1, table_type="mor")
    table.insert(rows(range(40_000), 0))
    table.maintenance.cluster(order_by="place", kind="sort", spark=spark)
    (path,) = table.inspect.files()["path"].to_pylist()
    assert b"plait.keys" in pq.read_metadata(Path(uri, path)).metadata
    found = table.scan().to_spark(spark).selectExpr("count(*)", "sum(id)", "count(DISTINCT id)")
    assert tuple(found.first()) == (40_000, sum(range(40_000)), 40_000)
    table.upsert(spark.createDataFrame(rows(range(39_999, 40_001), 7).to_pandas()))
    assert table.scan(where="id = 39999").to_arrow()["value"].to_pylist() == [7]
    assert table.scan().to_spark(spark).count() == 40_001
    assert not table.check.verify().problems
