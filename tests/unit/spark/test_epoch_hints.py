"""What a query on Spark is told when its batch does not continue its stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from plait import Table
from plait.errors import EpochRewoundError, EpochUnknownError, OptionError
from plait.spark.options import STREAMING, SourceOptions
from plait.spark.sink import Job
from plait.spark.stream import EpochMessage, PlaitStreamWriter, begin_epoch
from plait.write.request import write_request

COLUMNS = StructType([StructField("id", LongType())])


def commit(table: Table, application: str, batch: int, *, query: str = "q") -> None:
    order = write_request("append", table._handle.cache.known().table.spec)
    job = Job.prepare(table, order, COLUMNS, digests=True)
    writer = PlaitStreamWriter(job, application, None)
    writer.commit([EpochMessage(job=job, query=query)], batch)


def test_a_checkpoint_that_was_moved_keeps_its_name_and_a_lost_one_takes_another(
    tmp_path: Path,
) -> None:
    table = Table.create(str(tmp_path / "t"), "id bigint")
    commit(table, "/old/place", 0)
    with pytest.raises(EpochUnknownError) as moved:
        commit(table, "/new/place", 1)
    assert "use the old name" in moved.value.hint
    commit(table, "/old/place", 1)
    commit(table, "app", 0)
    with pytest.raises(EpochRewoundError) as lost:
        commit(table, "app", 0, query="other")
    assert "another name than 'app'" in lost.value.hint
    commit(table, "app-2", 0, query="other")


@pytest.mark.parametrize(("said", "taken"), [("none", True), ("NONE", True), ("3", False)])
def test_a_stream_says_as_a_write_does_that_nothing_was_read(
    tmp_path: Path, said: str, *, taken: bool
) -> None:
    place = str(tmp_path / "t")
    Table.create(place, "id bigint", isolation="serializable")
    given = {"path": place, "application": "app", "readFrom": said}
    options = SourceOptions.of(given, STREAMING)
    if taken:
        begin_epoch(options, COLUMNS, overwrite=False)
        return
    with pytest.raises(OptionError):
        begin_epoch(options, COLUMNS, overwrite=False)
