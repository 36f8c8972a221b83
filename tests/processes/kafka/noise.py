"""Damages a control topic: what no sink has sent, and copies of what it sent long ago.

    python -m tests.processes.kafka.noise BOOTSTRAP CONTROL --seed 1 --rate 5

Keeps a sample of everything that was on the topic, and sends at random: bytes that are no message,
cut and changed copies, messages of another version or sink or kind, and whole copies, early or
late. Prints what it sent when SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
from collections import Counter

from confluent_kafka import Consumer, Message, Producer

from plait.kafka.client import Clients
from plait.stream.messages import _check

KEPT = 5_000
_READ_S = 0.02


class Noise:
    """One that sends to a control topic what does not belong there."""

    def __init__(self, clients: Clients, topic: str, seed: int) -> None:
        self._topic, self._draw = topic, random.Random(seed)
        clients.make_topic(topic, settings={})
        self._producer: Producer = clients.producer()
        self._consumer: Consumer = clients.consumer()
        self._consumer.assign([clients.place(topic, 0, 0)])
        self._kept: list[Message] = []
        self.sent: Counter[str] = Counter()

    def hear(self) -> None:
        """Keep what came; of too much, a sample of all times."""
        for message in self._consumer.consume(500, _READ_S):
            if message.error() is None and message.value():
                if len(self._kept) < KEPT:
                    self._kept.append(message)
                else:
                    self._kept[self._draw.randrange(KEPT)] = message

    def disturb(self) -> None:
        """Send one thing."""
        if not self._kept:
            return
        message = self._draw.choice(self._kept)
        body, headers = message.value() or b"", list(message.headers() or [])
        key = message.key()
        kind = self._draw.choice(
            ("bytes", "cut", "changed", "version", "sink", "kind", "header", *("repeated",) * 5)
        )
        if kind == "bytes":
            body = self._draw.randbytes(self._draw.randrange(2_000))
        elif kind == "cut":
            body = body[: self._draw.randrange(len(body))]
        elif kind == "changed":
            at = self._draw.randrange(len(body))
            body = body[:at] + bytes([body[at] ^ 1 << self._draw.randrange(8)]) + body[at + 1 :]
        elif kind == "sink":
            key = b"another/" + (key or b"").rpartition(b"/")[2]
        elif kind == "header":
            headers = [("kind", self._draw.choice([b"ACK-COMMIT", b"HELLO", b"", b"\xff"]))]
        elif kind != "repeated":
            body = _with(body, kind)
        self._producer.produce(self._topic, body, key, partition=0, headers=headers)
        self._producer.poll(0)
        self.sent[kind] += 1

    def close(self) -> None:
        """Send what is not sent yet."""
        self._producer.flush(5)
        self._consumer.close()


def _with(body: bytes, field: str) -> bytes:
    """Return a message whose hash is right, but which has another version or kind."""
    try:
        envelope = json.loads(body)
        envelope["check"] = _check(envelope["kind"], envelope["body"])
    except (ValueError, KeyError, TypeError):
        return body
    if field == "version":
        return json.dumps({**envelope, "version": 2}).encode()
    told = {**envelope, "kind": "MOOD"}
    return json.dumps({**told, "check": _check("MOOD", told["body"])}).encode()


def main() -> int:
    """Disturb until SIGTERM."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("bootstrap")
    parser.add_argument("control")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=5, help="messages in a second")
    asked = parser.parse_args()
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    noise = Noise(Clients(asked.bootstrap, {"log_level": "0"}), asked.control, asked.seed)
    draw = random.Random(asked.seed)
    while not ended:
        noise.hear()
        if draw.random() < asked.rate * _READ_S:
            noise.disturb()
    noise.close()
    sys.stdout.write(json.dumps(noise.sent) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
