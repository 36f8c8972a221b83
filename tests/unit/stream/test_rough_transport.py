"""Epochs over a transport that does anything to messages: every row once (INV-09, INV-11)."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from plait import CoordinatorFencedError, OffsetGapError, StreamError, Table, TransactionClosedError
from plait.definition.create import define_table
from plait.services.verify.foreign import list_foreign, remove_foreign
from plait.stream.coordinator import Coordinator
from plait.stream.participant import Participant
from plait.testing.ports import ManualBackground, SimClock, sim_ports
from plait.txn.table_decisions import create_table
from tests.support.later import Later
from tests.support.memory import forget
from tests.support.protocol import client, memory
from tests.support.rough import RoughEnd, RoughTopic

WRITERS, ROWS, STEPS, CALM_ROUNDS = 3, 20, 60, 60
STEP_S, SETTLES = 0.3, 0.8


SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])


class Play:
    """Writers and coordinators that come, go and are silent, on a rough topic.

    All that happens follows from the seed: the clock, the store's too, is moved by hand, nonces are
    counted, and turns are staged by a call and not in a thread.
    """

    def __init__(self, seed: int, *, keyed: bool) -> None:
        self.draw = np.random.default_rng(seed)
        self.topic = RoughTopic(self.draw)
        self.clock, self.background = SimClock(), ManualBackground()
        self.store = memory(self.clock)
        self.clients = itertools.count(1)
        definition = define_table(
            SCHEMA,
            record_key=("id",) if keyed else (),
            buckets=2 if keyed else None,
            lock="none",
        )
        create_table(self.store, sim_ports(clock=self.clock), definition)
        self.table, self.operation = self.client(), "upsert" if keyed else "append"
        self.writers: dict[str, tuple[RoughEnd, Participant]] = {}
        self.coordinators: list[tuple[RoughEnd, Coordinator]] = []
        for number in range(WRITERS):
            self.join(f"w{number}")
        self.lead()

    def client(self) -> Table:
        """Open the table as one more process."""
        nonces = f"{next(self.clients):04x}"
        return Table(client(self.store, self.clock, nonces=nonces, background=self.background))

    def join(self, name: str) -> None:
        """Have a writer come, in the place of one that is there no more."""
        if name in self.writers:
            end, old = self.writers.pop(name)
            self.topic.ends.remove(end)
            old.close()
        end = self.topic.end()
        handle = self.client()._handle
        self.writers[name] = end, Participant(handle, "app", end, name, flushing=Later)

    def lead(self) -> None:
        """Have a coordinator come, beside those that are there."""
        end = self.topic.end()
        coordinator = self.client().stream("app").coordinator(end, self.operation)
        coordinator.start()
        self.coordinators.append((end, coordinator))

    def step(self) -> None:
        """Let one of the actors do something."""
        self.clock.advance(self.draw.random() * STEP_S)
        self.background.run()
        act = self.draw.random()
        if act < 0.6:
            self.write(*self.one_of(list(self.writers.items())))
        elif act < 0.97:
            self.coordinate()
        elif act < 0.985:
            self.join(self.one_of(list(self.writers)))
        else:
            self.lead()

    def one_of(self, things):
        return things[int(self.draw.integers(len(things)))]

    def write(self, name: str, writer: tuple[RoughEnd, Participant]) -> None:
        participant = writer[1]
        try:
            participant.poll()
            if not self.topic.rough or self.draw.random() < SETTLES:
                participant.settle()
            if not participant.ready:
                return
            start = int(participant.offset(name) or 0)
            stop = min(ROWS, start + int(self.draw.integers(1, 6)))
            base = 1_000 * int(name[1:])
            if stop > start:
                rows = pa.table(
                    {"id": range(base + start, base + stop), "note": ["x"] * (stop - start)}
                )
                participant.write(rows, source=name, start=participant.offset(name), end=str(stop))
        except (OffsetGapError, TransactionClosedError):
            return  # the turn began anew meanwhile
        except StreamError:  # a message from an earlier life came late: begin again
            self.join(name)

    def coordinate(self) -> None:
        at = int(self.draw.integers(len(self.coordinators)))
        end, coordinator = self.coordinators[at]
        try:
            dismisses = self.topic.rough and self.draw.random() < 0.2
            if not coordinator.checkpoint(wait_s=0) and dismisses:
                for name in coordinator.awaited:
                    coordinator.dismiss(name)
            coordinator.complete()
        except CoordinatorFencedError:
            self.coordinators.pop(at)
            self.topic.ends.remove(end)
            if not self.coordinators:
                self.lead()
        except StreamError:
            return  # it has begun anew

    def finish(self) -> None:
        """Let the topic be calm, and every row arrive."""
        self.topic.rough = False
        for _ in range(CALM_ROUNDS):
            self.clock.advance(STEP_S)
            self.background.run()
            for name in list(self.writers):
                self.write(name, self.writers[name])
            self.coordinate()
            if self.table.scan().count() == WRITERS * ROWS:
                break
        for _, coordinator in self.coordinators:
            coordinator.close()
        for _, participant in self.writers.values():
            participant.close()


def play(seed: int, *, keyed: bool, steps: int = STEPS) -> Play:
    """Play a seed to its end, and check what is left."""
    found = Play(seed, keyed=keyed)
    for _ in range(steps):
        found.step()
    found.finish()
    ids = sorted(found.table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    assert ids == [1_000 * w + n for w in range(WRITERS) for n in range(ROWS)]
    assert found.table.stream("app").audit().problems == ()
    assert found.table.check.verify().problems == ()
    assert found.table.inspect.timeline().pending == ()
    assert remove_foreign(found.table._handle, list_foreign(found.table._handle)).kept == ()
    assert found.table.check.verify().notes == ()
    forget(found.store.address.uri)
    return found


@pytest.mark.long(6)
@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_every_row_arrives_once_whatever_happens_to_messages(seed: int, *, keyed: bool) -> None:
    play(seed, keyed=keyed)


def test_a_seed_plays_the_same_each_time() -> None:
    """A failure can be played again: nothing depends on threads or on the time of day."""
    sent = [tuple(play(0, keyed=True, steps=50).topic.sent) for _ in range(2)]
    assert len(sent[0]) > 100
    assert sent[0] == sent[1]
