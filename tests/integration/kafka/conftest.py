"""Topics of their own on the one broker of the run."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from plait import Table
from plait.kafka.client import Clients
from plait.kafka.settings import SinkSettings
from plait.kafka.sink import KafkaSink
from tests.services.kafka import Kafka

WAIT_S = 120
"""Longer than it takes a sink to find that an answer was lost, and to ask again."""


@dataclass(frozen=True, slots=True)
class Events:
    """A topic, and what a test does with it."""

    kafka: Kafka
    name: str
    clients: Clients

    @property
    def settings(self) -> SinkSettings:
        return SinkSettings(
            self.kafka.bootstrap,
            (self.name,),
            interval_s=0.3,
            patience_s=5,
            client={"log_level": "0", "session.timeout.ms": "6000"},
        )

    def produce(
        self, rows: Iterable[Mapping[str, object] | bytes], *, tombstones: bool = False
    ) -> None:
        """Write records; those of mappings with their id as the key, or with nothing else."""
        producer = self.clients.producer()
        for row in rows:
            raw = isinstance(row, bytes)
            value = row if raw else json.dumps(row)
            key = None if raw else str(row["id"])
            producer.produce(self.name, None if tombstones else value, key)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    def delete(self) -> AdminClient:
        """Delete the topic; return the client that did it."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        admin.delete_topics([self.name])[self.name].result(WAIT_S)
        return admin

    def make_again(self) -> None:
        """Delete the topic, and make another one with its name."""
        partitions = self.clients.require_topic(self.name).partitions
        admin = self.delete()
        deadline = time.monotonic() + WAIT_S
        while True:
            made = admin.create_topics([NewTopic(self.name, partitions)])[self.name]
            try:
                made.result(WAIT_S)
            except KafkaException:  # it is being deleted still
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                return

    @contextmanager
    def running(self, table: Table, **changes: object) -> Iterator[threading.Event]:
        """Run one process of a sink in a thread; raise what it raises.

        Yields:
            What is set when it has ended.
        """
        sink = KafkaSink(table, replace(self.settings, **changes))
        with at_work(lambda: sink) as ended:
            yield ended


@contextmanager
def at_work(make: Callable[[], KafkaSink]) -> Iterator[threading.Event]:
    """Make one process of a sink in a thread, and run it; raise what it raises.

    Yields:
        What is set when it has ended.
    """
    stop, ended, errors = threading.Event(), threading.Event(), []

    def run() -> None:
        try:
            make().run(stop)
        except Exception as error:  # noqa: BLE001 - raised by the test's own thread
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join(WAIT_S)
        if errors:
            raise errors[0]
    assert not thread.is_alive()


def wait_for(table: Table, rows: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := table.scan().count()) != rows:
        assert time.monotonic() < deadline, f"{found} of {rows} rows"
        time.sleep(0.05)


@pytest.fixture
def make_events(kafka: Kafka) -> Callable[..., Events]:
    def make(partitions: int = 1) -> Events:
        clients = Clients(kafka.bootstrap, {"log_level": "0"})
        name = f"events-{uuid.uuid4().hex[:12]}"
        clients.make_topic(name, partitions=partitions, settings={})
        return Events(kafka, name, clients)

    return make
