"""A Kafka topic as a sink of the dual write: the last record of a key is its row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from plait.definition.sink_schema import SinkSchema
from plait.errors import OptionError, StorageError
from plait.kafka.client import Clients
from plait.kafka.library import ASKED_OF_CLIENTS, require_usable, translated
from plait.kafka.records.json_rows import json_objects, require_plain
from plait.kafka.records.json_values import JsonDecoder

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

_SEND_MS: Final = 30_000
"""A record that was not acknowledged in this time is not sent any more."""
_FLUSH_S: Final = 45.0
_POLL_S: Final = 0.1
_IDLE_MAX: Final = 600
"""Maximum number of empty polls in a row before the end of a partition."""
_DECODED: Final = 10_000
_POLLED: Final = 5_000


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic whose records are the rows: the key and the value are JSON objects.

    A removed row is a tombstone. Records of one key go to one partition, in order, so the topic
    may be compacted. A topic cannot compare rows: a table with an ordering column is refused.

    Args:
        name: the name of the sink.
        bootstrap: addresses of the brokers.
        topic: a topic that exists, and that nobody else writes.
        client: further settings of librdkafka.
    """

    name: str
    bootstrap: str
    topic: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def removes(self) -> bool:
        """A tombstone removes a row."""
        return True

    def open(self, schema: SinkSchema) -> TopicSession:
        """Connect.

        Raises:
            OptionError: the table has an ordering column.
            SchemaMismatchError: a column is a list, struct or map.
            TableNotFoundError: there is no such topic.
            StorageError: the brokers do not answer.
        """
        if schema.ordering is not None:
            message = f"a topic cannot order rows by {schema.ordering!r}"
            hint = "leave it out of the replicas; consumers can read the changes of the table"
            raise OptionError(message, hint=hint, key="replicas", value=self.name)
        require_plain(schema.arrow)
        clients = Clients(self.bootstrap, dict(self.client))
        partitions = clients.require_topic(self.topic).partitions
        producer = clients.producer(**{"message.timeout.ms": _SEND_MS})
        return TopicSession(clients, producer, self.topic, partitions, schema)


@dataclass(slots=True)
class TopicSession:
    """Sends records with one producer, which keeps their order."""

    clients: Clients
    producer: Producer
    topic: str
    partitions: int
    schema: SinkSchema
    _errors: list[str] = field(default_factory=list)

    def batch_put(self, records: pa.RecordBatch) -> None:
        """Send a record for each row."""
        keys = json_objects(records, self.schema.key)
        for key, value in zip(keys, json_objects(records, self.schema.arrow.names), strict=True):
            self._send(key, value)

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        """Send a tombstone for each key."""
        for key in json_objects(keys, self.schema.key):
            self._send(key, None)

    def flush(self) -> None:
        """Return when the brokers have acknowledged every record.

        Raises:
            StorageError: they did not, or refused one. None is sent any more.
        """
        with translated(f"write to {self.topic}"):
            left = self.producer.flush(_FLUSH_S)
        if left or self._errors:
            reason = self._errors[0] if self._errors else f"{left} records were not acknowledged"
            message = f"topic {self.topic!r} did not take a batch: {reason}"
            raise StorageError(message, hint=ASKED_OF_CLIENTS)

    def held(self) -> Iterator[pa.RecordBatch]:
        """Return the last row of each key; the values of all keys are in memory meanwhile."""
        rows: dict[bytes, bytes] = {}
        consumer = self.clients.consumer()
        try:
            for partition in range(self.partitions):
                self._read(consumer, partition, rows)
        finally:
            consumer.close()
        decoder, values = JsonDecoder(self.schema.arrow), iter(rows.values())
        while chunk := list(islice(values, _DECODED)):
            found = decoder.decode(chunk)
            if found.bad:
                message = f"topic {self.topic!r} has a record that is no row: {found.bad[0].reason}"
                raise StorageError(message, hint="a topic that is a sink must have no other writer")
            yield from found.rows.cast(self.schema.arrow).to_batches()

    def close(self) -> None:
        """Drop what was not acknowledged."""
        self.producer.purge()
        self.producer.flush(0)

    def _send(self, key: bytes, value: bytes | None) -> None:
        while True:
            try:
                self.producer.produce(self.topic, value, key, on_delivery=self._told)
            except BufferError:  # wait until the brokers have taken some
                self.producer.poll(_POLL_S)
            else:
                self.producer.poll(0)
                return

    def _told(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            self._errors.append(str(error))

    def _read(self, consumer: Consumer, partition: int, rows: dict[bytes, bytes]) -> None:
        first, end = self.clients.bounds(consumer, self.topic, partition)
        if first >= end:
            return
        consumer.assign([self.clients.place(self.topic, partition, first)])
        idle = 0
        while self._position(consumer, partition) < end:
            records = consumer.consume(_POLLED, _POLL_S)
            idle = 0 if records else idle + 1
            if idle > _IDLE_MAX:
                message = f"the brokers send no records of {self.topic}/{partition}"
                raise StorageError(message, hint="see whether they are up")
            for record in records:
                error = record.error()
                if error is not None:
                    require_usable(error, "", self.topic)
                    continue
                _fold(record, rows)

    def _position(self, consumer: Consumer, partition: int) -> int:
        """Return the next offset; markers of transactions count, so offsets have gaps."""
        return int(consumer.position([self.clients.place(self.topic, partition)])[0].offset)


def _fold(record: Message, rows: dict[bytes, bytes]) -> None:
    key, value = record.key(), record.value()
    if not isinstance(key, bytes):
        message = "the topic has a record without a key"
        raise StorageError(message, hint="a topic that is a sink must have no other writer")
    if isinstance(value, bytes):
        rows[key] = value
    else:
        rows.pop(key, None)
