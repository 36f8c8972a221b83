"""A process of a sink that is told to go ends soon, whatever it does at that moment."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plait import Table
from plait.kafka.client import ASK_S
from plait.kafka.sources import SourcePartition
from plait.kafka.task import SinkTask
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for
from tests.services.ports import free_port

pytestmark = pytest.mark.kafka

PATIENCE_S = 300
SOON_S = PATIENCE_S / 2
"""However slow the machine is, nobody has waited for as long as the sink is patient."""


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
        for _ in range(2):
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


def test_processes_that_are_told_to_go_finish_the_epoch_and_exit_with_0(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    """No commit falls due in this time, so each commit is one that a process asked for."""
    events, uri = make_events(4), str(tmp_path / "t")
    table = Table.create(uri, "id bigint, note string")
    with SinkProcess(events, uri) as first, SinkProcess(events, uri) as second:
        wait_until(lambda: first.held() == second.held() == 2)
        events.produce({"id": number, "note": "a"} for number in range(100))
        wait_until(lambda: first.reached() + second.reached() == 100)
        first.terminate()
        assert first.wait() == 0
        assert table.scan().count() == 100
        with SinkProcess(events, uri) as third:
            wait_until(lambda: second.held() == third.held() == 2)
            events.produce({"id": number, "note": "b"} for number in range(100, 200))
            wait_until(lambda: second.reached() + third.reached() == 200)
            second.terminate()
            third.terminate()
            assert [second.wait(), third.wait()] == [0, 0]
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == list(range(200))
    assert table.inspect.writers() == ()
    assert table.stream(events.name).audit().problems == ()


@pytest.mark.long(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_waits_for_brokers_ends_at_once_with_0_when_it_is_told_to(
    tmp_path: Path, number: signal.Signals
) -> None:
    uri = str(tmp_path / "t")
    Table.create(uri, "id bigint")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WAIT_S)
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
        line = [
            sys.executable, "-m", "plait.cli", "sink", "kafka", uri, "--topic", "events",
            "--bootstrap", bootstrap,
        ]  # fmt: skip
        process = subprocess.Popen(line)
        try:
            silent.accept()[0].close()  # it asks; nobody answers
            began = time.monotonic()
            process.send_signal(number)
            assert process.wait(WAIT_S) == 0
            assert time.monotonic() < began + ASK_S, "it waited for as long as brokers may take"
        finally:
            process.kill()
            process.wait()


PROGRAM = """
import os, runpy, signal, sys
number, event, text = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def hear(name, args):
    global number
    if number and name == event and text in "".join(a for a in args if isinstance(a, str)):
        told, number = number, 0
        os.kill(os.getpid(), told)
sys.addaudithook(hear)
sys.argv = ["tablectl", *sys.argv[4:]]
runpy.run_module("plait.cli", run_name="__main__")
"""
"""Runs ``tablectl``, and sends itself a signal at the first event of a kind in the interpreter."""
PHASES = (
    ("import", "plait.cli.main"),
    ("import", "plait.cli.commands.sink"),
    ("import", "numpy"),
    ("import", "pyarrow"),
    ("open", "table.json"),
    ("os.listdir", "timeline"),
    ("import", "confluent_kafka"),
    ("import", "plait.kafka.monitoring"),
    ("open", "pending"),
)


@pytest.mark.long(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_go_while_it_starts_ends_with_0(
    make_events: Callable[..., Events], tmp_path: Path, number: signal.Signals
) -> None:
    """In each phase, from the first import of the program until its coordinator begins a turn."""
    events, uri = make_events(1), str(tmp_path / "t")
    table = Table.create(uri, "id bigint, note string")
    events.produce({"id": each, "note": "a"} for each in range(10))
    line = [
        "sink", "kafka", uri, "--topic", events.name, "--bootstrap", events.kafka.bootstrap,
    ]  # fmt: skip
    codes: dict[tuple[str, str], int] = {}
    for event, text in PHASES:
        program = [sys.executable, "-c", PROGRAM, str(int(number)), event, text, *line]
        process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        try:
            codes[event, text] = process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            codes[event, text] = -1  # no such event: the list is stale
        finally:
            process.kill()
            process.wait()
    assert codes == dict.fromkeys(PHASES, 0)
    with events.running(table):
        wait_for(table, 10)
    assert table.stream(events.name).audit().problems == ()


class SinkProcess:
    """A sink in a process of its own, for as long as the block lasts."""

    def __init__(self, events: Events, uri: str) -> None:
        self._port = free_port()
        self._line = [
            sys.executable, "-m", "plait.cli", "sink", "kafka", uri, "--topic", events.name,
            "--bootstrap", events.kafka.bootstrap, "--interval", "3600",
            "--metrics", str(self._port),
        ]  # fmt: skip

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._line, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self._process.wait(WAIT_S)

    def held(self) -> int:
        """Return how many partitions it reads."""
        return len(self._next())

    def reached(self) -> int:
        """Return how many records of its partitions come before those that it reads next.

        The number of records that were put says less: what is read again counts again.
        """
        return int(sum(self._next()))

    def _next(self) -> list[float]:
        return [value for name, value in self._metrics() if name == "plait_sink_offset_next"]

    def _metrics(self) -> list[tuple[str, float]]:
        assert self._process.poll() is None
        try:
            url = f"http://127.0.0.1:{self._port}/metrics"
            with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
                families = list(text_string_to_metric_families(answer.read().decode()))
        except urllib.error.URLError:  # it begins
            return []
        return [(each.name, each.value) for family in families for each in family.samples]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
