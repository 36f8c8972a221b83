"""Hostile messages to both ends of a stream: what they may do is bounded.

Each case takes a message of the right form, puts values into it that its schema has reason to
refuse, or values at the bounds that it allows, and seals it again. A coordinator or a writer hears
it in the middle of its work. Then only an error of Plait may come out, after a bounded number of
calls and with a bounded number of messages in answer, and the table is whole.
"""

from __future__ import annotations

import argparse
import base64
import collections
import json
import logging
import random
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from plait import Table
from plait.errors import TableError
from plait.model.changes import WriteStatus
from plait.stream import messages
from plait.stream.message_schema import KINDS, SCHEMA
from plait.stream.messages import TURNS_MAX, EncodedMessage
from plait.stream.participant import Participant
from plait.stream.transport import Endpoint, Hub
from tests.support.later import Later
from tests.support.memory import forget
from tests.support.steps import OutOfStepsError, at_most

STEPS = 150_000
"""Calls that one message may cause, with a commit that follows it: some five times what one does.
There is one more for each byte of the message."""
ANSWERS = 2 * TURNS_MAX + 20
TO_WRITERS = ("START-COMMIT", "END-COMMIT", "ACK-COMMIT")
LATER = "99980101000000000-0123456789abcdef"
VALUES: tuple[object, ...] = (
    None, True, False, -1, 0, 1, 2**31 - 1, 2**31, 2**50, 2**53, 2**62, 2**63, 2**64 - 1, 2**64,
    10**30, 1.5, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "\0", "é" * 9,
    LATER, "99991399999999999-0123456789abcdef", "00000000000000000-0123456789abcdef",
    "../../etc/passwd", "/etc/passwd", ".meta/table.json", "data/../x", "a" * 1024, "a" * 100_000,
    "9" * 5_000, "9" * 5_000 + "@x", [], [[]], [None], ["../x"], ["data/x"] * 9, {}, {"": ""},
    {"a": 1}, {"w": None}, {"w": []}, {"w": {"a": "1"}}, {"s": "x"}, {"s": "-1"}, {"s": ""},
    {"a" * 100_000: "1"}, {"s": "1" * 100_000}, {str(n): "1" for n in range(2_000)},
    base64.b64encode(WriteStatus().to_bytes()).decode(), base64.b64encode(b"x" * 99).decode(),
)  # fmt: skip


class Counting:
    """An end of a transport that counts what is sent from it."""

    def __init__(self, end: Endpoint) -> None:
        self._end, self.sent = end, 0

    def send(self, message: EncodedMessage) -> None:
        self.sent += 1
        self._end.send(message)

    def receive(self, wait_s: float) -> bytes | None:
        return self._end.receive(wait_s)


class Ends:
    """A coordinator, a writer of it that is real, and the way of their messages."""

    def __init__(self, name: str) -> None:
        self.uri = name
        self.table = Table.create(name, "id bigint", properties={"write.buffer.size": "64KiB"})
        self.stream = self.table.stream("app")
        self.hub = Hub()
        self.ends = Counting(self.hub.coordinator()), Counting(self.hub.writer())
        self.coordinator = self.stream.coordinator(self.ends[0], "append")
        self.coordinator.start()
        self.writer = Participant(self.table._handle, "app", self.ends[1], "w", flushing=Later)
        for _ in range(3):
            self.work(commits=False)

    def work(self, *, commits: bool) -> None:
        """Let both hear what came, and go on; each goes on although the other one fails."""
        errors = list[TableError]()
        for act in (self._write, self._coordinate if commits else self.coordinator.poll):
            try:
                act()
            except TableError as error:
                errors.append(error)
        for error in errors:
            raise error

    def _write(self) -> None:
        self.writer.poll()
        self.writer.settle()
        if self.writer.ready:
            start = self.writer.offset("s")
            end = str(int(start or 0) + 1) if (start or "0").isdigit() else "1"
            self.writer.write(pa.table({"id": [1]}), source="s", start=start, end=end)

    def _coordinate(self) -> None:
        self.coordinator.checkpoint(wait_s=0)
        self.writer.poll()
        self.writer.settle()
        self.coordinator.complete()

    def answers(self) -> int:
        """Return how many messages were sent since the last time."""
        found = sum(each.sent for each in self.ends)
        for each in self.ends:
            each.sent = 0
        return found

    def close(self) -> None:
        self.writer.close()
        self.coordinator.close()


