"""The dual write into a topic: what a consumer finds there, and what repair does."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from plait import ReplicationError, Table
from plait.kafka import TopicSink
from plait.replicate import Replicas, repair, status
from tests.integration.kafka.conftest import Events, wait_for

pytestmark = pytest.mark.kafka

SCHEMA = "id bigint, day date, at timestamp, price decimal(9,2), raw binary, x double"


@pytest.fixture
def events(make_events: Callable[..., Events]) -> Events:
    return make_events(partitions=2)


@pytest.fixture
def sink(events: Events) -> TopicSink:
    return TopicSink("topic", events.kafka.bootstrap, events.name, {"log_level": "0"})


@pytest.fixture
def t(tmp_path) -> Table:
    return Table.create(str(tmp_path / "t"), SCHEMA, record_key="id")


def rows(*ids: int, x: float = 0.5) -> pa.Table:
    given = {
        "id": list(ids),
        "day": ["2026-01-31"] * len(ids),
        "at": ["2026-01-31T01:02:03.000004Z"] * len(ids),
        "price": ["1.50"] * len(ids),
        "raw": [b"\x00\xff"] * len(ids),
        "x": [x] * len(ids),
    }
    kinds = {"day": pa.date32(), "at": pa.timestamp("us", "UTC"), "price": pa.decimal128(9, 2)}
    table = pa.table(given)
    for name, kind in kinds.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].cast(kind))
    return table


def write(t: Table, sink: TopicSink, data: pa.Table) -> None:
    with t.writer("upsert", replicas=Replicas([sink], batch_size=10)) as writer:
        writer.write(data)


def sorted_rows(t: Table) -> list[dict[str, object]]:
    return t.scan().to_arrow().sort_by("id").to_pylist()


def test_a_consumer_makes_the_same_table_of_the_topic(t, sink, events, tmp_path) -> None:
    """The Kafka sink of another table reads rows and tombstones as they were written."""
    write(t, sink, rows(*range(30)))
    with t.writer("upsert", replicas=Replicas([sink], batch_size=10)) as writer:
        writer.remove(pa.table({"id": [3, 4]}))
        writer.write(rows(5, x=7.25))
    copy = Table.create(str(tmp_path / "copy"), SCHEMA, record_key="id")
    with events.running(copy):
        wait_for(copy, 28)
    assert sorted_rows(copy) == sorted_rows(t)


def test_records_of_a_key_are_in_one_partition_and_their_bytes_say_what_they_are(
    t, sink, events
) -> None:
    write(t, sink, rows(1))
    write(t, sink, rows(1, x=2.0))
    consumer = events.clients.consumer()
    places = [events.clients.place(events.name, partition, 0) for partition in range(2)]
    consumer.assign(places)
    found = consumer.consume(2, 20)
    consumer.close()
    assert len({record.partition() for record in found}) == 1
    assert {record.key() for record in found} == {b'{"id":1}'}
    assert json.loads(found[0].value()) == {
        "id": 1,
        "day": "2026-01-31",
        "at": "2026-01-31T01:02:03.000004Z",
        "price": "1.50",
        "raw": "AP8=",
        "x": 0.5,
    }


def test_repair_writes_what_is_missing_and_tombstones_for_what_is_too_much(t, sink) -> None:
    write(t, sink, rows(1, 2))
    writer = t.writer("upsert", replicas=Replicas([sink]))
    writer.__enter__().write(rows(9))
    writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    t.upsert(rows(3))
    assert (status(t)[0].behind, len(status(t)[0].ahead)) == ((t.version,), 1)
    found = repair(t, sink)
    assert (found.missing, found.removed) == (1, 1)
    assert status(t)[0].in_step
    assert repair(t, sink).equal


def test_what_json_cannot_express_and_what_a_topic_cannot_order_is_refused(
    t, sink, tmp_path
) -> None:
    with pytest.raises(ReplicationError, match="NaN"):
        write(t, sink, rows(1, x=float("nan")))
    ordered = Table.create(
        str(tmp_path / "o"), "id bigint, rev int", record_key="id", ordering="rev"
    )
    with pytest.raises(ReplicationError, match="order"):
        write(ordered, sink, pa.table({"id": [1], "rev": [1]}))
    assert status(ordered) == ()  # nothing was sent


def test_a_topic_that_is_not_there_is_told_before_anything_is_sent(t, sink, events) -> None:
    absent = TopicSink("absent", sink.bootstrap, f"{events.name}-none", {"log_level": "0"})
    with pytest.raises(ReplicationError, match="no topic"):
        write(t, absent, rows(1))
    assert status(t) == ()
