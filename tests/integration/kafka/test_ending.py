"""A process of a sink that is told to go ends soon, whatever it does at that moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from plait import Table
from plait.kafka.sources import SourcePartition
from plait.kafka.task import SinkTask
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for

pytestmark = pytest.mark.kafka

SOON_S = 5
PATIENCE_S = 20


def test_a_coordinator_gives_up_partitions_in_the_middle_of_a_checkpoint(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    """The checkpoint waits for writers that only the waiting thread can serve."""
    events = make_events(2)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(100))
    settings = replace(events.settings, interval_s=0.2, patience_s=PATIENCE_S)
    task = SinkTask(table, settings)
    sources = [SourcePartition(events.name, number) for number in range(2)]
    task.open(sources)
    while any(task.wanted(source) is None for source in sources):
        task.poll()
        time.sleep(0.05)
    consumer = events.clients.consumer()
    consumer.assign([events.clients.place(*sources[0], 0)])
    task.begin(sources[0], task.wanted(sources[0]))
    task.put(consumer.consume(10, WAIT_S))
    consumer.close()
    time.sleep(1)  # nobody polls, so the checkpoint has begun, and waits
    began = time.monotonic()
    task.close(sources)
    assert time.monotonic() < began + SOON_S
    task.close()


def test_a_coordinator_that_is_told_to_go_ends_soon_while_others_go_on(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(2)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    changes = {"interval_s": 0.2, "patience_s": PATIENCE_S}
    with producing(events) as sent:
        process = events.running(table, **changes)
        process.__enter__()
        for _ in range(4):
            other = events.running(table, **changes)
            other.__enter__()
            time.sleep(2)
            began = time.monotonic()
            process.__exit__(None, None, None)
            took, process = time.monotonic() - began, other
            assert took < SOON_S
    wait_for(table, len(sent))
    process.__exit__(None, None, None)
    assert table.stream(events.name).audit().problems == ()


@contextmanager
def producing(events: Events) -> Iterator[list[int]]:
    """Produce rows until the block ends; yield what was sent."""
    stop, sent = threading.Event(), []

    def produce() -> None:
        while not stop.wait(0.05):
            ids = range(len(sent), len(sent) + 20)
            events.produce({"id": number, "note": "a"} for number in ids)
            sent.extend(ids)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()
