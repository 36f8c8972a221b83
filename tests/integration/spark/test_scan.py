"""``scan().to_spark()``: Spark's own Parquet reader on the files of a version."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import CorruptMetadataError, InstantExpiredError, PredicateError, Table
from plait.files.data_file import live_files
from plait.spark import masks
from tests.integration.spark.tables import arrow_rows, make, revisions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def rows(table: pa.Table, *columns: str) -> list[dict[str, object]]:
    keys = [(name, "ascending") for name in columns or table.column_names]
    return table.sort_by(keys).to_pylist()


def plan_of(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    frame.explain()
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Give a merge-on-read table in which files have hidden rows, and some have none."""
    table = make(tmp_path_factory.mktemp("masked") / "t", "mor", partitioned=True)
    table.append(arrow_rows(0, 400, 1))
    table.upsert(arrow_rows(100, 500, 2).filter(pc.field("part") != "p2"))
    table.delete(where="id in (3, 10, 17, 47)")
    return table


def test_hidden_rows_are_hidden_by_a_native_filter(
    spark: SparkSession, masked: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """INV-04."""
    found = masked.scan().to_spark(spark)
    assert rows(found.toArrow()) == rows(masked.scan().to_arrow())
    shown = plan_of(found, capsys)
    assert "FileScan parquet" in shown
    assert "Python" not in shown, "no row goes through a Python worker"
    assert "getbit" in shown
    assert "Exchange hashpartitioning" not in shown, "no row is shuffled"
    assert "Union" not in shown, "a union would copy every row"
    assert found.where("rev = 2").count() == len([r for r in revisions(masked).values() if r == 2])


def test_a_limit_is_one_for_spark_too(spark: SparkSession, masked: Table) -> None:
    """INV-04: so many rows of the scan, with a predicate or without."""
    for where, some in ((None, 7), ("rev = 2", 9)):
        found = masked.scan(where=where, limit=some).to_spark(spark).toArrow().to_pylist()
        assert len(found) == some
        every = masked.scan(where=where).to_arrow().to_pylist()
        assert all(row in every for row in found)


@pytest.mark.parametrize("way", ["by size", "many files", "one size", "unknown sizes"])
def test_each_file_has_its_own_bitmap_whichever_way_it_is_found(
    spark: SparkSession,
    masked: Table,
    way: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-04: files with and without hidden rows in one scan, by the size or by the name."""
    scan = masked.scan()
    files = list(live_files(scan.plan.files))
    assert 1 < sum(bool(file.masked) for file in files) < len(files)
    every = spark.read.parquet(*(scan.store.location(file.path) for file in files))
    if way == "one size":
        files = [replace(file, size_bytes=1) for file in files]
    if way == "unknown sizes":
        files = [replace(file, size_bytes=file.size_bytes + 1) for file in files]
    if way == "many files":
        monkeypatch.setattr(masks, "_LOOKED_MAX", 1)
    found = masks.without_hidden(every, spark, scan.store, files)
    kept = found.select(*every.columns)
    assert rows(kept.toArrow()) == rows(masked.scan().to_arrow())
    shown = plan_of(found, capsys)
    assert "BroadcastHashJoin" in shown
    assert ("file_size" in shown) == (way == "by size")


def test_files_without_hidden_rows_are_read_as_plain_parquet(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make(tmp_path / "t")
    table.append(arrow_rows(0, 100, 1))
    found = table.scan(["rev"], where="id >= 90").to_spark(spark)
    assert found.columns == ["rev"]
    assert found.count() == 10
    shown = plan_of(found, capsys)
    assert "Batched: true" in shown, "vectorised"
    assert "PushedFilters: [IsNotNull(id), GreaterThanOrEqual(id,90)]" in shown
    assert "getbit" not in shown


@pytest.mark.parametrize(
    "where",
    [
        "part = 'p1' and rev = 2",
        "id in (1, 2, 450) or name like 'name 3%'",
        "not (id < 300)",
    ],
)
def test_predicates_select_what_the_arrow_scan_selects(
    spark: SparkSession, masked: Table, where: str
) -> None:
    scan = masked.scan(["name", "id"], where=where)
    assert rows(scan.to_spark(spark).toArrow()) == rows(scan.to_arrow())


def test_a_pyarrow_expression_is_refused_with_the_remedy(
    spark: SparkSession, masked: Table
) -> None:
    scan = masked.scan(["name", "id"], where=pc.field("id") > 420)
    assert scan.count()
    with pytest.raises(PredicateError) as caught:
        scan.to_spark(spark)
    assert "SQL text" in caught.value.hint


def test_nan_is_found_though_every_bound_leaves_it_out(spark: SparkSession, tmp_path: Path) -> None:
    """INV-04: to Spark NaN is the greatest number, and Parquet's bounds do not know of it."""
    schema = "id bigint, d double, s struct<x float>, l array<double>"
    table = Table.create(str(tmp_path / "t"), schema, record_key=["id"], buckets=1)
    data = [
        {"id": at, "d": x, "s": {"x": x}, "l": [x]} for at, x in enumerate((1.0, math.nan, None))
    ]
    table.insert(pa.Table.from_pylist(data, table.schema))
    for where in ("d > 5", "s.x > 5", "d >= 2 and d != 3", "exists(l, e -> e > 5)"):
        found = table.scan().to_spark(spark).where(where)
        assert [row.id for row in found.collect()] == [1], where


def test_an_older_version_is_read_as_it_was(spark: SparkSession, masked: Table) -> None:
    old = masked.scan(version=1)
    assert old.to_spark(spark).selectExpr("count(*)", "max(rev)").first() == (400, 1)
    assert old.version == 1


def test_an_empty_table_gives_an_empty_frame_with_its_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    ddl = "id bigint, t timestamp, n timestamp_ntz, s struct<a:int,b:array<string>>, d decimal(9,2)"
    table = Table.create(str(tmp_path / "t"), ddl, record_key=["id"], buckets=1)
    empty = table.scan().to_spark(spark)
    assert empty.count() == 0
    table.append(pa.Table.from_pylist([{"id": 1}], schema=table.schema))
    full = table.scan().to_spark(spark)
    assert empty.schema == full.schema
    assert full.schema.simpleString().startswith("struct<id:bigint,t:timestamp,n:timestamp_ntz")
    assert table.scan(where="id = 5").to_spark(spark).count() == 0


@pytest.mark.parametrize("place", ["a=1/b=2", "odd [x]{y}*?", "with space%20#"])
def test_the_place_of_a_table_adds_no_column_and_no_pattern(
    spark: SparkSession, tmp_path: Path, place: str
) -> None:
    """Directories named ``a=1`` are no columns of the table; its files are no globs."""
    (tmp_path / place).mkdir(parents=True)
    table = make(tmp_path / place / "t", "mor", partitioned=True, buckets=1)
    table.append(arrow_rows(0, 30, 1))
    table.upsert(arrow_rows(20, 40, 2))
    found = table.scan().to_spark(spark)
    assert found.columns == ["id", "part", "rev", "name"]
    assert rows(found.toArrow()) == rows(table.scan().to_arrow())


def test_columns_named_as_spark_names_its_own_are_the_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("_metadata", pa.int64()), ("a.b `c`", pa.string()), ("name", pa.string())])
    table = Table.create(
        str(tmp_path / "t"), schema, record_key=["_metadata"], table_type="mor", buckets=1
    )
    data = pa.table([range(5), ["x"] * 5, list("abcde")], schema=schema)
    table.append(data)
    table.upsert(data.slice(1, 2))
    found = table.scan(where="`_metadata` < 4").to_spark(spark)
    assert rows(found.toArrow(), "_metadata") == data.slice(0, 4).to_pylist()
    result = table.upsert(found)
    assert result.stats.rows_updated == 4


