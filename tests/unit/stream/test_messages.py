"""Messages as bytes: what docs/spec/messages.md says of them."""

from __future__ import annotations

import json

import pytest

from plait.model.instant import Instant
from plait.stream.messages import (
    Acknowledgement,
    Farewell,
    Hello,
    Message,
    Progress,
    Report,
    Turn,
    decode,
    encode,
    kind_of,
    understood,
)
from tests.compat.test_schemas import check
from tests.unit.stream.test_rough_transport import play

TABLE = "3bc3a691203ab6b9" * 2
INSTANT = Instant.at(1_700_000_000_000, "0" * 16)
SESSION = str(INSTANT)
MESSAGES: tuple[Message, ...] = (
    Turn(TABLE, SESSION, 3, INSTANT, "append", 0, 0, -1, {"s": "1"}, True, {"w": "l"}, 2),
    Turn(TABLE, SESSION, 3, INSTANT, "append", 0, 0, -1, {"s": "1"}, False, {"w": "l"}, 2),
    Report(
        TABLE,
        SESSION,
        "w",
        "l",
        3,
        {"s": "1"},
        {"s": "2"},
        1,
        2**64 - 1,
        1,
        ("data/x",),
        b"\0",
        "no",
    ),
    Report(TABLE, SESSION, "w", "l", 3, file="data/y", file_hash="0" * 32),
    Acknowledgement(TABLE, SESSION, 3, {"s": "2"}),
    Hello(TABLE, "w", "l"),
    Hello(TABLE, "w", "l", SESSION, 3),
    Progress(TABLE, SESSION, "w", "l", 3, 10, 20, moved=True, urgent=True),
    Farewell(TABLE, "w", "l"),
)


@pytest.mark.parametrize("message", MESSAGES, ids=kind_of)
def test_a_message_fits_its_schema_and_comes_back(message: Message) -> None:
    body = encode(message)
    check("messages", json.loads(body))
    assert decode(body) == message
    assert (body.kind, body.number) == (kind_of(message), getattr(message, "number", -1))


def test_every_message_of_a_play_fits_the_schema() -> None:
    sent = play(1, keyed=True, steps=60).topic.sent
    kinds = {json.loads(each)["kind"] for each in sent}
    assert kinds == {kind_of(each) for each in MESSAGES} - {"FAREWELL"}
    for each in sent:
        check("messages", json.loads(each))


@pytest.mark.parametrize("name", ["version", "kind", "check"])
def test_a_message_that_is_not_as_it_was_sent_is_ignored(name: str) -> None:
    envelope = json.loads(encode(MESSAGES[2]))
    for value in (2, "HELLO", "", None):
        other = {**envelope, name: value}
        assert understood(json.dumps(other).encode()) is None
    del envelope[name]
    assert understood(json.dumps(envelope).encode()) is None
