"""A writer that was rolled back while it lives is told within one heartbeat interval.

The heartbeat is run by hand here: whatever comes after it must raise, and write nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pytest

from plait import Delete, Insert, Table, Update
from plait.errors import RolledBackError
from plait.storage.memory import MemoryStore
from plait.testing import ManualBackground, SimClock
from plait.testing.wrapper import WrappedStore, is_metadata
from plait.txn.recovery import roll_back_failed
from tests.support.protocol import client, create, memory

T = TypeVar("T")
BUCKETS = 8


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "value": ["x"] * (stop - start)})


class Ending(WrappedStore):
    """Has every writer rolled back when data files are opened so often, and the heartbeat run."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.countdown = -1
        self.after = 0
        """Data files that were opened after the end was heard."""
        self.background = ManualBackground()

    def end(self) -> None:
        handle = client(self.inner)
        assert roll_back_failed(handle, reason="taken for dead", everything=True).ended
        self.background.run()

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        if operation.startswith("open_") and not is_metadata(path):
            self.after += operation == "open_output" and self.countdown == 0
            if self.countdown > 0:
                self.countdown -= 1
                if not self.countdown:
                    self.end()
        return run()


@dataclass
class Scene:
    """A table with rows in every bucket, seen through a store that can end its writers."""

    store: Ending
    table: Table

    @property
    def files(self) -> set[str]:
        """Data files that no version names."""
        live = set(Table(client(self.store.inner)).inspect.files()["path"].to_pylist())
        every = {info.path for info in self.store.inner.list("") if not is_metadata(info.path)}
        return every - live


@pytest.fixture(params=["cow", "mor"])
def scene(request: pytest.FixtureRequest) -> Scene:
    clock = SimClock()
    inner = memory(clock)
    create(inner, buckets=BUCKETS, table_type=request.param, policy="key")
    Table(client(inner, clock)).upsert(rows(0, 400))
    store = Ending(inner)
    return Scene(store, Table(client(store, clock, background=store.background)))


def write_again(scene: Scene) -> None:
    with scene.table.writer("upsert") as writer:
        writer.write(rows(0, 10))
        scene.store.end()
        writer.write(rows(10, 20))


def write_a_stream(scene: Scene) -> None:
    """One call that takes long: what comes in is a reader."""
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            if number == 3:
                scene.store.end()
            taken.append(number)
            yield rows(number * 10, number * 10 + 10).to_batches()[0]

    schema = rows(0, 1).schema
    try:
        with scene.table.writer("upsert") as writer:
            writer.write(pa.RecordBatchReader.from_batches(schema, batches()))
    finally:
        assert len(taken) < 10


def operate_again(scene: Scene) -> None:
    with scene.table.transaction() as block:
        block.upsert(rows(0, 10))
        scene.store.end()
        block.delete(where="id = 3")


def while_staging(change: Callable[[Table], object]) -> Callable[[Scene], None]:
    """Have the writer ended while it stages one of its first buckets."""

    def act(scene: Scene) -> None:
        scene.store.countdown = 3
        change(scene.table)

    return act


def _epoch(table: Table) -> None:
    with table.stream("loader").writer("upsert", after=None, end="1") as writer:
        writer.write(rows(0, 400))


def _block(table: Table) -> None:
    with table.transaction() as block:
        block.upsert(rows(0, 400))
        block.update({"value": "'z'"})


CASES: dict[str, Callable[[Scene], None]] = {
    "write again": write_again,
    "write a stream": write_a_stream,
    "operate again": operate_again,
    "upsert": while_staging(lambda t: t.upsert(rows(0, 400))),
    "update": while_staging(lambda t: t.update({"value": "'y'"})),
    "delete": while_staging(lambda t: t.delete(where="id > 3 and value = 'x'")),
    "merge": while_staging(
        lambda t: t.merge(
            rows(200, 600),
            matched=[Update({"value": "'m'"}), Delete()],
            not_matched=[Insert()],
        )
    ),
    "stream": while_staging(_epoch),
    "block": while_staging(_block),
}


@pytest.mark.parametrize("name", CASES)
def test_it_stops_at_its_next_step_and_nothing_of_it_stays(scene: Scene, name: str) -> None:
    """INV-03, INV-06: RolledBackError, at most the bucket in hand is finished, the files go."""
    before = scene.table.version
    with pytest.raises(RolledBackError):
        CASES[name](scene)
    assert scene.store.after <= 1
    assert scene.table.version == before + 1  # the rollback
    assert not scene.table.inspect.timeline().pending
    scene.table.maintenance.clean()
    assert scene.files == set()
