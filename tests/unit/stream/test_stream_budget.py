"""What a commit of several writers costs: messages and storage calls, by the number of writers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table
from plait.state.cache import StateCache
from plait.stream.coordinator import Coordinator
from plait.stream.messages import ACK, END, PROGRESS, STATUS, kind_of, understood
from plait.stream.participant import Participant
from plait.stream.transport import Endpoint, Hub
from plait.testing import CountingStore, open_wrapped
from plait.testing.ports import ManualBackground, SimClock, sim_ports

WRITERS = (1, 4, 16)


@dataclass
class Counted:
    """An end that counts what is sent."""

    inner: Endpoint
    sent: Counter[str] = field(default_factory=Counter)

    def send(self, message: bytes) -> None:
        self.sent[kind_of(understood(message))] += 1
        self.inner.send(message)

    def receive(self, wait_s: float) -> bytes | None:
        return self.inner.receive(wait_s)


@dataclass
class Running:
    """A coordinator with writers, each with a store of its own as in a process of its own."""

    coordinator: Coordinator
    writers: dict[str, Participant]
    sent: Counter[str]
    stores: list[CountingStore]

    def commit(self) -> None:
        for name, writer in self.writers.items():
            start = int(writer.offset(name) or 0)
            rows = pa.table({"id": range(start, start + 3)})
            writer.write(rows, source=name, start=writer.offset(name), end=str(start + 3))
        self.coordinator.checkpoint(wait_s=0)
        for writer in self.writers.values():
            writer.poll()
            writer.settle()
        assert self.coordinator.complete() is not None


def still(uri: str) -> tuple[Table, CountingStore]:
    """Open a table whose clock stands still: nothing is sent or looked at because time went by."""
    opened, store = open_wrapped(uri, CountingStore)
    ports = sim_ports(clock=SimClock(), background=ManualBackground())
    return Table(replace(opened._handle, ports=ports, cache=StateCache(store, ports))), store


def start(place: Path, count: int, *, keyed: bool) -> Running:
    uri, sent, hub = str(place / f"t{count}"), Counter[str](), Hub()
    Table.create(uri, "id bigint", record_key=["id"] if keyed else [], buckets=4 if keyed else None)
    table, store = still(uri)
    coordinator = table.stream("app").coordinator(
        Counted(hub.coordinator(), sent), "upsert" if keyed else "append"
    )
    coordinator.start()
    stores, writers = [store], {}
    for number in range(count):
        own, its = still(uri)
        end = Counted(hub.writer(), sent)
        writers[f"w{number}"] = own.stream("app").participant(end, f"w{number}")
        stores.append(its)
    for _ in range(2):
        for writer in writers.values():
            writer.poll()
        coordinator.poll()
    return Running(coordinator, writers, sent, stores)


COORDINATOR = {"find": 9, "put": 1, "list": 5, "put_if_absent": 1, "delete": 2}
"""The next instant, the slot, the records removed; two looks for a coordinator that is newer.
Each look at the head, and the slot, is followed by one whether it is the same table."""
WRITER = {"find": 3}
"""The table's head when a turn begins, and before its first file the record of its instant."""


@pytest.mark.parametrize("keyed", [False, True])
def test_a_commit_costs_one_message_a_writer_and_no_more_calls_of_metadata(
    tmp_path: Path, *, keyed: bool
) -> None:
    """Progress apart: a writer tells it five times a second at most."""
    for count in WRITERS:
        running = start(tmp_path, count, keyed=keyed)
        for _ in range(3):
            running.commit()
        running.sent.clear()
        for store in running.stores:
            store.reset()
        running.commit()
        del running.sent[PROGRESS]
        assert running.sent == Counter({END: 1, ACK: 1, STATUS: count})
        coordinator, *writers = running.stores
        assert coordinator.counts("metadata") == COORDINATOR
        assert [each.counts("metadata") for each in writers] == [WRITER] * count
        runs = {"open_input": 6 + count, "open_output": 3, "persist": 1}
        assert coordinator.counts("data") == (runs if keyed else {})
        running.coordinator.close()
        for writer in running.writers.values():
            writer.close()
