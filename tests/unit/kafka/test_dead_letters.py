"""Dead letters reach their topic, whatever the record carries and however many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import Message

from plait import StorageError
from plait.kafka.client import Clients
from plait.kafka.dead_letters import DeadLetters
from plait.kafka.records.decode import Undecodable
from tests.support.records import record
from tests.unit.kafka.test_includes import Unreadable


class Queue:
    """A producer whose queue has room for one message until it is flushed."""

    def __init__(self, *, broken: bool = False) -> None:
        self.sent: list[tuple[object, dict[str, object]]] = []
        self._full, self._broken = False, broken

    def require_topic(self, _: str) -> None:
        """Say that it is there."""

    def producer(self) -> Queue:
        return self

    def produce(
        self,
        _topic: str,
        value: object,
        _key: object,
        *,
        headers: list[tuple[str, object]],
        on_delivery: Callable[[object, object], None],
    ) -> None:
        if self._full:
            raise BufferError
        self._full = True
        self.sent.append((value, dict(headers)))
        on_delivery(None, None)

    def poll(self, _: float) -> None:
        """Deliver nothing by itself."""

    def flush(self, _: float) -> int:
        self._full = self._broken
        return int(self._broken)


def letters(queue: Queue) -> DeadLetters:
    return DeadLetters(cast("Clients", queue), "dead", 1)


def test_more_dead_letters_than_the_client_queues_all_arrive() -> None:
    queue, records = Queue(), [record(at, b"?%d" % at) for at in range(5)]
    letters(queue).take(records, [Undecodable(at, "odd") for at in range(5)])
    assert [value for value, _ in queue.sent] == [b"?0", b"?1", b"?2", b"?3", b"?4"]


def test_a_queue_that_stays_full_is_an_error_of_the_storage() -> None:
    records = [record(at, b"?") for at in range(2)]
    with pytest.raises(StorageError, match="dead"):
        letters(Queue(broken=True)).take(records, [Undecodable(at, "odd") for at in range(2)])


def test_a_record_whose_headers_cannot_be_read_goes_without_them() -> None:
    queue = Queue()
    odd: Message = Unreadable(topic="t", partition=0, offset=7, value=b"?")
    letters(queue).take([odd], [Undecodable(0, "odd")])
    value, headers = queue.sent[0]
    assert (value, headers["plait-offset"], headers["plait-reason"]) == (b"?", b"7", b"odd")
