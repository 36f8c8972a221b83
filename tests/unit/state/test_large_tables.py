"""What opening and planning costs does not follow the size of the table (INV-04, INV-11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pytest

from plait import Table
from plait.model.bucket import Partition, partition_path, partition_text
from plait.model.changes import BASE
from plait.model.plan import LIVE, Snapshot
from plait.read.plan import FileFilter, all_files, filter_partitions, filter_where, plan_scan
from plait.state import part_file
from plait.state.cache import StateCache
from plait.state.checkpoint import MERGED_ROWS_MAX, write_checkpoint
from plait.state.events import TABLES, Events, LiveEntry, tail_events
from plait.state.part_file import GROUP_ROWS
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import CountingStore, sim_ports
from plait.timeline.paths import slot
from tests.support.forge import reseal
from tests.support.histories import History
from tests.support.memory import forget
from tests.support.protocol import memory

T = TypeVar("T")


class Weighing(CountingStore):
    """Counts the bytes that are read, those of pieces too."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.bytes = 0

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        result = super().call(operation, path, run)
        if operation == "find" and isinstance(result, bytes):
            self.bytes += len(result)
        if operation == "open_input":
            return pa.PythonFile(_Weighed(result, self), "rb")  # type: ignore[return-value]  # a file
        return result


class _Weighed:
    """A file whose reads are counted."""

    def __init__(self, inner: object, store: Weighing) -> None:
        self._inner, self._store = inner, store
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        body: bytes = self._inner.read(size)  # type: ignore[attr-defined]  # a file
        self._store.bytes += len(body)
        return body

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def files_in(place: Partition, version: int) -> pa.Table:
    """Give the entries of a row group full of files of one partition."""
    numbers = range(GROUP_ROWS)
    text = pa.repeat(partition_text(place), GROUP_ROWS)
    columns: dict[str, object] = {
        "path": [f"{partition_path(place)}/{number:06d}.base.parquet" for number in numbers],
        "partition": text,
        "kind": pa.repeat(BASE, GROUP_ROWS),
        "order": pa.repeat(pa.scalar(-1, pa.int32()), GROUP_ROWS),
        "rows": pa.repeat(100, GROUP_ROWS),
        "stats": [f'{{"1":["{number}","{number + 9}",0]}}' for number in numbers],
        "version": pa.repeat(version, GROUP_ROWS),
    }
    zeros = pa.repeat(0, GROUP_ROWS)
    schema = TABLES["added"]
    return pa.table([columns.get(name, zeros) for name in schema.names], schema.names).cast(schema)


def place_of(number: int) -> Partition:
    return (f"p{number:03d}",)


def table_of(partitions: int) -> Store:
    """Make a table of so many partitions, each with 4,096 files, in one part."""
    history = History.begin(memory())
    reseal(history.store, 0, lambda decision: replace(decision, live=None))  # it added no file
    known = StateCache(history.store, sim_ports()).refresh()
    added = pa.concat_tables(files_in(place_of(number), 0) for number in range(partitions))
    events = Events(added=added, commits=tail_events(known.tail).commits)
    state = replace(known, files=added.num_rows, tail=(LiveEntry(0, None, events),))
    write_checkpoint(history.store, state, sim_ports())
    return history.store


