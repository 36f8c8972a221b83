"""One epoch of a stream of two writers, of which one process dies at one of its steps.

A step is a storage call, or what a process sends: messages of the group commit and, as in the
Kafka sink, dead letters and the group's offsets. All actors are stepped by one thread, so the
steps come in the same order each time. What tests/fault and the crash certificate share.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from plait import Table
from plait.errors import StreamError
from plait.model.words import TableType, WriteOperation
from plait.stream.coordinator import Coordinator
from plait.stream.messages import EncodedMessage
from plait.stream.participant import Participant
from plait.stream.transport import Endpoint, Hub
from plait.testing import (
    CountingStore,
    Fault,
    FaultStore,
    SimulatedCrashError,
    StoreCall,
    open_wrapped,
)
from plait.testing.wrapper import WrappedStore
from tests.support.operations import NEW, OLD, Case, copied, ports, rows

APPLICATION = "sink"
COORDINATOR, WRITER, OTHER = "coordinator", "writer", "other"
_PARTS = {WRITER: sorted(NEW)[:3], OTHER: sorted(NEW)[3:]}
"""The records of each writer's source, oldest first."""
_APPENDED = {WRITER: [10, 11], OTHER: [12, 13]}
_ROUNDS = 30

Step = Callable[[str, str, Callable[[], object]], object]


@dataclass(frozen=True)
class StreamCase:
    """An epoch into a kind of table, and who dies in it."""

    who: str
    keyed: bool
    table_type: TableType = "cow"

    @property
    def table(self) -> Case:
        """What is in the table before and after."""
        after = OLD | NEW if self.keyed else OLD | set(range(10, 14))
        key = ("id",) if self.keyed else ()
        return Case(_nothing, OLD, after, key, self.table_type)

    @property
    def operation(self) -> WriteOperation:
        """How the stream writes."""
        return "upsert" if self.keyed else "append"

    def records(self, source: str) -> list[int]:
        """Return the ids that a source gives."""
        return (_PARTS if self.keyed else _APPENDED)[source]


def _nothing(_: Table) -> None:
    return None


_KINDS: tuple[tuple[str, bool, TableType], ...] = (
    ("append", False, "cow"),
    ("upsert mor", True, "mor"),
)
STREAM_CASES = {
    f"stream {operation}: {who}": StreamCase(who, keyed, table_type)
    for operation, keyed, table_type in _KINDS
    for who in (COORDINATOR, WRITER)
}


@dataclass
class Stepped:
    """An end of the transport whose sends are steps of a process."""

    inner: Endpoint
    step: Step

    def send(self, message: EncodedMessage) -> None:
        """Send a message."""
        self.step("send", message.kind, lambda: self.inner.send(message))

    def receive(self, wait_s: float) -> bytes | None:
        """Return the next message; what has died hears none."""
        return self.inner.receive(wait_s)


@dataclass
class Actors:
    """A coordinator and two writers; each has a client of its own."""

    uri: str
    case: StreamCase
    fault: Fault | None = None
    """How the one dies who is watched."""
    stores: dict[str, WrappedStore] = field(default_factory=dict)
    hub: Hub = field(default_factory=Hub)
    coordinator: Coordinator = field(init=False)
    writers: dict[str, Participant] = field(default_factory=dict)

    def lead(self, nonces: str = "c") -> None:
        """Have a coordinator come."""
        table, step = self._open(COORDINATOR, nonces)
        end = Stepped(self.hub.coordinator(), step)
        self.coordinator = table.stream(APPLICATION).coordinator(end, self.case.operation)
        self.coordinator.start()

    def join(self, source: str, nonces: str) -> None:
        """Have a writer of a source come."""
        table, step = self._open(source, nonces)
        end = Stepped(self.hub.writer(), step)
        self.writers[source] = table.stream(APPLICATION).participant(end, source)

    def meet(self) -> None:
        """Let writers ask for the turn, answer it, and be counted in."""
        for _ in range(3):
            self.hear()
            self.coordinator.poll()
        self.hear()

    def hear(self) -> None:
        """Let writers hear, and finish what they flush before they go on."""
        for writer in self.writers.values():
            writer._thread.shutdown()  # without a thread it flushes at once: one order of steps
            writer.poll()
            writer.settle()

    def take(self) -> None:
        """Let writers take what is next: a record that is none goes to the dead letters."""
        for source, writer in self.writers.items():
            at = int(writer.offset(source) or 0)
            left = self.case.records(source)[at:]
            if not left:
                continue
            self._step_of(source)("send", "dead letter", _unheard)
            end = str(at + len(left))
            writer.write(rows(*left), source=source, start=writer.offset(source), end=end)

    def epoch(self) -> None:
        """End the turn, and commit it."""
        self.coordinator.checkpoint(wait_s=0)
        self.hear()
        self.coordinator.complete()
        self.hear()

    def tell_group(self) -> None:
        """Store the offsets of the table in the group."""
        for source, writer in self.writers.items():
            if writer.committed(source):
                self._step_of(source)("send", "group offsets", _unheard)

    def leave(self) -> None:
        """Let all go."""
        for source in list(self.writers):
            self.writers[source].leave()
            del self.writers[source]
        self.coordinator.close()

    def finish(self) -> None:
        """Go on until everything that the sources have is in the table."""
        for _ in range(_ROUNDS):
            with suppress(StreamError):  # a turn was given up: it begins anew
                self.meet()
                if all(w.committed(s) == self._end(s) for s, w in self.writers.items()):
                    return
                self.take()
                self.epoch()
        message = "the epoch has no end"
        raise AssertionError(message)

    def _end(self, source: str) -> str:
        return str(len(self.case.records(source)))

    def _open(self, name: str, nonces: str) -> tuple[Table, Step]:
        """Open the table for a process; its steps are counted from then on."""
        store: WrappedStore
        if self.fault is not None and name == self.case.who:
            table, faulty = open_wrapped(self.uri, FaultStore, ports=ports(nonces))
            faulty._script.append(self.fault)
            self.fault, store = None, faulty
        else:
            table, counting = open_wrapped(self.uri, CountingStore, ports=ports(nonces))
            counting.reset()
            store = counting
        self.stores[name] = store
        return table, store.call

    def _step_of(self, source: str) -> Step:
        return self.stores[source].call


def _unheard() -> None:
    """Be sent; nobody in these plays reads it."""


def play(actors: Actors) -> None:
    """Come, take, commit, tell the group, and go."""
    actors.lead()
    actors.join(WRITER, "a")
    actors.join(OTHER, "b")
    actors.meet()
    actors.take()
    actors.epoch()
    actors.tell_group()
    actors.leave()


def stream_steps(case: StreamCase) -> tuple[str, tuple[StoreCall, ...]]:
    """Play undisturbed; return where, and the steps of who will die."""
    uri = copied(case.table)
    actors = Actors(uri, case)
    play(actors)
    store = actors.stores[case.who]
    assert isinstance(store, CountingStore)
    return uri, store.calls


def dead_at(case: StreamCase, nth: int, kind: str = "crash_before") -> Actors:
    """Play on a new table until one dies at its nth step; return the others too."""
    actors = Actors(copied(case.table), case, Fault(kind, nth=nth))
    with suppress(SimulatedCrashError):
        play(actors)
    for each in actors.writers.values():
        each._thread.shutdown()
    return actors


def go_on(uri: str, case: StreamCase) -> None:
    """Let new processes come in the place of all, and finish."""
    actors = Actors(uri, case)
    actors.lead(nonces="d")
    actors.join(WRITER, "e")
    actors.join(OTHER, "f")
    actors.finish()
    actors.leave()
