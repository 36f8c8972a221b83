"""Updates, merges and read-modify-write on Spark DataFrames: as with Arrow, and distributed."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import Delete, Insert, Table, Update
from plait.errors import (
    BadRecordError,
    DuplicateKeyError,
    OptionError,
    PredicateError,
    RetryableConflictError,
    SchemaMismatchError,
)
from tests.integration.spark.tables import KINDS, arrow_rows, assert_sound, frame, make, revisions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("table_type", "partitioned"), KINDS)
def test_a_merge_of_a_frame_is_what_a_merge_of_arrow_is(
    spark: SparkSession, tmp_path: Path, table_type: str, partitioned: bool
) -> None:
    """INV-08; with clauses for rows of all three kinds, in buckets that no row came for too."""
    numbers = itertools.count()
    found = []
    for distributed in (True, False):
        table = make(tmp_path / str(next(numbers)), table_type, partitioned=partitioned)
        table.upsert(arrow_rows(0, 40, 1))
        table.upsert(arrow_rows(30, 60, 2))
        source = frame(spark, 50, 80, 5).selectExpr(
            "id", "part", "rev", "cast(id % 4 as int) op", "upper(name) as `a.b`"
        )
        stats = table.merge(
            source if distributed else source.toArrow(),
            matched=[Delete(when="op = 1"), Update({"rev": "t.rev * 10 + s.rev"}, when="op > 1")],
            not_matched=[Insert({"rev": "s.id", "name": "s.`a.b`"}, when="s.op <> 0")],
            not_matched_by_source=[
                Update({"name": "'left'"}, when="id < 3"),
                Delete(when="id < 9"),
            ],
        ).stats
        assert (stats.rows_in, stats.rows_deleted, stats.rows_updated) == (30, 2 + 6, 6 + 3)
        assert_sound(table)
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        found.append((rows, stats.rows_inserted))
        assert {row["rev"] for row in rows} >= {25, 61}
    assert found[0] == found[1]


def test_a_merge_refuses_what_cannot_be_before_or_without_a_trace(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-10: errors of executors come back as themselves, and leave nothing."""
    table = make(tmp_path / "t")
    table.upsert(arrow_rows(0, 10, 1))
    source = frame(spark, 5, 15, 2)
    with pytest.raises(DuplicateKeyError):
        table.merge(source.union(source), matched=[Update()])
    with pytest.raises(BadRecordError):
        table.merge(source, matched=[Update({"rev": "1 / (s.id - 7)"})])
    with pytest.raises(SchemaMismatchError, match="id"):
        table.merge(source.drop("id"), matched=[Update()])
    with pytest.raises(PredicateError, match="rev"):
        table.merge(source, matched=[Update({"rev": "rev"})])
    assert revisions(table) == dict.fromkeys(range(10), 1)
    table.maintenance.rollback()
    assert_sound(table)


@pytest.mark.parametrize(("table_type", "keyed"), [("cow", True), ("mor", True), ("cow", False)])
def test_an_update_runs_on_the_executors_of_a_session_that_is_given(
    spark: SparkSession, tmp_path: Path, table_type: str, keyed: bool
) -> None:
    table = make(tmp_path / "t", table_type, partitioned=True, keyed=keyed)
    table.append(arrow_rows(0, 30, 1))
    stats = table.update({"rev": "rev + id"}, where="part <> 'p1' and id >= 10", spark=spark).stats
    assert stats.rows_updated == 13
    assert revisions(table) == {i: 1 + i if i >= 10 and i % 3 != 1 else 1 for i in range(30)}
    assert table.delete(where="part = 'p0' and id > 3", spark=spark).stats.rows_deleted == 8
    with pytest.raises(OptionError, match="not a Spark session"):
        table.update({"rev": 1}, spark=frame(spark, 0, 1, 1))
    assert_sound(table)


