"""Which errors of brokers end the process, and after which it asks again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from plait import OptionError, StorageError
from plait.kafka.library import is_transient, require_usable
from plait.kafka.settings import SinkSettings


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "READ on group 'sink'"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "READ on topic 'events'"),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, "other programs are in this group"),
        (KafkaError._FATAL, "start the process again"),
    ],
)
def test_what_is_not_allowed_or_fatal_ends_the_process(code: int, expected: str) -> None:
    with pytest.raises(StorageError, match=expected):
        require_usable(KafkaError(code, "refused"), "sink", "events")


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
    ],
)
def test_what_brokers_refuse_while_they_start_ends_nothing_and_is_asked_again(code: int) -> None:
    require_usable(KafkaError(code, "not yet"), "sink", "events")
    assert is_transient(KafkaError(code, "not yet"))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_an_answer_of_the_brokers_is_taken(code: int) -> None:
    assert not is_transient(KafkaError(code, "no"))
    require_usable(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "gone"), "sink", "events")


@pytest.mark.parametrize("key", ["group.instance.id", "group.protocol"])
def test_settings_of_the_group_that_processes_cannot_share_are_refused(key: str) -> None:
    with pytest.raises(OptionError, match="leave these settings"):
        SinkSettings("localhost:9", ("events",), client={key: "x"})
