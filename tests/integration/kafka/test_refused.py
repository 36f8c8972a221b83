"""A member of the group whose client stands at an offset that is not there begins anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from plait import Table
from plait.kafka.client import Clients
from tests.integration.kafka.conftest import Events, wait_for

pytestmark = pytest.mark.kafka


def test_a_partition_is_read_on_after_its_client_stood_at_an_offset_that_is_not_there(
    make_events: Callable[..., Events], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library refuses to seek in it then; only a new assignment helps."""
    events, seek, moved = make_events(2), Clients.seek, set[int]()

    def seek_too_far(self: Clients, of: Consumer, topic: str, number: int, offset: int) -> bool:
        if number in moved:
            return seek(self, of, topic, number, offset)
        done = seek(self, of, topic, number, 1_000_000)
        moved.update({number} if done else ())
        return done

    monkeypatch.setattr(Clients, "seek", seek_too_far)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(100))
    with events.running(table):
        wait_for(table, 100)
    assert moved == {0, 1}
    assert table.stream(events.name).audit().problems == ()
