"""The Kafka sink on a real broker: every record is in the table once (INV-09)."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plait import (
    ConstraintError,
    StorageError,
    StreamError,
    Table,
    TopicReplacedError,
    UndecodableError,
)
from plait.kafka import KafkaSink
from plait.kafka.sources import SourcePartition
from plait.kafka.status import status_of
from plait.testing.expect import refused
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for
from tests.services.ports import free_port

pytestmark = pytest.mark.kafka


def test_every_record_is_in_the_table_once(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(3)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(1_000))
    with events.running(table):
        wait_for(table, 1_000)
        events.produce({"id": number, "note": "b"} for number in range(1_000, 1_500))
        wait_for(table, 1_500)
    ids = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(1_500))
    assert table.stream(events.name).audit().problems == ()


def test_tombstones_remove_rows_in_the_order_of_the_topic(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(2)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string", record_key=["id"])
    events.produce({"id": number, "note": "a"} for number in range(100))
    events.produce(({"id": number} for number in range(50)), tombstones=True)
    events.produce({"id": number, "note": "b"} for number in range(10))
    with events.running(table):
        wait_for(table, 60)
        events.produce(({"id": number} for number in range(90, 100)), tombstones=True)
        wait_for(table, 50)
    found = dict(zip(*table.scan(["id", "note"]).to_arrow().to_pydict().values(), strict=True))
    assert found == {n: "b" if n < 10 else "a" for n in (*range(10), *range(50, 90))}
    assert table.check.verify().problems == ()


def test_what_cannot_be_decoded_goes_to_the_dead_letters(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events, letters = make_events(1), make_events(1)
    ddl = "id bigint not null, note string, double bigint"
    table = Table.create(
        str(tmp_path / "t"), ddl, checks={"few": "id < 9"}, generated={"double": "id * 2"}
    )
    bad = [b"?", b'{"id": "x"}', b"{}", b'{"id": 1}{"id": 2}', b"", b"[1]", b'{"id": 1']
    bad += [b'{"id": 9}', b'{"id": 1, "double": 3}', b'{"id": 9223372036854775807}']
    events.produce([{"id": 1, "note": "a"}, *bad, {"id": 2, "note": "b"}])
    with events.running(table, dead_letters=letters.name):
        wait_for(table, 2)
    consumer = letters.clients.consumer()
    consumer.assign([letters.clients.place(letters.name, 0, 0)])
    found = [consumer.poll(WAIT_S) for _ in bad]
    consumer.close()
    assert [each.value() or b"" for each in found] == bad
    headers = [dict(each.headers()) for each in found]
    assert [int(each["plait-offset"]) for each in headers] == list(range(1, 1 + len(bad)))
    assert all(each["plait-reason"] for each in headers)


def test_a_constraint_that_comes_while_it_runs_makes_dead_letters(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    """INV-03, INV-09: also of rows that were staged before, in an epoch that ends after."""
    events, letters = make_events(1), make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(5))
    with events.running(table, dead_letters=letters.name, interval_s=2):
        wait_for(table, 5)
        for number in range(5, 50):
            events.produce([{"id": number, "note": "bad"}, {"id": number, "note": "a"}])
            time.sleep(0.5)
            try:
                table.alter.columns().add_check("good", "note <> 'bad'").commit()
                break
            except ConstraintError:  # the epoch was over already
                table.delete(where="note = 'bad'")
        events.produce([{"id": 50, "note": "a"}])
        wait_for(table, number + 2)
    notes = table.scan(["note"]).to_arrow()["note"].to_pylist()
    assert set(notes) == {"a"}
    consumer = letters.clients.consumer()
    _, dead = letters.clients.bounds(consumer, letters.name, 0)
    consumer.close()
    assert dead
    assert table.stream(events.name).audit().problems == ()


def test_without_dead_letters_the_first_bad_record_stops_the_sink(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint")
    events.produce([b"?"])
    with pytest.raises(UndecodableError, match="offset 0"), events.running(table) as ended:
        ended.wait(WAIT_S)


def test_rows_of_a_topic_that_was_made_again_are_never_committed(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    """Its offsets begin at 0 again: those of the table must not skip them, or go on with them."""
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(100))
    with refused(TopicReplacedError), events.running(table, interval_s=1) as ended:
        wait_for(table, 100)
        events.produce({"id": number, "note": "b"} for number in range(100, 110))
        events.make_again()
        events.produce({"id": number, "note": "c"} for number in range(200))
        ended.wait(WAIT_S)
    notes = set(table.scan(["note"]).to_arrow()["note"].to_pylist())
    assert notes <= {"a", "b"}
    assert table.stream(events.name).audit().problems == ()


@pytest.mark.long(1)
@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_tables_with_one_name_neither_takes_rows_of_the_other(
    make_events: Callable[..., Events], tmp_path: Path, *, keyed: bool
) -> None:
    """Both have the default name: a process ends that meets the other table's coordinator."""
    events = make_events(2)
    tables = [
        Table.create(str(tmp_path / n), "id bigint, note string", record_key=["id"] * keyed)
        for n in ("raw", "clean")
    ]
    ends: list[threading.Event] = []
    errors: list[str] = []

    def run(at: int, inside: Callable[[], None]) -> None:
        try:
            with events.running(tables[at]) as ended:
                ends.append(ended)
                inside()
        except StreamError as error:
            errors.append(str(error))

    def meet() -> None:
        number, deadline = 100, time.monotonic() + WAIT_S
        while not any(end.is_set() for end in ends):
            assert time.monotonic() < deadline, "neither ended"
            events.produce([{"id": number, "note": "b"}])
            number += 1
            time.sleep(0.1)

    def begin() -> None:
        events.produce({"id": number, "note": "a"} for number in range(100))
        wait_for(tables[0], 100)
        run(1, meet)

    run(0, begin)
    assert errors
    assert all("is used by another table" in error for error in errors)
    consumer = events.clients.consumer()
    counted = sum(events.clients.bounds(consumer, events.name, n)[1] for n in (0, 1))
    consumer.close()
    for table, name in zip(tables, (events.name, f"{events.name}-clean"), strict=True):
        assert table.check.verify().problems == ()
        assert table.stream(events.name).audit().problems == ()
        worked = table.scan().count() > 0  # under the first name, which it then keeps
        with events.running(table, name=events.name if worked else name):
            wait_for(table, counted)
        ids = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
        assert sorted(ids) == list(range(counted))


