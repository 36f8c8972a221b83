"""Topics of a sink: several, absent, and grown while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from plait import PartitionsAddedError, Table, TableNotFoundError
from plait.testing.expect import refused
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for

pytestmark = pytest.mark.kafka


def test_one_sink_reads_several_topics(make_events: Callable[..., Events], tmp_path: Path) -> None:
    one, two = make_events(2), make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    one.produce({"id": number, "note": "a"} for number in range(100))
    two.produce({"id": number, "note": "b"} for number in range(100, 150))
    with one.running(table, topics=(one.name, two.name), name="", control=""):
        wait_for(table, 150)
    sources = table.stream(f"{one.name}+{two.name}").audit().epochs[-1]
    assert sources.rows is not None
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == list(range(150))


def test_a_process_with_other_topics_than_the_coordinator_says_that_it_waits(
    make_events: Callable[..., Events],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("plait.kafka.task._LEFT_OUT_S", 1.0)
    one, two = sorted((make_events(1), make_events(1)), key=lambda each: each.name)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    one.produce({"id": number, "note": "a"} for number in range(10))
    name = {"name": one.name, "control": ""}
    with one.running(table, **name):
        wait_for(table, 10)
        with one.running(table, topics=(one.name, two.name), **name):
            deadline = time.monotonic() + WAIT_S
            while not (told := [each for each in caplog.messages if "waits, since" in each]):
                assert time.monotonic() < deadline
                time.sleep(0.1)
    assert f"{two.name}/0 waits" in told[0]
    assert f"it reads {one.name}/0, and" in told[0]
    assert f"the topics {one.name}, {two.name};" in told[0]


def test_a_topic_that_is_not_there_is_refused_and_nothing_is_made(
    make_events: Callable[..., Events], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint")
    monkeypatch.setattr("plait.kafka.client._LOOKS", 2)
    absent = f"{events.name}-misspelt"
    with (
        pytest.raises(TableNotFoundError, match=absent),
        events.running(table, topics=(absent,), name="", control="") as ended,
    ):
        ended.wait(WAIT_S)
    assert events.clients.find_topics([f"{absent}-control"]) == {}


def grow(events: Events, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": events.kafka.bootstrap})
    asked = admin.create_partitions([NewPartitions(events.name, partitions)])
    asked[events.name].result(WAIT_S)


def test_partitions_that_were_added_are_read_where_order_does_not_matter(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(20))
    with events.running(table):
        wait_for(table, 20)
    grow(events, 3)
    events.produce({"id": number, "note": "b"} for number in range(20, 60))
    with events.running(table):
        wait_for(table, 60)


def test_partitions_that_were_added_to_keyed_rows_without_an_order_are_refused(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    """A new partition may hold older rows of a key than the table has."""
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string", record_key=["id"])
    events.produce({"id": number, "note": "a"} for number in range(20))
    with events.running(table):
        wait_for(table, 20)
    grow(events, 2)
    with refused(PartitionsAddedError), events.running(table) as ended:
        ended.wait(WAIT_S)
    with events.running(table, new_partitions="read"):
        events.produce({"id": number, "note": "b"} for number in range(20, 40))
        wait_for(table, 40)
