"""A repush on Spark, beside writers on Spark: executors copy, and stage again after the swap."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.functions import lit, udf

from plait import RepushRefusedError, RetryableConflictError, Table
from plait.model.contract import CODECS
from plait.model.order import Order
from plait.repush.begin import RepushRequest, begin
from plait.repush.load import Load
from plait.repush.shadow import Shadow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_SCHEMA = "id bigint, place string, value bigint"
_COUNT = 3_000


def _rows(ids: range, value: int = 0) -> pa.Table:
    return pa.table(
        {"id": list(ids), "place": [f"p{n % 3}" for n in ids], "value": [value] * len(ids)},
        schema=pa.schema([("id", pa.int64()), ("place", pa.string()), ("value", pa.int64())]),
    )


def _sum(table: Table) -> tuple[int, int]:
    rows = table.scan().to_arrow()
    return rows.num_rows, sum(rows["value"].to_pylist())


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_executors_copy_the_rows_into_the_new_layout(spark, tmp_path: Path, kind: str) -> None:
    table = Table.create(str(tmp_path / "t"), _SCHEMA, record_key="id", buckets=2, table_type=kind)
    table.upsert(_rows(range(_COUNT)))
    table.delete(where="id < 100")
    before = table.scan().to_arrow().sort_by("id")
    report = table.layout.repush(
        buckets=3,
        partition_by="place",
        table_type="cow",
        sort_by="value",
        rows_per_task=1_000,
        spark=spark,
    )
    files = table._handle.cache.refresh().snapshot(table._handle.store).files
    assert set(files["order"].to_pylist()) == {Order(("value",), "sort").id}
    assert report.rows_loaded == _COUNT - 100
    assert table.scan().to_arrow().sort_by("id").equals(before)
    assert table.scan(where="place = 'p1' and id = 1000").to_spark(spark).count() == 1
    assert not table.check.verify().problems


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_executors_load_a_large_file_task_by_task(spark, tmp_path: Path, table_type: str) -> None:
    """INV-09: a kill costs one task; rows that this process has loaded are not loaded again."""
    how = {"record_key": "id", "buckets": 1, "table_type": table_type}
    table = Table.create(str(tmp_path / "t"), _SCHEMA, **how)
    table.upsert(_rows(range(_COUNT + 50)))
    table.delete(where=f"id >= {_COUNT}")
    assert table.inspect.files().num_rows == 1
    before = table.scan().to_arrow().sort_by("id")
    opened = begin(table._handle, RepushRequest(buckets=3, rows_per_task=1_000))
    shadow = Shadow.open(table._handle, opened)
    first = Load.of(table._handle, shadow).run(shadow, shadow.progress())
    assert 0 < first <= 1_000
    second = Load.of(table._handle, shadow, spark).run(shadow, shadow.progress())
    assert 0 < second <= 1_000
    assert shadow.progress().task == 2
    report = table.layout.repush(buckets=3, rows_per_task=1_000, spark=spark)
    assert report.rows_loaded == _COUNT - first - second
    assert table.scan().to_arrow().sort_by("id").equals(before)
    assert not table.check.verify(data=True).problems


@pytest.mark.parametrize("codec", CODECS)
def test_executors_pack_files_as_the_table_says_and_read_every_codec(
    spark, tmp_path: Path, codec: str
) -> None:
    table = Table.create(str(tmp_path / "t"), _SCHEMA, record_key="id", buckets=2)
    table.layout.repush(properties={"file.compression": codec}, spark=spark)
    table.upsert(spark.createDataFrame(_rows(range(500)).to_pandas()))
    assert _codecs(table) == {{"none": "uncompressed"}.get(codec, codec)}
    assert table.scan(where="id < 400").to_spark(spark).count() == 400
    other = next(name for name in CODECS if name != codec)
    table.layout.repush(properties={"file.compression": other}, spark=spark)
    assert _codecs(table) == {{"none": "uncompressed"}.get(other, other)}
    assert _sum(table) == (500, 0)


def _codecs(table: Table) -> set[str]:
    store = table._handle.store
    paths = table._handle.cache.refresh().snapshot(store).files["path"].to_pylist()
    found = [pq.read_metadata(store.location(path)).row_group(0).column(0) for path in paths]
    return {column.compression.lower() for column in found}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("upsert", (_COUNT + 500, 1_000)),
        ("delete", (_COUNT - 500, 0)),
        ("overwrite", (1_000, 1_000)),
    ],
)
def test_a_dataframe_staged_before_the_swap_is_staged_again(
    spark, tmp_path: Path, operation: str, expected: tuple[int, int]
) -> None:
    table = Table.create(str(tmp_path / "t"), _SCHEMA, record_key="id", buckets=2)
    table.upsert(_rows(range(_COUNT)))
    frame = spark.createDataFrame(_rows(range(_COUNT - 500, _COUNT + 500), 1).to_pandas())
    if operation == "delete":
        frame = frame.select("id")
    with table.writer(operation) as writer:
        writer.write(frame)
        Table.open(str(tmp_path / "t")).layout.repush(
            buckets=5, partition_by="place" if operation == "upsert" else ()
        )
    assert _sum(table) == expected
    assert not table.check.verify().problems
    assert not table.check.foreign()


def _write_across(table: Table, frame: DataFrame) -> None:
    with table.writer("upsert") as writer:
        writer.write(frame)
        Table.open(table._handle.store.address.uri).layout.repush(buckets=5)


def _random(spark: SparkSession) -> DataFrame:
    """Return rows with other keys each time; the seed of Spark's own rand() stays."""
    drawn = udf(lambda: secrets.randbits(50), "bigint").asNondeterministic()
    frame = spark.range(50)
    return frame.select(drawn().alias("id"), lit("p").alias("place"), frame.id.alias("value"))


def test_rows_that_come_out_otherwise_are_refused(spark, tmp_path: Path) -> None:
    """A query with random keys is not mixed from two evaluations (INV-07)."""
    table = Table.create(str(tmp_path / "t"), _SCHEMA, record_key="id", buckets=2)
    table.upsert(_rows(range(10)))
    spark.conf.set("spark.plait.exchange", "shuffle")
    try:
        with pytest.raises(RetryableConflictError):
            _write_across(table, _random(spark))
    finally:
        spark.conf.unset("spark.plait.exchange")
    assert table.scan().count() == 10


def test_rows_in_files_are_divided_anew_without_the_query(spark, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), _SCHEMA, record_key="id", buckets=2)
    table.upsert(_rows(range(10)))
    _write_across(table, _random(spark))
    assert table.scan().count() == 60
    assert sorted(table.scan(where="place = 'p'").to_arrow()["value"].to_pylist()) == list(
        range(50)
    )
    assert not table.check.foreign()


def test_a_key_in_two_partitions_is_refused_by_executors(spark, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), _SCHEMA, record_key="id", partition_by="place")
    table.insert(pa.table({"id": [1, 1], "place": ["a", "b"], "value": [1, 2]}))
    with pytest.raises(RepushRefusedError, match="share a key"):
        table.layout.repush(partition_by=(), spark=spark)
    assert _sum(table) == (2, 3)
    table.layout.cancel()
    assert not table.check.verify().problems


def test_a_row_that_nothing_could_replace_is_refused_by_executors(spark, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), "id bigint, at double", record_key="id", buckets=2)
    table.insert(pa.table({"id": [1, 2], "at": [1.0, float("nan")]}))
    with pytest.raises(RepushRefusedError, match="'at' is NaN"):
        table.layout.repush(ordering="at", spark=spark)
    table.layout.cancel()
    assert not table.check.verify().problems