def test_a_merge_meets_commits_of_others_on_the_same_bucket(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-07: other keys are rebased over, the same key is the first committer's."""
    table = make(tmp_path / "t", "mor", buckets=1)
    table.upsert(arrow_rows(0, 10, 1))

    def merge_while(start: int) -> None:
        with table.transaction() as tx:
            tx.merge(frame(spark, 0, 5, 3), matched=[Update({"rev": "t.rev + s.rev"})])
            table.upsert(arrow_rows(start, start + 2, 9))

    merge_while(8)
    assert revisions(table) == {**dict.fromkeys(range(5), 4), 5: 1, 6: 1, 7: 1, 8: 9, 9: 9}
    with pytest.raises(RetryableConflictError):
        merge_while(4)
    assert revisions(table)[0] == 4
    assert revisions(table)[4] == 9
    assert_sound(table)


# --- read-modify-write -------------------------------------------------------------------------


def read_at(table: Table) -> int | None:
    """Give the version that the newest commit says its rows were computed from."""
    decision = table._handle.cache.timeline.find(table.version)
    return None if decision is None or decision.read_set is None else decision.read_set.version


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_frame_that_was_computed_from_the_table_rests_on_what_it_read(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-07: ``upsert(f(scan().to_spark()))`` never writes over what it has not seen."""
    table = make(tmp_path / "t", table_type)
    table.upsert(arrow_rows(0, 10, 1))
    grown = table.scan().to_spark(spark).selectExpr("id", "part", "rev + 1 AS rev", "name")
    other = frame(spark, 0, 3, 0).alias("o")
    joined = other.join(grown.alias("g"), "id").selectExpr("id", "o.part", "g.rev", "o.name")
    table.upsert(arrow_rows(9, 10, 7))
    with pytest.raises(RetryableConflictError):
        table.upsert(grown)
    with pytest.raises(RetryableConflictError), table.transaction() as tx:
        tx.upsert(grown)
    assert table.upsert(joined).stats.rows_updated == 3, "9 was written, but not by these rows"
    assert read_at(table) == 1
    again = table.scan().to_spark(spark).selectExpr("id", "part", "rev + 1 AS rev", "name")
    table.upsert(again)
    assert revisions(table) == {**dict.fromkeys(range(3), 3), **dict.fromkeys(range(3, 9), 2), 9: 8}
    assert_sound(table)


def test_a_frame_that_read_nothing_of_the_table_rests_on_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, second = make(tmp_path / "t"), make(tmp_path / "u")
    table.upsert(arrow_rows(0, 10, 1))
    second.upsert(arrow_rows(0, 10, 5))
    held = table.scan().to_spark(spark)
    rows = second.scan().to_spark(spark)
    table.upsert(arrow_rows(0, 10, 2))
    table.upsert(rows)
    assert set(revisions(table).values()) == {5}
    assert read_at(table) is None
    assert held.count() == 10


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_sessions_that_count_through_spark_lose_nothing(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-07: each is told of a conflict, reads again, and counts again."""
    table = make(tmp_path / "t", table_type, buckets=1)
    table.upsert(arrow_rows(0, 2, 0))

    def count(times: int) -> None:
        mine, session = Table.open(str(tmp_path / "t")), spark.newSession()
        while times:
            seen = mine.scan().to_spark(session)
            try:
                mine.upsert(seen.selectExpr("id", "part", "rev + 1 AS rev", "name"))
            except RetryableConflictError:
                continue
            times -= 1

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(count, [3, 3]))
    assert revisions(table) == {0: 6, 1: 6}
    assert not table.check.verify(history=True).problems
    assert_sound(table)


# --- overwrites --------------------------------------------------------------------------------


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_an_overwrite_of_a_predicate_replaces_what_matches_and_refuses_other_rows(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-10: a row outside is named, before anything is published."""
    table = make(tmp_path / "t", table_type, partitioned=True)
    table.upsert(arrow_rows(0, 30, 1))
    before = table.version
    where = "part = 'p1' and id < 20"
    inside = frame(spark, 0, 12, 2).where("part = 'p1'")
    with pytest.raises(BadRecordError, match="predicate of the overwrite") as caught:
        table.overwrite(inside.union(frame(spark, 25, 26, 2)), where=where)
    assert caught.value.sample["id"] == "25"
    assert set(revisions(table).values()) == {1}
    table.overwrite(inside, where=where)
    kept = {i: 1 for i in range(30) if i % 3 != 1 or i >= 20}
    assert revisions(table) == {**kept, **dict.fromkeys((1, 4, 7, 10), 2)}
    assert table.version > before
    table.maintenance.rollback()
    assert_sound(table)