def weighed(store: Store, wants: FileFilter) -> tuple[Weighing, Snapshot]:
    """Open, and load what is wanted."""
    weighing = Weighing(store)
    state = StateCache(weighing, sim_ports()).refresh()
    return weighing, state.snapshot(weighing, file_filter=wants)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read parts in pieces, as those of a table that is larger than these."""
    monkeypatch.setattr(part_file, "WHOLE_BYTES_MAX", 1 << 16)


@pytest.fixture(scope="module")
def five() -> Store:
    """A table of five partitions, which no test changes."""
    return table_of(5)


def test_a_partition_costs_the_same_in_a_table_of_four_times_as_many(five: Store) -> None:
    """Calls are equal; bytes grow by entries in the footer, and by names of partitions."""
    wants = filter_partitions([place_of(3)])
    some, one = weighed(five, wants)
    more, other = weighed(table_of(20), wants)
    assert one.files.num_rows == other.files.num_rows == GROUP_ROWS
    assert (one.total, other.total) == (5 * GROUP_ROWS, 20 * GROUP_ROWS)
    assert more.counts() == some.counts()
    assert more.count("open_input") == 1
    assert more.bytes < 2 * some.bytes


def test_an_old_version_costs_one_file_of_commits_more_than_the_newest() -> None:
    """Its schema and its number of files are read at once."""
    store = committed(4 * GROUP_ROWS)
    wants = filter_partitions([place_of(0)])
    opened = {}
    for version in (4 * GROUP_ROWS, 4 * GROUP_ROWS - 1, 2):
        weighing = Weighing(store)
        state = StateCache(weighing, sim_ports()).refresh()
        snapshot = state.snapshot(weighing, version=version, file_filter=wants)
        assert snapshot.total == 5 * GROUP_ROWS
        opened[version] = weighing.count("open_input")
    assert list(opened.values()) == [1, 2, 2]


def committed(commits: int) -> Store:
    """Make a table of five partitions with so many commits after the first, in one part."""
    history = History.begin(memory())
    known = history.state
    added = pa.concat_tables(files_in(place_of(number), 0) for number in range(5))
    first = tail_events(known.tail).commits.to_pylist()[0]
    numbers = range(commits + 1)
    names = [f"{number:017d}-{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}" for number in numbers]
    varied = {"version": pa.array(numbers, pa.int64()), "instant": pa.array(names)}
    columns = [
        varied.get(name, pa.array([first[name]] * len(numbers), TABLES["commits"].field(name).type))
        for name in TABLES["commits"].names
    ]
    files = pa.array([5 * GROUP_ROWS, *[0] * commits], pa.int64())
    rows = pa.table(columns, schema=TABLES["commits"])
    rows = rows.set_column(rows.schema.get_field_index("files"), "files", files)
    events = Events(added=added, commits=rows.cast(TABLES["commits"]))
    tail = (LiveEntry(commits, None, events),)
    state = replace(known, version=commits, files=added.num_rows, tail=tail)
    history.store.put(slot(commits), b"")  # as if it was archived
    write_checkpoint(history.store, state, sim_ports())
    return history.store


def test_bounds_are_loaded_of_the_columns_of_a_predicate_or_for_who_asks_for_files(
    five: Store,
) -> None:
    """No JSON is loaded otherwise: a clean of a large table does not hold that of every file."""
    _, plain = weighed(five, filter_partitions([place_of(3)]))
    _, bounded = weighed(five, filter_where("id < 10"))
    state = StateCache(five, sim_ports()).refresh()
    lean = state.folded(five).files
    for files in (plain.files, bounded.files, lean):
        assert files["stats"].null_count == files.num_rows
    assert plain.files.schema.equals(LIVE)
    assert set(bounded.files.schema.names) - set(LIVE.names) == {"lower.1", "upper.1", "nulls.1"}
    assert plan_scan(bounded, where="id < 10").files.num_rows == 5 * 10
    whole = state.snapshot(five).files
    assert whole.schema.equals(LIVE)
    assert whole["stats"].null_count == 0
    every = state.snapshot(five, file_filter=all_files).files
    assert whole.drop_columns(["stats"]).equals(every.drop_columns(["stats"]))
    assert lean.num_rows == 5 * GROUP_ROWS


def test_a_checkpoint_after_a_small_change_writes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer does not take in a part that is large, whatever it adds itself."""
    store = table_of(20)
    state = StateCache(store, sim_ports()).refresh()
    written: list[int] = []
    real = MemoryStore.put_if_absent

    def put(self: MemoryStore, path: str, body: bytes) -> bool:
        written.append(len(body))
        return real(self, path, body)

    monkeypatch.setattr(MemoryStore, "put_if_absent", put)
    for version in range(1, 8):
        events = Events(added=files_in(("new",), version).slice(0, 10))
        tail = (*state.tail, LiveEntry(version, None, events))
        state = write_checkpoint(store, replace(state, version=version, tail=tail), sim_ports())
    assert state.parts[0].rows > MERGED_ROWS_MAX
    assert len(state.parts) <= 3
    assert sum(written) < 1 << 17


def test_a_checkpoint_rests_on_a_part_that_removed_more_than_it_added(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The sums of such a part are below zero; it is no damage (format.md)."""
    table = Table.create(
        "memory://below-zero",
        pa.schema([("id", pa.int64()), ("p", pa.int64())]),
        partition_by=("p",),
        properties={"checkpoint.interval": 1},
    )
    table.append(pa.table({"id": range(80), "p": [n % 40 for n in range(80)]}))
    table.delete(where="p < 3")
    table.append(pa.table({"id": [90], "p": [7]}))
    state = table._handle.cache.refresh()
    assert caplog.messages == []
    assert len(state.parts) == 2
    assert table.scan().count() == 75
    assert not table.check.verify().problems
    forget("memory://below-zero")
