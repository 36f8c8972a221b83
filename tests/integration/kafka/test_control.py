"""The control topic on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from plait import StorageError, Table
from plait.kafka.client import Clients
from plait.kafka.control import ControlTopic
from plait.stream.messages import Farewell, encode
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for

pytestmark = pytest.mark.kafka


def test_a_message_that_the_client_refuses_is_an_error_of_the_storage(
    make_events: Callable[..., Events],
) -> None:
    events = make_events()
    clients = Clients(events.kafka.bootstrap, {"message.max.bytes": "1000"})
    control = ControlTopic(clients, events.settings)
    with pytest.raises(StorageError, match="could not send to"):
        control.writer().send(encode(Farewell("0" * 32, "w" * 1024, "life")))
    control.close()


@pytest.mark.long(1)
@pytest.mark.parametrize("made", [True, False], ids=["made again", "left absent"])
def test_a_sink_goes_on_after_its_control_topic_was_deleted(
    make_events: Callable[..., Events], tmp_path: Path, made: bool
) -> None:
    """Nothing on it must be kept; who heard nothing any more would never commit again."""
    events = make_events(2)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    control = replace(events, name=events.settings.control)
    with events.running(table):
        events.produce({"id": number, "note": "a"} for number in range(100))
        wait_for(table, 100)
        if made:
            control.make_again()
        else:
            control.delete()
        events.produce({"id": number, "note": "b"} for number in range(100, 200))
        wait_for(table, 200)
        events.produce({"id": number, "note": "c"} for number in range(200, 300))
        wait_for(table, 300)
    assert table.stream(events.name).audit().problems == ()


def test_a_foreign_transaction_holds_no_message_back(make_events: Callable[..., Events]) -> None:
    events = make_events()
    control = ControlTopic(events.clients, events.settings)
    foreign = Producer(
        {"bootstrap.servers": events.kafka.bootstrap, "transactional.id": events.name}
    )
    foreign.init_transactions(WAIT_S)
    foreign.begin_transaction()
    foreign.produce(events.settings.control, b"?")
    foreign.flush(WAIT_S)
    sent = encode(Farewell("0" * 32, "w", "life"))
    end = control.coordinator()
    control.writer().send(sent)
    assert end.receive(5) == sent
    foreign.abort_transaction(WAIT_S)
    control.close()
