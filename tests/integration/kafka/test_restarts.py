"""A broker that is killed and comes back while it is asked for something."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from plait import Table
from plait.kafka import client, membership
from plait.kafka.client import Clients
from plait.kafka.membership import may_join
from plait.kafka.sink import KafkaSink
from tests.integration.kafka.conftest import WAIT_S, Events, at_work, wait_for
from tests.services.kafka import Kafka

pytestmark = pytest.mark.kafka

_ASKING = 4
"""So many threads ask for each thing without a pause, so that some wait when the broker goes."""
_HEAD_START_S = 0.5
"""So long a sink runs before the broker begins to come back."""


@contextmanager
def killed(kafka: Kafka) -> Iterator[None]:
    """Kill the broker, and let it come back whatever happens."""
    kafka.kill()
    try:
        yield
    finally:
        kafka.restart()


@pytest.fixture
def events(make_events: Callable[..., Events]) -> Events:
    return make_events(1)


def test_what_a_sink_asks_for_is_asked_again_if_the_broker_restarts(
    kafka: Kafka, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that starts while a broker restarts would end with an error otherwise.

    A question waits for longer than a broker takes to start on a machine that does other work.
    """
    for module in (client, membership):
        monkeypatch.setattr(module, "ASK_S", WAIT_S)
    monkeypatch.setattr(client, "_TRIES", 12)  # so the first request, if it is lost, costs 10 s
    clients, restarted, asked = events.clients, threading.Event(), Counter[str]()
    stranger = stranger_of(kafka)
    requests: dict[str, Callable[[], object]] = {
        "find": lambda: clients.find_topics([events.name]),
        "make": lambda: clients.make_topic(f"{events.name}-new", settings={}, dry_run=True),
        "join": lambda: may_join(stranger, events.name, events.name),
    }
    answers = {name: request() for name, request in requests.items()}
    assert answers["join"] is False, "whoever hears nothing would be told that they may"

    def ask(name: str) -> None:
        while not restarted.is_set():
            since = time.monotonic()
            answer = requests[name]()
            unanswered = name == "join" and time.monotonic() - since >= WAIT_S  # then it may
            assert unanswered or answer == answers[name]
            asked[name] += 1

    with ThreadPoolExecutor(_ASKING * len(requests)) as threads:
        asking = [threads.submit(ask, name) for name in requests for _ in range(_ASKING)]
        try:
            deadline = time.monotonic() + WAIT_S
            while len(asked) < len(requests):
                assert time.monotonic() < deadline, "nothing is answered"
                time.sleep(0.01)
            with killed(kafka):
                pass
        finally:
            restarted.set()
        for each in asking:
            each.result(3 * WAIT_S)


def test_a_new_cluster_tells_who_may_join_a_group_from_the_first_question_on(
    tmp_path: Path,
) -> None:
    """It makes the topic of the groups then; a right that is lacking would not be named."""
    with Kafka(tmp_path / "broker") as new, ThreadPoolExecutor(_ASKING) as threads:
        members, strangers = (
            [threads.submit(may_join, clients, "sink", "events") for _ in range(_ASKING)]
            for clients in (Clients(new.bootstrap, {"log_level": "0"}), stranger_of(new))
        )
        assert all(each.result(WAIT_S) for each in members)
        assert not any(each.result(WAIT_S) for each in strangers)


def stranger_of(kafka: Kafka) -> Clients:
    """Return the clients of a user without any right."""
    bootstrap, login = kafka.limited
    return Clients(bootstrap, {"log_level": "0", **login})


def test_a_sink_that_starts_while_the_broker_is_away_begins_when_it_is_back(
    kafka: Kafka, events: Events, tmp_path: Path
) -> None:
    """INV-09: every record is there once."""
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(100))
    with ExitStack() as sinks:
        with killed(kafka):
            sinks.enter_context(at_work(lambda: KafkaSink(table, events.settings)))
            time.sleep(_HEAD_START_S)
        wait_for(table, 100)
    assert ids_of(table) == list(range(100))


def ids_of(table: Table) -> list[int]:
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())


def test_a_process_that_does_not_get_into_the_group_joins_anew(
    kafka: Kafka,
    events: Events,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The library may wait for minutes for an answer of a broker that went away while it joined."""
    monkeypatch.setattr("plait.kafka.member._JOIN_S", 1.0)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce({"id": number, "note": "a"} for number in range(100))
    sink = KafkaSink(table, events.settings)
    with ExitStack() as sinks:
        with killed(kafka):
            sinks.enter_context(at_work(lambda: sink))
            deadline = time.monotonic() + WAIT_S
            while not any("the group is joined anew" in each for each in caplog.messages):
                assert time.monotonic() < deadline, "it waits for an answer"
                time.sleep(0.05)
        wait_for(table, 100)
    assert ids_of(table) == list(range(100))
