"""A sink that is called as Kafka Connect calls its tasks, by a program with its own consumer."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plait import Table
from plait.kafka import KafkaSink
from plait.kafka.sources import SourcePartition
from tests.integration.kafka.conftest import WAIT_S, Events

pytestmark = pytest.mark.kafka


def test_records_that_are_put_from_where_the_table_is_are_committed(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(50))
    source = SourcePartition(events.name, 0)
    consumer = events.clients.consumer()
    sink = KafkaSink(table, events.settings)
    try:
        sink.open([source])
        deadline = time.monotonic() + WAIT_S
        while (at := sink.wanted(source)) is None:
            assert time.monotonic() < deadline
            sink.poll()
        consumer.assign([events.clients.place(*source, at.number)])
        records = []
        while len(records) < 50:
            assert time.monotonic() < deadline
            records += consumer.consume(50, 1)
        sink.put(records[10:])
        assert sink.wanted(source) == at, "what is not next is left out"
        sink.put(records)
        while sink.pre_commit() != {source: 50}:
            assert time.monotonic() < deadline
            sink.poll()
    finally:
        sink.close()
        consumer.close()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(50))
