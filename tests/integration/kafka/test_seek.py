"""Where a sink cannot go on, and how it is told to continue elsewhere (INV-09)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from plait import OffsetsLostError, OptionError, StreamError, Table
from plait.kafka.seeking import plan_seek, seek
from plait.kafka.status import status_of
from plait.testing.expect import refused
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for

pytestmark = pytest.mark.kafka


def ids(table: Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def numbers(start: int, stop: int) -> list[dict[str, object]]:
    return [{"id": number, "note": "a"} for number in range(start, stop)]


def test_what_kafka_removed_is_never_skipped_unasked(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce(numbers(0, 100))
    with events.running(table):
        wait_for(table, 100)
    events.produce(numbers(100, 200))
    admin = AdminClient({"bootstrap.servers": events.kafka.bootstrap})
    place = TopicPartition(events.name, 0, 150)
    admin.delete_records([place])[place].result(WAIT_S)
    with refused(OffsetsLostError), events.running(table) as ended:
        ended.wait(WAIT_S)
    assert ids(table) == list(range(100))
    plan = plan_seek(table, events.name, events.clients, {"": "earliest"})
    assert [(m.before and m.before.number, m.after.number) for m in plan.moves] == [(100, 150)]
    seek(table, events.name, plan)
    with events.running(table):
        wait_for(table, 150)
    assert ids(table) == [*range(100), *range(150, 200)]
    assert table.stream(events.name).audit().problems == ()


def test_a_topic_that_was_made_again_is_read_once_it_is_accepted(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(2)
    uri = str(tmp_path / "t")
    table = Table.create(uri, "id bigint, note string")
    events.produce(numbers(0, 50))
    with events.running(table):
        wait_for(table, 50)
    events.make_again()
    events.produce(numbers(50, 80))
    line = [sys.executable, "-m", "plait.cli", "sink", "seek", uri]
    line += ["--bootstrap", events.kafka.bootstrap, "--to", "earliest", "--yes", "--json"]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert len(json.loads(ran.stdout)["data"]["moves"]) == 2
    with events.running(table):
        wait_for(table, 80)
    assert ids(table) == list(range(80))


def test_a_seek_reads_nothing_again_unless_that_is_asked_for(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce(numbers(0, 10))
    with events.running(table):
        wait_for(table, 10)
    plan = plan_seek(table, events.name, events.clients, {f"{events.name}/0": "4"})
    with pytest.raises(OptionError, match="--again"):
        seek(table, events.name, plan)
    for places in ({"": "earliest"}, {events.name: "latest"}):
        with pytest.raises(OptionError, match="can go on"):
            seek(table, events.name, plan_seek(table, events.name, events.clients, places))
    with pytest.raises(OptionError, match="no partition"):
        plan_seek(table, events.name, events.clients, {"other/0": "earliest"})
    with pytest.raises(OptionError, match="not a place"):
        plan_seek(table, events.name, events.clients, {events.name: "soon"})
    with pytest.raises(OffsetsLostError):
        plan_seek(table, events.name, events.clients, {events.name: "11"})
    seek(table, events.name, plan, again=True)
    with pytest.raises(StreamError):  # it was computed from a position that is no more
        seek(table, events.name, plan, again=True)
    assert status_of(table, events.name, events.clients).lag == 6


def test_a_first_start_may_begin_at_a_time(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce(numbers(0, 10))
    time.sleep(0.05)
    since = time.time()
    time.sleep(0.05)
    events.produce(numbers(10, 15))
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since)) + f".{since % 1 * 1000:03.0f}Z"
    with events.running(table, begin=moment):
        wait_for(table, 5)
    assert ids(table) == list(range(10, 15))


def test_a_topic_that_was_deleted_for_good_is_dropped_once_it_is_gone(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    kept, gone = make_events(1), make_events(2)
    name, uri = f"{kept.name}+{gone.name}", str(tmp_path / "t")
    table = Table.create(uri, "id bigint, note string")
    kept.produce(numbers(0, 10))
    gone.produce(numbers(10, 30))
    with kept.running(table, topics=(kept.name, gone.name), name=name, control=""):
        wait_for(table, 30)
    with pytest.raises(OptionError, match="still has it"):
        plan_seek(table, name, kept.clients, {}, [gone.name])
    gone.delete()
    with pytest.raises(OptionError, match=f"--drop {gone.name}"):
        plan_seek(table, name, kept.clients, {gone.name: "earliest"})
    with pytest.raises(OptionError, match="no partition"):
        plan_seek(table, name, kept.clients, {}, ["other"])
    stuck = [each.problem for each in status_of(table, name, kept.clients).partitions]
    assert stuck.count("the topic is not there") == 2
    line = [sys.executable, "-m", "plait.cli", "sink", "seek", uri, "--name", name, "--json"]
    line += ["--bootstrap", kept.kafka.bootstrap, "--drop", gone.name, "--yes"]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert [each["after"] for each in json.loads(ran.stdout)["data"]["moves"]] == [None, None]
    status = status_of(table, name, kept.clients)
    assert [(str(each.source), each.problem) for each in status.partitions] == [
        (f"{kept.name}/0", "")
    ]
    kept.produce(numbers(30, 40))
    with kept.running(table, name=name, control=""):
        wait_for(table, 40)
    assert ids(table) == list(range(40))
    assert table.stream(name).audit().problems == ()
    kept.delete()
    with pytest.raises(OptionError, match="all partitions"):
        plan_seek(table, name, kept.clients, {}, [kept.name])
