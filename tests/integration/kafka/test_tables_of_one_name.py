"""A table that comes to a name which another one has is refused, and takes nothing from it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plait import StreamError, Table
from plait.kafka.sink import KafkaSink
from plait.testing.expect import refused
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for

pytestmark = pytest.mark.kafka


def tables_at(place: Path) -> list[Table]:
    return [Table.create(str(place / name), "id bigint, note string") for name in ("old", "new")]


@pytest.mark.long(1)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_newcomer_is_refused_and_the_table_that_has_the_name_goes_on(
    make_events: Callable[..., Events], tmp_path: Path, partitions: int
) -> None:
    """With one partition it would wait without a word; with more it would take some."""
    events = make_events(partitions)
    old, new = tables_at(tmp_path)
    events.produce({"id": number, "note": "a"} for number in range(100))
    with events.running(old) as ended:
        wait_for(old, 100)
        version = new.version
        for _ in range(2):  # the second time nothing but the answer is new on the topic
            with refused(StreamError) as refusal:
                KafkaSink(new, events.settings)
            facts = refusal.error.to_dict()
            assert "is used by another table" in str(refusal.error)
            assert "--name" in (refusal.error.hint or "")
            assert facts["error"]
        events.produce({"id": number, "note": "b"} for number in range(100, 200))
        wait_for(old, 200)
        assert not ended.is_set()
        with events.running(new, name=f"{events.name}-new"):
            wait_for(new, 200)
    assert new.version > version
    assert old.stream(events.name).audit().problems == ()


def test_of_two_tables_that_come_at_once_one_has_the_name(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(2)
    both = tables_at(tmp_path)
    events.clients.make_topic(f"{events.name}-control", settings={})
    events.produce({"id": number, "note": "a"} for number in range(100))
    made: list[KafkaSink] = []
    errors: list[StreamError] = []
    begin = threading.Barrier(2)

    def come(table: Table) -> None:
        begin.wait(WAIT_S)
        try:
            made.append(KafkaSink(table, events.settings))
        except StreamError as error:
            errors.append(error)

    threads = [threading.Thread(target=come, args=(table,)) for table in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert (len(made), len(errors)) == (1, 1)
    winner = made[0]
    winner.close()
    with events.running(winner.table):
        wait_for(winner.table, 100)


def test_a_name_is_free_once_its_processes_have_ended(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    old, new = tables_at(tmp_path)
    events.produce({"id": number, "note": "a"} for number in range(10))
    for table in (old, new):
        with events.running(table):
            wait_for(table, 10)
    settings = replace(events.settings, control=events.settings.control)
    KafkaSink(old, settings).close()
