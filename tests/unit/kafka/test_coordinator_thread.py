"""The coordinator's thread: whatever it meets, it goes on, or its process ends."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, cast

import pyarrow as pa
import pytest

from plait import StorageError, Table, TableNotFoundError
from plait.kafka.client import Clients, Topic
from plait.kafka.control import ControlTopic
from plait.kafka.leading import Leader
from plait.kafka.monitoring import Counts
from plait.kafka.settings import SinkSettings
from plait.stream.transport import Endpoint, Hub
from plait.testing import SimClock
from tests.support.protocol import client, create, memory

WAIT_S = 120


class Control:
    """The control topic of one process, in memory."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def coordinator(self) -> Endpoint:
        return self._hub.coordinator()

    def release(self, _: Endpoint) -> None:
        """Deliver on: nobody listens."""


class OneTopic:
    """Has a topic of one partition that never changes."""

    def require_topic(self, name: str) -> Topic:
        return Topic(name, "idA", 1)

    def bounds(self, _consumer: object, _topic: str, _partition: int) -> tuple[int, int]:
        return 0, 1_000

    def consumer(self) -> Self:
        return self

    def close(self) -> None:
        """Hold nothing."""


class Brokers:
    """Answers each question about a topic as it is told."""

    def __init__(self, answer: Callable[[], Topic]) -> None:
        self._answer = answer
        self.asked = threading.Semaphore(0)

    def require_topic(self, _: str) -> Topic:
        self.asked.release()
        return self._answer()


@contextmanager
def leading(brokers: Brokers, clock: SimClock | None = None) -> Iterator[Leader]:
    clock = clock or SimClock()
    create(store := memory(clock))
    settings = SinkSettings("localhost:9", ("events",))
    control = cast("ControlTopic", None)  # it comes no further than to the brokers
    made = Leader(
        Table(client(store, clock)),
        settings,
        cast("Clients", brokers),
        control,
        "append",
        Counts(),
        pause_s=0.01,
    )
    made.start()
    try:
        yield made
    finally:
        made.stop()


def wait_until_it_raises(leader: Leader) -> None:
    pause = threading.Event()
    for _ in range(WAIT_S * 100):
        leader.require_alive()
        pause.wait(0.01)


def test_a_process_ends_with_whatever_ends_its_coordinator() -> None:
    def answer() -> Topic:
        reason = "a bug"
        raise RuntimeError(reason)

    with leading(Brokers(answer)) as leader, pytest.raises(RuntimeError, match="a bug"):
        wait_until_it_raises(leader)


@pytest.mark.parametrize("error", [StorageError("a run"), FileNotFoundError("a run")])
def test_an_epoch_that_failed_is_read_again_but_not_for_ever(error: OSError) -> None:
    def answer() -> Topic:
        raise error

    brokers = Brokers(answer)
    with leading(brokers) as leader, pytest.raises(type(error)):
        wait_until_it_raises(leader)
    assert sum(brokers.asked.acquire(blocking=False) for _ in range(9)) == 3


def test_failures_far_apart_do_not_add_up() -> None:
    clock = SimClock()

    def answer() -> Topic:
        clock.advance(61)
        reason = "no broker answers"
        raise StorageError(reason)

    brokers = Brokers(answer)
    with leading(brokers, clock) as leader:
        for _ in range(9):
            assert brokers.asked.acquire(timeout=WAIT_S)
        leader.require_alive()


@pytest.mark.parametrize("again", [False, True])
def test_a_sink_writes_nothing_where_its_table_was_deleted(tmp_path: Path, *, again: bool) -> None:
    """What it knows of versions would put a decision into the middle of the new table."""
    uri, hub = tmp_path / "t", Hub()
    table = Table.create(str(uri), "id bigint")
    leader = Leader(
        table,
        SinkSettings("localhost:9", ("events",), interval_s=0.05),
        cast("Clients", OneTopic()),
        cast("ControlTopic", Control(hub)),
        "append",
        Counts(),
        pause_s=0.01,
    )
    participant = table.stream("events").participant(hub.writer(), "events/0")
    leader.start()
    try:
        for number in range(WAIT_S * 100):
            participant.poll(0.01)
            if participant.ready and participant.offset("events/0"):
                at = int(participant.offset("events/0").partition("@")[0])
                rows, end = pa.table({"id": [number]}), f"{at + 1}@idA"
                participant.write(rows, source="events/0", start=f"{at}@idA", end=end)
            if leader.counts.commits == 2:
                break
        shutil.rmtree(uri)
        if again:
            Table.create(str(uri), "id bigint")
        participant.hurry()
        with pytest.raises(TableNotFoundError, match="made again" if again else "was deleted"):
            wait_until_it_raises(leader)
    finally:
        leader.stop()
        participant.close()
    if again:
        made = Table.open(str(uri))
        assert (made.version, made.check.verify().problems) == (0, ())
    else:
        assert not list(uri.glob(".meta/timeline/*/*"))
