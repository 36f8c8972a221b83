"""A stream of several writers, stepped by hand: nothing happens that a test does not ask for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from plait import Table
from plait.model.decision import CommitResult
from plait.ports import Clock
from plait.stream.coordinator import Coordinator
from plait.stream.participant import Participant
from plait.stream.transport import Hub

_NAMES = itertools.count()
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
        stream = self.table.stream("app")
        self.coordinator = stream.coordinator(self.hub.coordinator(), self.operation)
        self.coordinator.start()

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

    def ids(self) -> list[int]:
        return sorted(self.table.scan(["id"]).to_arrow()["id"].to_pylist())

    def close(self) -> None:
        self.coordinator.close()
        for writer in self.writers.values():
            writer.close()


def require_read_again(group: Group) -> None:
    """Check that a turn of ten rows from each of two writers was given up, and then counts once."""
    group.pump()
    assert group.writers["a"].offset("a") == ""
    group.take("a", 10)
    group.take("b", 10)
    assert group.epoch() is not None
    assert group.ids() == [*range(10), *range(1_000_000, 1_000_010)]


Make = Callable[..., Group]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make groups; they are closed in the end, and nothing is left pending."""
    made: list[Group] = []

    def group(
        *names: str,
        keyed: bool = False,
        operation: str | None = None,
        clock: Clock | None = None,
    ) -> Group:
        table = Table.create(
            f"memory://stream-{next(_NAMES)}",
            "id bigint, note string",
            record_key=["id"] if keyed else [],
            buckets=4 if keyed else None,
            properties=PROPERTIES,
        )
        if clock is not None:
            ports = replace(table._handle.ports, clock=clock)
            table = Table(replace(table._handle, ports=ports))
        made.append(Group(table, operation or ("upsert" if keyed else "append")))
        made[-1].join(*names)
        return made[-1]

    yield group
    for each in made:
        each.close()
        assert each.table.inspect.timeline().pending == ()
        report = each.table.check.verify()
        assert (report.problems, report.notes) == ((), ()), report.to_dict()
        assert each.table.stream("app").audit().problems == ()
