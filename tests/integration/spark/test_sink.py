"""Several tasks of the data source meet one bucket, and one key: as if one writer had all rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.tables import assert_sound, make
from tests.integration.spark.test_source import save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from plait import Table

pytestmark = pytest.mark.spark


def crowded(spark: SparkSession, start: int, keys: int, turn: int) -> DataFrame:
    """Give each of eight tasks a row of every key, with a revision that says which task it was."""
    # 3 and 8 have no common factor: the greatest revision is not the last task's.
    revision = f"{turn * 10}L + pmod(3 * (id div {keys}), 8) AS rev"
    return spark.range(0, 8 * keys, 1, 8).selectExpr(
        f"{start} + id % {keys} AS id",
        f"concat('p', ({start} + id % {keys}) % 3) AS part",
        revision,
        f"concat('task ', id div {keys}) AS name",
    )


ONCE = "name = concat('task ', id % 8)"
"""Of rows that are crowded one a key, from many tasks."""


def held(table: Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = table.scan().to_arrow().sort_by("id").to_pylist()
    return rows


@pytest.mark.parametrize(("kind", "ordering"), [("cow", "rev"), ("mor", None)])
def test_tasks_that_share_keys_write_what_one_arrow_writer_would(
    spark: SparkSession, tmp_path: Path, kind: str, ordering: str | None
) -> None:
    """INV-08: rows count in the order of Spark's tasks; the ordering column goes before that."""
    ours = make(tmp_path / "ours", kind, partitioned=True, buckets=2, ordering=ordering)
    other = make(tmp_path / "arrow", kind, partitioned=True, buckets=2, ordering=ordering)
    first = crowded(spark, 0, 30, 0)
    save(first, ours, operation="upsert")
    other.upsert(first.toArrow())
    assert held(ours) == held(other)
    winner = 7 if ordering else 3 * 7 % 8
    assert {row["rev"] for row in held(ours)} == {winner}, "one row a key, and which is known"
    later = crowded(spark, 20, 30, 1)
    save(later, ours, operation="upsert")
    other.upsert(later.toArrow())
    assert held(ours) == held(other)
    skipped = crowded(spark, 40, 30, 2)
    save(skipped, ours, operation="insert", on_duplicate="skip")
    other.insert(skipped.toArrow(), on_duplicate="skip")
    assert held(ours) == held(other)
    dynamic = crowded(spark, 60, 20, 3).where("part != 'p0'")
    if ordering is None:  # nothing says which of the rows of a key to take
        dynamic = dynamic.where(ONCE)
    save(dynamic, ours, "overwrite", partitions="dynamic")
    other.overwrite(dynamic.toArrow(), partitions="dynamic")
    assert held(ours) == held(other)
    assert_sound(ours)


def test_keys_that_are_there_are_refused_whichever_task_has_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t", buckets=1, partitioned=True)
    save(crowded(spark, 0, 10, 0).where(ONCE), table)
    before = held(table)
    with pytest.raises(Exception, match="DuplicateKeyError"):
        save(crowded(spark, 9, 5, 1).where(ONCE), table, operation="insert")
    assert held(table) == before
