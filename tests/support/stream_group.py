"""A stream of several writers, stepped by hand: nothing happens that a test does not ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from plait import Table
from plait.model.decision import CommitResult
from plait.state.cache import StateCache
from plait.stream.coordinator import Coordinator
from plait.stream.participant import Participant
from plait.stream.transport import Endpoint, Hub
from plait.testing import Fault, FaultStore
from tests.support import build

PROPERTIES = {"write.bucket.size": "16KiB", "write.buffer.size": "64KiB"}


def rows(start: int, stop: int, note: str = "x") -> pa.Table:
    ids = pa.array(range(start, stop), pa.int64())
    return pa.table({"id": ids, "note": [note] * (stop - start)})


@dataclass
class Group:
    """A coordinator and its writers, each with a source of its own: the numbers from a start on."""

    table: Table
    operation: str
    hub: Hub = field(default_factory=Hub)
    writers: dict[str, Participant] = field(default_factory=dict)
    coordinator: Coordinator = field(init=False)

    def __post_init__(self) -> None:
        self.lead()

    def lead(self) -> None:
        """Have a coordinator come."""
        stream = self.table.stream("app")
        self.coordinator = stream.coordinator(self.hub.coordinator(), self.operation)
        self.coordinator.start()

    def succeed(self) -> None:
        """Have a coordinator come after this one."""
        self.coordinator.close()
        self.lead()

    def join(self, *names: str) -> None:
        for name in names:
            self.writers[name] = self.table.stream("app").participant(self.hub.writer(), name)
        self.meet()

    def meet(self) -> None:
        """Let writers ask for the turn, hear it, answer it, and be counted in."""
        self.pump()
        for _ in range(2):
            self.coordinator.poll()
            self.pump()

    def pump(self, *names: str) -> None:
        """Let writers hear what was sent, and finish what they flush."""
        for name in names or self.writers:
            self.writers[name].poll()
            self.writers[name].settle()

    def take(self, name: str, stop: int) -> None:
        """Have a writer go on with its source; sources of writers are 1,000,000 numbers apart."""
        writer = self.writers[name]
        at = int(writer.offset(name) or 0)
        base = 1_000_000 * sorted(self.writers).index(name)
        writer.write(
            rows(base + at, base + stop), source=name, start=writer.offset(name), end=str(stop)
        )

    def turn(self) -> None:
        """End the turn; every writer reports."""
        self.coordinator.checkpoint(wait_s=0)
        self.pump()

    def epoch(self) -> CommitResult | None:
        self.turn()
        return self.coordinator.complete()

    def commit(self, **stops: int) -> CommitResult:
        """Have writers go on with their sources, and commit what they took."""
        for name, stop in stops.items():
            self.take(name, stop)
        result = self.epoch()
        assert result is not None
        return result

    def arrive(self, **stops: int) -> None:
        """The same; then the table has the rows of their sources, each once, and no others."""
        self.commit(**stops)
        self.holds(**stops)

    def holds(self, **stops: int) -> None:
        """Check that the table has these sources up to here, each row once, and no other row."""
        starts = {name: 1_000_000 * at for at, name in enumerate(sorted(stops))}
        wanted = [n + number for name, n in starts.items() for number in range(stops[name])]
        assert self.ids() == wanted

    def ids(self) -> list[int]:
        return build.ids(self.table)

    @contextmanager
    def failing(self, *faults: Fault) -> Iterator[FaultStore]:
        """Let the coordinator work on a store that fails as told, and then on the table's again."""
        handle = self.table._handle
        store = FaultStore(handle.store, list(faults))
        cache = StateCache(store, handle.ports)
        self.coordinator._handle = replace(handle, store=store, cache=cache)
        yield store
        self.coordinator._handle = handle

    def close(self) -> None:
        self.coordinator.close()
        for writer in self.writers.values():
            writer.close()


def require_read_again(group: Group) -> None:
    """Check that a turn of ten rows from each of two writers was given up, and then counts once."""
    group.pump()
    assert group.writers["a"].offset("a") == ""
    group.arrive(a=10, b=10)


def lose(end: Endpoint) -> None:
    """Lose what was sent to this end and not yet heard."""
    while end.receive(0) is not None:
        pass


KEYED = pytest.mark.parametrize("keyed", [False, True])
