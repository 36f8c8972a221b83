"""Records of work under way that were damaged: nobody's files go, and nothing looks better.

Every bit of every record is flipped, and it is cut, emptied, and exchanged with another one.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from plait import Table
from plait.model.instant import Instant
from plait.model.sink_ledger import Attempt, SinkPosition
from plait.ports import Ports
from plait.replicate import Replicas
from plait.replicate.repair import repair
from plait.replicate.status import status
from plait.storage.memory import MemoryStore
from plait.testing import SeqIds, SimClock, sim_ports
from plait.timeline import paths
from plait.timeline.pending import load_pending, write_inflight
from plait.timeline.replica_records import (
    load_attempts,
    load_positions,
    write_attempt,
    write_position,
)
from plait.txn.read_pin import load_read_pins
from plait.txn.recovery import roll_back_failed
from plait.txn.table_handle import open_handle
from tests.support.build import LITTLE, rows
from tests.support.effort import MORE
from tests.support.memory import forget
from tests.support.sinks import KeyValueSink, fresh

NOTHING: Final = {**LITTLE, "checkpoint.interval": "4"}
EACH: Final = 200 if MORE else 6
"""So many damages of each kind of record are judged by a whole table."""


def damages(body: bytes, others: list[bytes]) -> Iterator[bytes]:
    """Yield what a record may become: each bit flipped, each end, and what other records are."""
    for at, bit in itertools.product(range(len(body)), range(8)):
        yield body[:at] + bytes([body[at] ^ (1 << bit)]) + body[at + 1 :]
    yield from (body[:size] for size in range(len(body)))
    yield from others


@dataclass
class Work:
    """A table with a reader, a writer, a sink that is ahead and one that was compared."""

    uri: str

    def __post_init__(self) -> None:
        forget(self.uri)
        self.clock, self.ids = SimClock(), SeqIds("d1")
        self.store = MemoryStore(self.uri, clock=self.clock)
        Table.create(
            self.uri, "id bigint, v bigint", record_key="id", buckets=1, properties=NOTHING
        )
        self.sink: KeyValueSink = fresh("eu")
        table = self.client()
        table.upsert(rows(range(4), v=0))
        repair(table, self.sink)
        self.reader = self.client().scan()
        self.older = self.client().scan(version=1)
        self.writer = self.client().writer("upsert")
        self.writer.__enter__()
        self.writer.write(rows(range(10, 14), v=1))
        self.other = self.client().writer("upsert")
        self.other.__enter__()
        for each in (self.writer, self.other):
            write_inflight(self.store, each.instant, [()], attempt="t1")
        write_attempt(self.store, Attempt(Instant.at(5, "5" * 16), ("eu",), 1, "host", 1))
        write_attempt(self.store, Attempt(Instant.at(6, "6" * 16), ("us",), 1, "host", 1, "3-17"))
        for number in range(3):
            with table.writer("upsert", replicas=Replicas([self.sink])) as writer:
                writer.write(rows(range(4), v=number))
        write_position(self.store, SinkPosition("eu", 2, 0, (table.inspect.history()[1].instant,)))

    def client(self) -> Table:
        self.clock.advance(0.001)
        return Table(open_handle(self.store, self.ports()))

    def ports(self) -> Ports:
        return sim_ports(clock=self.clock, ids=self.ids)

    def records(self) -> dict[str, dict[str, bytes]]:
        """Return the bytes of all records by kind and path."""
        found: dict[str, dict[str, bytes]] = {}
        for info in self.store.list(paths.META):
            kind = info.path.split("/")[1]
            if kind == "pending":
                kind = "requested" if info.path.endswith(".requested") else "inflight"
            if kind == "replicas":
                kind = info.path.split("/")[2]
            if kind in KINDS:
                found.setdefault(kind, {})[info.path] = self.store.find(info.path) or b""
        return found

    def place(self, path: str, body: bytes) -> None:
        """Put bytes there, with the time that the file has."""
        with self.store._space.mutex:
            self.store._space.files[path] = (body, self.store._space.files[path][1])

    def go_on(self) -> None:
        """Clean, end what is dead, and let reader and writer go on."""
        before = {row["id"]: row["v"] for row in self.client().scan().to_arrow().to_pylist()}
        for _ in range(2):
            self.clock.advance(1)
            roll_back_failed(self.client()._handle, reason="test")
            self.client().maintenance.clean()
        assert self.reader.to_arrow()["v"].to_pylist() == [0] * 4
        assert self.older.to_arrow()["v"].to_pylist() == [0] * 4
        assert not self.in_step("eu")
        self.writer.__exit__(None, None, None)
        shown = {row["id"]: row["v"] for row in self.client().scan().to_arrow().to_pylist()}
        assert shown == before | dict.fromkeys(range(10, 14), 1)
        assert self.client().check.verify().problems == ()

    def in_step(self, sink: str) -> bool:
        return next(each.in_step for each in status(self.client()) if each.sink == sink)


KINDS: Final = ("leases", "requested", "inflight", "attempts", "positions")


@pytest.fixture(scope="module")
def work() -> Work:
    return Work("memory://damaged-records")


def careful(work: Work, kind: str, path: str) -> bool:
    """Tell whether a record counts as the most careful reading of its name."""
    if kind == "leases":
        pin = next(each for each in load_read_pins(work.client()._handle) if each.path == path)
        return pin.version == 0 and not pin.expired
    if kind in ("requested", "inflight"):
        instant = paths.record_of(path)
        entry = next(each for each in load_pending(work.store) if each.instant == instant)
        doubtful = (entry.v0, entry.process, entry.features, entry.writer, entry.timeout_s)
        return kind == "inflight" or doubtful == (0, "", (), "", 0.0)
    if kind == "attempts":
        attempt = next(
            a for a in load_attempts(work.store) if paths.attempt(a.instant, a.task) == path
        )
        return attempt.sinks == ()
    return next(
        each for each in load_positions(work.store) if paths.position(each.sink) == path
    ).lost


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_was_changed_in_any_way_counts_as_the_most_careful_reading(
    work: Work, kind: str
) -> None:
    """INV-05, INV-06."""
    found = work.records()[kind]
    path, body = next(iter(found.items()))
    others = [each for each in found.values() if each != body]
    others += [each for some in work.records().values() for each in some.values() if each != body]
    count = 0
    for damaged in damages(body, others):
        work.place(path, damaged)
        assert careful(work, kind, path), damaged
        count += 1
    noted = {note.path for note in work.client().check.verify().notes}
    assert path in noted
    work.place(path, body)
    assert count > 8 * len(body)
    assert kind == "inflight" or not careful(work, kind, path)


@pytest.mark.long(3)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_somebody_at_work_needs_goes_with_a_damaged_record(kind: str) -> None:
    """INV-05, INV-06: nor does the status of a sink get better."""
    draw = random.Random(kind)
    for number in range(EACH):
        work = Work("memory://damaged-record")
        found = work.records()
        path = draw.choice(sorted(found[kind]))
        body = found[kind][path]
        others = [each for each in found[kind].values() if each != body]
        work.place(path, draw.choice(list(damages(body, others)) + 200 * others))
        work.go_on()
        assert number < EACH


def test_a_damaged_attempt_shows_at_every_sink_until_each_was_compared() -> None:
    work = Work("memory://damaged-attempt")
    table = work.client()
    repair(table, work.sink)
    assert work.in_step("eu")
    path = paths.attempt(Instant.at(5, "5" * 16))
    write_attempt(work.store, Attempt(Instant.at(5, "5" * 16), ("us",), 1, "host", 1))
    assert work.in_step("eu")
    work.place(path, (work.store.find(path) or b"")[:-1])
    assert not work.in_step("eu")
    assert not work.in_step("us")
    repair(table, work.sink)
    assert work.in_step("eu")
    assert not work.in_step("us")


def test_a_damaged_position_leaves_the_sink_behind_until_it_was_compared() -> None:
    work = Work("memory://damaged-position")
    repair(work.client(), work.sink)
    path = paths.position("eu")
    work.place(path, (work.store.find(path) or b"")[:-1])
    (found,) = [each for each in status(work.client()) if each.sink == "eu"]
    assert found.compared_at is None
    assert found.behind == (1, 2, 3, 4)
    repair(work.client(), work.sink)
    assert work.in_step("eu")
