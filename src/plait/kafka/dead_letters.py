"""Records that cannot be decoded: where they go, and how many are too many."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from plait.errors import StorageError, UndecodableError
from plait.kafka.access import TOPIC, Right
from plait.kafka.client import Clients
from plait.kafka.library import headers_of, require_allowed, translated
from plait.kafka.records.decode import Undecodable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_log = logging.getLogger(__name__)

WINDOW: Final = 10_000
"""The share is of so many records at least: a bad one among the first few stops nothing."""
_KEPT: Final = 10 * WINDOW
_FLUSH_S: Final = 60.0
_HINT: Final = "see whether the brokers are up; large records need message.max.bytes in --client"


@dataclass(slots=True)
class Share:
    """How many of the newest records were bad."""

    percent: float
    total: int = 0
    bad: int = 0

    def note(self, total: int, bad: int) -> bool:
        """Count records; tell whether the bad ones are few enough.

        >>> Share(1).note(100, 100), Share(1).note(100, 101)
        (True, False)
        """
        if self.total >= _KEPT:
            self.total, self.bad = self.total // 2, self.bad // 2
        self.total += total
        self.bad += bad
        return self.bad * 100 <= self.percent * max(self.total, WINDOW)


class DeadLetters:
    """Sends records that cannot be decoded to a topic, with the reason and their place as headers.

    They are there at least once: a record that is read again is sent again, and its place tells
    that it is the same.
    """

    def __init__(self, clients: Clients, topic: str, percent: float) -> None:
        """Open the topic, or none.

        Raises:
            TableNotFoundError: there is no such topic.
            StorageError: the brokers do not answer.
        """
        self._topic, self._share = topic, Share(percent)
        self._producer: Producer | None = None
        if topic:
            clients.require_topic(topic)
            self._producer = clients.producer()

    def take(self, records: Sequence[Message], bad: Sequence[Undecodable]) -> None:
        """Count records, and send the bad ones; return when the topic has them.

        Raises:
            UndecodableError: there is no topic for them, or they are too many.
            StorageError: the topic did not take them.
        """
        few = self._share.note(len(records), len(bad))
        if not bad:
            return
        first = records[bad[0].at]
        where = _place(first)
        if self._producer is None:
            message = f"the record at {where} cannot be decoded: {bad[0].reason}"
            hint = "name a topic for such records with --dead-letters, or mend the producer"
            raise UndecodableError(message, hint=hint, place=where, reason=bad[0].reason)
        self._send(self._producer, records, bad)
        _log.warning(
            "%d records cannot be decoded, the first at %s: %s", len(bad), where, bad[0].reason
        )
        if not few:
            message = f"{self._share.bad} of {self._share.total} records cannot be decoded"
            hint = f"see the topic {self._topic!r}; --dead-letter-percent allows more"
            raise UndecodableError(message, hint=hint, place=where, reason=bad[0].reason)

    def close(self) -> None:
        """Let go of the topic."""
        if self._producer is not None:
            self._producer.flush(_FLUSH_S)

    def _send(
        self, producer: Producer, records: Sequence[Message], bad: Sequence[Undecodable]
    ) -> None:
        failed: list[KafkaError] = []
        write = Right("WRITE", TOPIC, self._topic)

        def heard(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for each in bad:
            record = records[each.at]
            place = {
                "plait-reason": each.reason,
                "plait-topic": str(record.topic()),
                "plait-partition": str(record.partition()),
                "plait-offset": str(record.offset()),
            }
            headers = [*_own_headers(record), *((k, v.encode()) for k, v in place.items())]
            send = partial(producer.produce, self._topic, record.value(), record.key())
            what = f"send the record at {_place(record)} to topic {self._topic!r}"
            with translated(what, write, hint=_HINT):
                try:
                    send(headers=headers, on_delivery=heard)
                except BufferError:  # the client's queue is full
                    if producer.flush(_FLUSH_S):
                        break
                    send(headers=headers, on_delivery=heard)
                producer.poll(0)
        late = producer.flush(_FLUSH_S)
        for error in failed[:1]:
            require_allowed(error, write)
        if late or failed:
            message = f"the topic {self._topic!r} did not take all records: {failed[:1]}"
            raise StorageError(message, hint=_HINT)


def _own_headers(record: Message) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a record; none if they cannot be read."""
    try:
        return headers_of(record)
    except ValueError:
        return []


def _place(record: Message) -> str:
    return f"{record.topic()}/{record.partition()} offset {record.offset()}"