def test_its_page_and_its_status_tell_how_far_it_is(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(2)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(300))
    port = free_port()
    with events.running(table, metrics=str(port)):
        wait_for(table, 300)
        deadline = time.monotonic() + WAIT_S
        while "plait_sink_records_total" not in (text := read_page(port, "metrics")) or (
            f'plait_sink_records_total{{sink="{events.name}"}} 300.0' not in text
            or 'offset_lag{partition="0"' not in text
        ):
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        told = json.loads(read_page(port, "health"))
        assert (told["healthy"], told["coordinates"], len(told["partitions"])) == (True, True, 2)
        events.produce([b'{"id": 300}'])
        wait_for(table, 301)
        found = status_of(table, events.name, events.clients)
        assert found.coordinator is not None
        assert found.coordinator.pid == os.getpid()
    found = status_of(table, events.name, events.clients)
    assert (found.lag, sum(p.offset.number for p in found.partitions)) == (0, 301)
    events.produce([b'{"id": 301}', b'{"id": 302}'])
    assert status_of(table, events.name, events.clients).lag == 2
    events.make_again()
    events.clients.require_topic(events.name)  # it may take a moment to appear
    problems = {p.problem for p in status_of(table, events.name, events.clients).partitions}
    assert problems == {"the topic was deleted and made again"}


def read_page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=WAIT_S) as answer:
        return answer.read().decode()


def test_the_memory_of_a_process_is_divided_among_its_partitions(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(3)
    table = Table.create(str(tmp_path / "t"), "id bigint")
    sink = KafkaSink(table, replace(events.settings, memory=90 << 20))
    sources = [SourcePartition(events.name, number) for number in range(3)]
    try:
        sink.open(sources)
        assert {lane.participant.buffer for lane in sink._lanes.values()} == {10 << 20}
        sink.close(sources[1:])
        assert {lane.participant.buffer for lane in sink._lanes.values()} == {30 << 20}
    finally:
        sink.close()


def test_a_sink_reads_by_tls_with_a_password(
    make_events: Callable[..., Events], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(10))
    bootstrap, secure = events.kafka.secured
    client = {**events.settings.client, **secure}
    with events.running(table, bootstrap=bootstrap, client=client):
        wait_for(table, 10)
    monkeypatch.setattr("plait.kafka.client.ASK_S", 2)
    wrong = {**client, "sasl.password": "guessed"}
    with pytest.raises(StorageError, match="what they ask of clients"):
        KafkaSink(table, replace(events.settings, bootstrap=bootstrap, client=wrong))