class Fuzzing:
    """Cases, one after the other, each by its seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.seed, self.number = seed, 0
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        self.ends = self._fresh()

    def _fresh(self) -> Ends:
        self.number += 1
        return Ends(f"memory://hostile-messages-{self.seed}-{self.number}")

    def run(self, cases: int) -> None:
        """Run some cases."""
        for _ in range(cases):
            self._case()
        self._end()

    def _case(self) -> None:
        ends = self.ends
        ends.answers()
        kind = self.draw.choice(KINDS)
        body, fields = self._body(kind)
        told = f"seed {self.seed}: {kind} { ({name: body.get(name) for name in fields})!r:.300}"
        try:
            sent = sealed(kind, body)
        except (TypeError, ValueError):
            return
        to = ends.hub.coordinator() if kind in TO_WRITERS else ends.hub.writer()
        to.send(sent)
        if kind in TO_WRITERS:  # a coordinator hears what others send
            ends.hub.writer().send(sent)
        try:
            with at_most(STEPS + len(sent)):
                ends.work(commits=self.draw.random() < 0.3)
        except TableError as error:
            outcome = type(error).__name__
        except OutOfStepsError:
            outcome = "failed"
            self.failures.append(f"too many calls: {told}")
        except Exception as error:  # noqa: BLE001 - it is what this looks for
            outcome = "failed"
            self.failures.append(f"{type(error).__name__}: {error}: {told}")
        else:
            outcome = "went on"
        if ends.answers() > ANSWERS:
            self.failures.append(f"too many messages: {told}")
        self.counts[f"{kind}: {outcome}"] += 1
        if ends.coordinator._closed or outcome == "failed" or self.draw.random() < 0.02:
            self._end()
            self.ends = self._fresh()

    def _end(self) -> None:
        """Close both ends; the table is whole."""
        try:
            self.ends.close()
        except TableError:
            pass
        except Exception as error:  # noqa: BLE001 - it is what this looks for
            self.failures.append(f"close: {type(error).__name__}: {error}: seed {self.seed}")
        table = Table.open(self.ends.uri)
        table.scan().to_arrow()
        problems = (*table.check.verify().problems, *table.stream("app").audit().problems)
        self.failures += [f"the table: {each}: seed {self.seed}" for each in problems]
        forget(self.ends.uri)

    def _body(self, kind: str) -> tuple[dict[str, Any], list[str]]:
        """Make a message of a kind that fits the moment, with some values that do not."""
        ends, draw = self.ends, self.draw
        turn, life = ends.coordinator._group.turns[-1].turn, ends.writer._life
        every: dict[str, Any] = {
            "table": turn.table,
            "session": draw.choice([turn.session, turn.session, LATER]),
            "number": turn.number + draw.choice([0, 0, 1, -1, 50, 2**30]),
            "instant": str(turn.instant),
            "operation": "append",
            "schema_id": 0,
            "bucket_spec_id": turn.bucket_spec_id,
            "decided": turn.decided,
            "offsets": dict(turn.offsets),
            "reset": kind == "START-COMMIT",
            "lives": draw.choice([dict(turn.lives), {"w": life}]),
            "revision": turn.revision,
            "writer": "w", "life": life,
            "starts": {"s": turn.offsets.get("s", "")}, "ends": {"s": "7"},
            "rows": 1, "hash": 1, "flushes": 1, "runs": [], "status": "", "error": "", "file": "",
            "file_hash": "", "bytes": 1, "moved": True, "urgent": False,
        }  # fmt: skip
        body = {name: every[name] for name in SCHEMA["$defs"][kind]["properties"]}
        fields = draw.sample(sorted(body), draw.choice([0, 1, 1, 1, 2, 3]))
        for name in fields:
            body[name] = draw.choice(VALUES)
        if draw.random() < 0.05:
            body["other"] = 1
        if draw.random() < 0.05:
            del body[draw.choice(sorted(body))]
        return body, fields


def sealed(kind: str, body: object) -> bytes:
    """Write a message as a sender would that does not look at what it sends."""
    envelope = {
        "version": 1, "kind": kind, "body": body, "check": messages._check(kind, body),
    }  # fmt: skip
    return json.dumps(envelope).encode()


def lines(fuzzing: Fuzzing) -> Iterator[str]:
    """Say what became of the cases."""
    yield from (f"{count:8,} {name}" for name, count in sorted(fuzzing.counts.items()))
    yield f"{fuzzing.counts.total():,} hostile messages, {len(fuzzing.failures)} failures"


def main() -> int:
    """Run some cases; give 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    logging.disable(logging.CRITICAL)
    fuzzing = Fuzzing(wanted.seed)
    fuzzing.run(wanted.cases)
    for line in (*fuzzing.failures[:50], *lines(fuzzing)):
        print(line)
    return 1 if fuzzing.failures else 0


if __name__ == "__main__":
    sys.exit(main())
