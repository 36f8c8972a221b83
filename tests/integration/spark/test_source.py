"""``format("plait")``: found by Spark itself, right whatever rows a task is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import Table
from tests.integration.spark.tables import (
    KINDS,
    TASKS,
    arrow_rows,
    assert_sound,
    frame,
    make,
    revisions,
)
from tests.integration.spark.test_writer import fails_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def save(rows: DataFrame, table: Table, mode: str = "append", **options: str) -> None:
    uri = str(table.inspect.describe()["uri"])
    rows.write.format("plait").options(**options).mode(mode).save(uri)


@pytest.mark.parametrize(("kind", "partitioned"), KINDS)
def test_every_operation_is_right_when_each_task_meets_every_bucket(
    spark: SparkSession, tmp_path: Path, kind: str, *, partitioned: bool
) -> None:
    """INV-08: a data source cannot ask for a distribution."""
    table = make(tmp_path / "t", kind, partitioned=partitioned)
    save(frame(spark, 0, 90, 1), table)
    model = dict.fromkeys(range(90), 1)
    save(frame(spark, 60, 120, 2), table, operation="upsert")
    model |= dict.fromkeys(range(60, 120), 2)
    assert revisions(table) == model
    save(frame(spark, 110, 130, 3), table, operation="insert", on_duplicate="skip")
    model |= dict.fromkeys(range(120, 130), 3)
    assert revisions(table) == model
    save(frame(spark, 0, 5, 4), table, "overwrite", where="id < 30")
    model = {k: v for k, v in model.items() if k >= 30} | dict.fromkeys(range(5), 4)
    assert revisions(table) == model
    if partitioned:
        rows = frame(spark, 0, 30, 5).where("part = 'p1'")
        save(rows, table, "overwrite", partitions="dynamic")
        model = {k: v for k, v in model.items() if k % 3 != 1} | dict.fromkeys(range(1, 30, 3), 5)
        assert revisions(table) == model
    save(frame(spark, 7, 9, 6), table, "overwrite")
    assert revisions(table) == {7: 6, 8: 6}
    assert_sound(table)
    assert "replace_commit" in {entry.action for entry in table.inspect.history()}


def test_rows_without_a_key_are_written_by_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t", keyed=False, partitioned=True)
    save(frame(spark, 0, 60, 1), table)
    save(frame(spark, 0, 60, 1), table)
    assert table.scan().count() == 120
    save(frame(spark, 0, 3, 2), table, "overwrite", partitions="dynamic")
    assert table.scan().count() == 3
    save(frame(spark, 0, 9, 2), table, "overwrite")
    assert table.scan().count() == 9
    assert_sound(table)


def test_runs_are_condemned_by_the_decision_that_used_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-06: no file is without an owner, whoever dies when."""
    table = make(tmp_path / "t")
    table.alter.set({"clean.retain.time": "0s", "clean.grace": "0s", "clean.retain.versions": "1"})
    save(frame(spark, 0, 60, 1), table)
    runs = list((tmp_path / "t").rglob("*.run.parquet"))
    assert len(runs) == TASKS, "one a task"
    assert_sound(table)
    table.append(arrow_rows(100, 101, 1))
    table.maintenance.clean()
    assert not list((tmp_path / "t").rglob("*.run.parquet"))
    assert len(revisions(table)) == 61


def test_a_failed_write_is_rolled_back(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t", partitioned=True)
    table.append(arrow_rows(0, 60, 1))
    bad = frame(spark, 0, 100, 2).selectExpr("if(id = 99, null, id) id", "part", "rev", "name")
    with pytest.raises(Exception, match="BadRecordError"):
        save(bad, table, operation="upsert")
    with pytest.raises(Exception, match="DuplicateKeyError"):
        save(frame(spark, 50, 70, 2), table, operation="insert")
    assert revisions(table) == dict.fromkeys(range(60), 1)
    # Tasks that still ran when Spark gave up may leave late files: a clean removes them.
    assert table.check.verify().problems == ()


@pytest.mark.long(1)
@pytest.mark.parametrize("keyed", [False, True])
def test_a_task_that_is_tried_again_leaves_its_rows_once(
    spark: SparkSession, tmp_path: Path, *, keyed: bool
) -> None:
    table = make(tmp_path / "t", keyed=keyed)
    table.alter.set({"write.buffer.size": "64KiB", "write.bucket.size": "16KiB"})
    rows = frame(spark, 0, 30_000, 1, tasks=2)
    save(rows.mapInArrow(fails_once(str(tmp_path / "failed")), rows.schema), table)
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == list(range(30_000))
    report = table.check.verify()
    assert (report.problems, report.notes) == ((), ()), report.to_dict()


def test_a_commit_id_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for rev in (1, 2):
        save(frame(spark, 0, 10, rev), table, operation="upsert", commit_id="batch-1")
    assert revisions(table) == dict.fromkeys(range(10), 1)
    assert table.version == 1


def test_an_empty_frame_is_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.append(arrow_rows(0, 10, 1))
    save(frame(spark, 0, 0, 1), table)
    assert table.version == 2
    save(frame(spark, 0, 0, 1), table, "overwrite")
    assert revisions(table) == {}
    assert_sound(table)


def test_a_read_is_pinned_when_it_is_loaded(spark: SparkSession, tmp_path: Path) -> None:
    """INV-04: a DataFrame keeps its version; options choose another, columns and files."""
    table = make(tmp_path / "t", "mor")
    table.append(arrow_rows(0, 60, 1))
    uri = str(tmp_path / "t")
    loaded = spark.read.format("plait").load(uri)
    table.upsert(arrow_rows(0, 30, 2))
    assert loaded.selectExpr("count(*)", "max(rev)").first() == (60, 1)
    assert loaded.where("id = 5").selectExpr("rev").first() == (1,)
    assert loaded.count() == 60, "a filter of one query is not one of the next"
    newest = spark.read.format("plait")
    assert newest.load(uri).selectExpr("sum(rev)").first() == (90,)
    assert newest.option("version", 1).load(uri).selectExpr("sum(rev)").first() == (60,)
    when = table.inspect.history()[1].completed_ms
    then = spark.read.format("plait").option("as_of", str(when)).load(uri)
    assert then.where("rev = 2").isEmpty()
    some = spark.read.format("plait").schema("name string, id bigint").option("where", "id < 3")
    assert some.load(uri).sort("id").first() == ("name 0", 0)
    assert some.load(uri).count() == 3


def test_a_schema_that_is_not_the_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path / "t").append(arrow_rows(0, 6, 1))
    with pytest.raises(Exception, match="column 'id' is bigint, not string"):
        spark.read.format("plait").schema("id string").load(str(tmp_path / "t")).collect()
    with pytest.raises(Exception, match="no table"):
        spark.read.format("plait").load(str(tmp_path / "nowhere"))


def test_a_source_survives_what_others_commit_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-07: the base is the head at commit, so rows that came meanwhile stay."""
    table = make(tmp_path / "t", buckets=1)
    uri = str(tmp_path / "t")

    def commit_beside(batches):
        from plait import Table

        for batch in batches:
            Table.open(uri).upsert(batch, on_conflict="retry")
            yield batch

    rows = frame(spark, 0, 10, 1, tasks=1)
    other = frame(spark, 20, 30, 2, tasks=1).mapInArrow(commit_beside, rows.schema)
    save(rows.unionAll(other.where("id = 20")), table, operation="upsert")
    assert revisions(table) == dict.fromkeys(range(10), 1) | dict.fromkeys(range(20, 30), 2)
    assert_sound(table)
