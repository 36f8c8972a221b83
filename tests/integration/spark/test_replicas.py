"""A dual write takes no DataFrame: it says so before a job is run or a sink is opened."""

from __future__ import annotations

import pytest

from plait import OptionError, Table
from plait.replicate import Replicas, status
from plait.timeline.pending import load_pending
from tests.support.sinks import fresh


@pytest.mark.spark
def test_a_data_frame_is_refused_and_nothing_is_written(spark, tmp_path) -> None:
    table = Table.create(str(tmp_path / "t"), "id bigint", record_key="id")
    sink = fresh("eu")
    with (
        pytest.raises(OptionError) as caught,
        table.writer("upsert", replicas=Replicas([sink])) as writer,
    ):
        writer.write(spark.range(3))
    assert caught.value.key == "replicas"
    assert (table.version, status(table), sink.place.sessions) == (0, (), 0)
    assert load_pending(table.handle.store) == []
