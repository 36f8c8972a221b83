"""Rows on their way to their tasks, where Spark is one machine (RFC 0010)."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import BadRecordError, DuplicateKeyError, OptionError
from plait.spark.exchange import SETTING
from tests.integration.spark.tables import assert_sound, frame, make, revisions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_rows_on_their_way_are_gone_with_the_writer(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie where Spark was told to keep its own."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{scratch},{tmp_path / 'other'}")
    began = scratch.stat().st_mtime_ns
    table = make(tmp_path / "t")
    good = frame(spark, 0, 100, 1)
    bad = good.selectExpr("if(id = 8, null, id) id", "part", "rev", "name")
    failing = good.selectExpr("if(id = 8, raise_error('no'), id) id", "part", "rev", "name")
    writers = []  # what is held cannot be gone by itself
    for rows, error in ((good, None), (good, DuplicateKeyError), (bad, BadRecordError)):
        writers.append(table.writer("insert"))
        with nullcontext() if error is None else pytest.raises(error), writers[-1] as writer:
            writer.write(rows)
        assert list(scratch.iterdir()) == []
        assert scratch.stat().st_mtime_ns > began, "they were there"
    writers.append(table.writer("upsert"))
    with pytest.raises(Exception, match="no"), writers[-1] as writer:
        writer.write(failing)
    assert list(scratch.iterdir()) == []


def test_several_frames_and_more_tasks_than_rows_go_through_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t", partitioned=True)
    with table.writer("upsert") as writer:
        writer.write(frame(spark, 0, 3, 1))
        writer.write(frame(spark, 3, 5, 1, tasks=1))
    assert revisions(table) == dict.fromkeys(range(5), 1)
    assert_sound(table)


def test_a_way_that_is_not_known_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    spark.conf.set(SETTING, "disk")
    try:
        with pytest.raises(OptionError, match="auto or shuffle"):
            table.append(frame(spark, 0, 3, 1))
    finally:
        spark.conf.unset(SETTING)
    assert_sound(table)
