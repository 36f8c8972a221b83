"""Settings of clients and names of topics, checked before anything is asked of a broker."""

from __future__ import annotations

import math
from typing import Any

import pytest

from plait import OptionError
from plait.kafka.client import Clients
from plait.kafka.position import moment_of
from plait.kafka.settings import SinkSettings


@pytest.mark.parametrize("name", ["no.such.setting", "socket.timeout.ms", "error_cb"])
def test_a_wrong_setting_of_the_client_is_an_option_error(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        Clients("127.0.0.1:1", {name: "secret-or-not"}).consumer()


@pytest.mark.parametrize(
    "settings",
    [
        SinkSettings("b:1", ("a", "b")),
        SinkSettings("b:1", ("a",), name="orders/über alles"),
        SinkSettings("b:1", ("a",), name="x" * 500),
    ],
)
def test_the_default_control_topic_has_a_name_that_kafka_takes(settings: SinkSettings) -> None:
    assert len(settings.control) <= 249
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in settings.control)
    other = SinkSettings("b:1", ("a",), name=f"{settings.name}.")
    assert other.control != settings.control


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("dead_letters", {"dead_letters": "events"}),
        ("dead_letters", {"dead_letters": "events-control"}),
        ("dead_letters", {"dead_letters": "dead letters"}),
        ("control", {"control": "a/b"}),
        ("control", {"control": "x" * 250}),
        ("control", {"control": ".."}),
        ("topics", {"topics": ("^events.*",)}),
        ("topics", {"topics": ("events, other",)}),
        ("dead_letter_percent", {"dead_letter_percent": math.nan}),
        ("dead_letter_percent", {"dead_letter_percent": -0.1}),
        ("dead_letter_percent", {"dead_letter_percent": 101}),
        ("interval_s", {"interval_s": math.inf}),
        ("patience_s", {"patience_s": math.inf}),
        ("metrics", {"metrics": "99999"}),
        ("metrics", {"metrics": "localhost"}),
        ("client", {"client": {"transactional.id": "mine"}}),
        ("client", {"client": {"enable.partition.eof": "true"}}),
    ],
)
def test_a_setting_with_which_a_sink_cannot_work_is_refused(
    key: str, changes: dict[str, Any]
) -> None:
    """A sink whose dead letters are its own topic would read them for ever, for example."""
    known: dict[str, Any] = {"bootstrap": "b:1", "topics": ("events",)}
    with pytest.raises(OptionError) as caught:
        SinkSettings(**(known | changes))
    assert caught.value.key == key


@pytest.mark.parametrize("text", ["1960-01-01", "1969-12-31T23:59:59.999Z", "0001-01-01"])
def test_a_time_before_all_records_is_the_first_moment_that_kafka_knows(text: str) -> None:
    """Brokers take -1 for the end, -2 for the beginning, and others for an error."""
    assert moment_of(text) == 0
