"""Messages as bytes: what docs/spec/messages.md says of them."""

from __future__ import annotations

import json

import pytest

from plait import CorruptMetadataError
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
from tests.unit.stream.conftest import Make
from tests.unit.stream.test_rough_transport import play

DEEP = b"[" * 100_000

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
    Report(TABLE, SESSION, "w", "l", 3, {"s": ""}, {"s": "2"}, file="data/y", file_hash="0" * 32),
    Report(TABLE, SESSION, "w", "l", 3),
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


def test_what_is_no_message_is_refused() -> None:
    hello = encode(Hello(TABLE, "w", "l"))
    envelope = json.loads(hello)
    changed = [
        {**envelope, name: value}
        for name in ("version", "kind", "check")
        for value in (2, "ACK-COMMIT", "", None)
    ]
    fewer = [{k: v for k, v in envelope.items() if k != name} for name in envelope]
    for body in (
        b"",
        b"[]",
        b'{"version":1,"kind":"HELLO","check":"","body":{}}',
        hello.replace(b'"life":"l"', b'"life":"m"'),
        b'{"version":1,"kind":"END-COMMIT","check":"","body":{"instant":"x"}}',
        DEEP,
        b"\xff",
        *(json.dumps(each).encode() for each in (*changed, *fewer)),
    ):
        with pytest.raises(CorruptMetadataError):
            decode(body)
        assert understood(body) is None


def test_a_damaged_message_counts_as_lost() -> None:
    """Whatever byte is another one: it is passed over, or it is what it was."""
    whole = encode(Report(TABLE, SESSION, "w", "l", 3, {"a": "1"}, {"a": "2"}, 5, 9))
    for at in range(len(whole)):
        for flip in (0x01, 0x10, 0x80):
            body = bytearray(whole)
            body[at] ^= flip
            found = understood(bytes(body))
            assert found is None or found == decode(whole)


def test_what_is_no_message_is_passed_over(make: Make) -> None:
    """Others may write to a topic too."""
    group = make("a")
    group.hub.coordinator().send(b"{}")
    for body in (b"hello?", b'{"kind":"turn","instant":"x"}', DEEP):
        group.hub.writer().send(body)
    group.arrive(a=10)
