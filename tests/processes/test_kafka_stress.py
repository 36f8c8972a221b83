"""Stress of the Kafka sink in small: what `make stress-kafka` does for 3,000,000 records."""

from __future__ import annotations

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from plait import Table
from plait.kafka.client import Clients
from plait.kafka.settings import SinkSettings
from plait.kafka.sink import KafkaSink
from tests.processes.kafka.claims import Claims
from tests.processes.kafka.fleet import Fleet
from tests.processes.kafka.run import Plan, Run
from tests.services.kafka import Kafka

pytestmark = pytest.mark.kafka

FLUSH_S = 60


def test_every_record_is_there_once_whatever_is_killed(kafka: Kafka, tmp_path: Path) -> None:
    """INV-09, INV-11: sinks and the broker are killed, and the control topic is damaged."""
    plan = Plan(records=20_000, keyed=True, table_type="mor", kills=2, pause_s=1, seed=4)
    seen = Run(plan, kafka, tmp_path).carry_out()
    assert seen["done"] == {"kill": 2, "stop": 1, "leave": 1, "broker": 1}
    assert seen["ended_by_themselves"] == {}
    assert seen["noise"], "nothing was damaged: the test showed less than it says"


def test_a_process_that_waits_for_a_dead_one_keeps_its_place_in_the_group(
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The group waits for the session of the dead, but has answered whoever joins meanwhile."""
    monkeypatch.setattr("plait.kafka.member._JOIN_S", 0.5)
    clients = Clients(kafka.bootstrap, {"log_level": "0"})
    topic, producer = tmp_path.name, clients.producer()
    clients.make_topic(topic, settings={})
    table = Table.create(str(tmp_path / "table"), "id bigint")
    fleet = Fleet.of(str(tmp_path / "table"), kafka.bootstrap, topic, tmp_path, 1)
    settings = SinkSettings(kafka.bootstrap, (topic,), interval_s=0.3, client={"log_level": "0"})
    stop, sink = threading.Event(), KafkaSink(table, settings)
    produce(producer, topic, range(100))
    while table.scan().count() < 100:
        fleet.wait(0.1)
    fleet.kill(random.Random(0))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sink.run, stop)
        produce(producer, topic, range(100, 200))
        while table.scan().count() < 200:
            assert not running.done(), running.exception()
            time.sleep(0.1)
        stop.set()
        running.result()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(200))
    assert not [each for each in caplog.messages if "joined anew" in each]


def produce(producer: Producer, topic: str, ids: range) -> None:
    for number in ids:
        producer.produce(topic, json.dumps({"id": number}))
    assert producer.flush(FLUSH_S) == 0


@pytest.mark.long(1)
@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_coordinators_alive_one_goes_on(
    kafka: Kafka, tmp_path: Path, *, keyed: bool
) -> None:
    """INV-09: each epoch once; the older one stops within a heartbeat interval."""
    seen = Claims(kafka, tmp_path, keyed=keyed, seed=1).play(3)
    assert seen["epochs"]


def test_a_partition_that_was_taken_comes_back_if_the_other_one_goes(
    kafka: Kafka, tmp_path: Path
) -> None:
    """The process does not end: the group may say that the partition is its own after all."""
    claims = Claims(kafka, tmp_path, keyed=False, seed=1)
    older = claims.claim()
    claims.produce()
    newer = claims.claim()
    while not older.lost:
        assert not older.errors, older.errors
        time.sleep(0.01)
    newer.end()
    claims.produce()
    claims.await_rows(older)
    older.end()
    claims.judge()
