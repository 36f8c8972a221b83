"""Settings of clients and names of topics, checked before anything is asked of a broker."""

from __future__ import annotations

import pytest

from plait import OptionError
from plait.kafka.client import Clients
from plait.kafka.settings import SinkSettings


@pytest.mark.parametrize("name", ["no.such.setting", "socket.timeout.ms"])
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
