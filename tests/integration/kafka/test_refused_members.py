"""A member of the group whose client refuses to go on, or gives no records, begins anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from confluent_kafka import Consumer, TopicPartition

from plait import Table
from plait.kafka.client import Clients
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for

pytestmark = pytest.mark.kafka


def test_a_partition_is_read_on_after_its_client_stood_at_an_offset_that_is_not_there(
    make_events: Callable[..., Events], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library refuses to seek in it then; only a new assignment helps."""
    events, begin_at, moved = make_events(2), Clients.begin_at, set[int]()

    def too_far(self: Clients, of: Consumer, topic: str, number: int, offset: int) -> None:
        begin_at(self, of, topic, number, offset if number in moved else 1_000_000)
        moved.add(number)

    monkeypatch.setattr(Clients, "begin_at", too_far)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(100))
    with events.running(table):
        wait_for(table, 100)
    assert moved == {0, 1}
    assert table.stream(events.name).audit().problems == ()


def test_no_record_is_left_out_where_the_client_begins_at_the_end(
    make_events: Callable[..., Events], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets a seek while it looks for the end of a partition that it has just got."""
    events, begin_at, forgot = make_events(2), Clients.begin_at, set[int]()

    def forget(self: Clients, of: Consumer, topic: str, number: int, offset: int) -> bool:
        if number in forgot:
            begin_at(self, of, topic, number, offset)
        else:
            of.resume([self.place(topic, number)])  # it stands at the end
        forgot.add(number)
        return True

    monkeypatch.setattr(Clients, "begin_at", forget)
    monkeypatch.setattr(Clients, "seek", forget)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(100))
    with events.running(table):
        deadline = time.monotonic() + WAIT_S
        while forgot != {0, 1}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        events.produce({"id": number, "note": "b"} for number in range(100, 200))
        wait_for(table, 200)
    assert table.stream(events.name).audit().problems == ()
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == list(range(200))


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    """Collect the consumers of the group."""
    made, consumer = list[Consumer](), Clients.consumer

    def keep(
        self: Clients,
        group: str | None = None,
        settings: Mapping[str, str | int] = MappingProxyType({}),
        **more: Mapping[str, str | int],
    ) -> Consumer:
        found = consumer(self, group, settings, **more)
        made.extend([found] if "partition.assignment.strategy" in settings else [])
        return found

    monkeypatch.setattr(Clients, "consumer", keep)
    return made


def wait_to_read(members: list[Consumer], place: TopicPartition, offset: int) -> int:
    """Wait until a member has read so far; return how far."""
    deadline = time.monotonic() + WAIT_S
    while not members or (found := members[0].position([place])[0].offset) < offset:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return int(found)


def test_no_record_is_left_out_where_the_client_passes_some_over(
    make_events: Callable[..., Events], tmp_path: Path, members: list[Consumer]
) -> None:
    """As it does where the group changes a second time before they were taken."""
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(20_000))
    with events.running(table, fetch_rows=100):
        at = wait_to_read(members, events.clients.place(events.name, 0), 500)
        assert at < 15_000, "it read too fast"
        members[0].seek(events.clients.place(events.name, 0, 17_000))
        wait_for(table, 20_000)
    assert len(table.scan(["id"]).to_arrow()["id"].unique()) == 20_000
    assert table.stream(events.name).audit().problems == ()


def test_a_topic_with_gaps_is_read_whole(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    """Transactions leave markers, and records that are not committed, between those that are."""
    events = make_events(1)
    producer = events.clients.producer(**{"transactional.id": events.name})
    producer.init_transactions()
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    with events.running(table, interval_s=0.2):
        for number in range(30):
            producer.begin_transaction()
            producer.produce(events.name, b'{"id": %d, "note": "a"}' % number)
            if number % 3:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            time.sleep(0.1)
        wait_for(table, 20)
    assert table.stream(events.name).audit().problems == ()


def test_a_partition_whose_client_gives_no_more_records_is_begun_anew(
    make_events: Callable[..., Events],
    tmp_path: Path,
    members: list[Consumer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = make_events(1)
    monkeypatch.setattr("plait.kafka.member._QUIET_S", 1.0)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(20_000))
    place = events.clients.place(events.name, 0)
    with events.running(table, fetch_rows=100):
        wait_to_read(members, place, 500)
        members[0].pause([place])
        assert members[0].position([place])[0].offset < 20_000, "it was paused too late"
        wait_for(table, 20_000)
    assert table.stream(events.name).audit().problems == ()