def test_many_files_are_read(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), "id bigint, day int", partition_by=["day"])
    table.append(pa.table({"id": range(300), "day": pa.array(range(300), pa.int32())}))
    assert table.inspect.files().num_rows == 300
    found = table.scan().to_spark(spark)
    assert found.selectExpr("count(distinct day)", "sum(id)").first() == (300, 44850)
    assert table.scan(where="day = 7").to_spark(spark).inputFiles()[0].count("7") >= 1
    assert len(table.scan(where="day < 5").to_spark(spark).inputFiles()) == 5


def test_a_missing_file_is_an_error_never_an_empty_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t", buckets=2)
    table.append(arrow_rows(0, 30, 1))
    found = table.scan().to_spark(spark)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        (tmp_path / "t" / table.inspect.files()["path"][0].as_py()).unlink()
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
            found.count()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_file_in_the_place_of_another_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """INV-04: Spark reads files itself, and does not look at what the metadata says of them."""
    table = Table.create(tmp_path / "t", "v double")
    for value in (1.0, 2.0):
        table.append(pa.table({"v": [value]}))
    first, second = (tmp_path / "t" / path for path in table.inspect.files()["path"].to_pylist())
    body = first.read_bytes()
    assert len(body) == second.stat().st_size
    first.write_bytes(second.read_bytes())
    second.write_bytes(body)
    for scan in (table.scan(), table.scan(version=1)):
        with pytest.raises(CorruptMetadataError) as refused:
            scan.to_spark(spark)
        assert refused.value.path in table.inspect.files()["path"].to_pylist()


def test_files_stay_while_a_frame_made_from_a_scan_is_used(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-05: the lease lives as long as the DataFrame, though the scan was dropped."""
    table = make(tmp_path / "t", buckets=1)
    table.alter.set({"clean.retain.time": "0s", "clean.grace": "0s", "clean.retain.versions": "1"})
    table.append(arrow_rows(0, 30, 1))
    old = table.scan().to_spark(spark).where("id >= 0").selectExpr("rev")
    table.overwrite(arrow_rows(0, 1, 2))
    table.maintenance.clean()
    assert old.count() == 30
    with pytest.raises(InstantExpiredError):
        table.scan(version=2)
