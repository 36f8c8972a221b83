"""The load of a repush: many tasks, also of one file, each row in one of them."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait import OptionError, Table
from plait.read.stretches import StretchScan
from plait.repush.parts import spans, stretches
from plait.repush.run import PROGRESS
from plait.repush.versions import VersionSource
from plait.testing import SimulatedCrashError
from tests.support import repush_steps
from tests.support.build import LITTLE, listed, make, rows
from tests.support.protocol import beside
from tests.support.repush_steps import again, disturbed

ROWS = 100


def one_file(**how: object) -> Table:
    """Make a table of one file with hidden rows, and some row groups if they are made small."""
    asked: dict[str, object] = {"buckets": 1, "table_type": "mor", **how}
    asked["properties"] = {**LITTLE, **asked.get("properties", {})}  # type: ignore[dict-item]  # a dict
    table = make(append=rows(range(ROWS), v=lambda key: key), **asked)
    table.delete(where="v between 17 and 29 or v = 99")
    assert table.inspect.files().num_rows == 1
    return table


LEFT = [(n, n) for n in range(ROWS) if not 17 <= n <= 29 and n != 99]


@given(st.lists(st.integers(0, 60), max_size=8), st.integers(1, 20))
def test_each_row_is_in_one_stretch_and_no_stretch_is_longer_than_a_task(
    counts: list[int], rows: int
) -> None:
    cut = list(stretches(counts, rows))
    assert all(len(span) <= rows for _, span in cut)
    assert [(file, at) for file, span in cut for at in span] == [
        (file, at) for file, count in enumerate(counts) for at in range(count)
    ]
    edges = list(spans([len(span) for _, span in cut], rows))
    assert [n for low, high in edges for n in range(low, high)] == list(range(len(cut)))
    assert all(sum(len(span) for _, span in cut[low:high]) < 2 * rows for low, high in edges)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "4", None, 10**30])
def test_numbers_that_are_none_are_refused_before_a_repush_begins(number: object) -> None:
    table = one_file()
    before = table.version
    with pytest.raises(OptionError):
        table.layout.repush(buckets=2, rows_per_task=number)  # type: ignore[arg-type]  # what is refused
    if number is not None:
        with pytest.raises(OptionError):
            table.layout.repush(buckets=number)  # type: ignore[arg-type]  # the same
        with pytest.raises(OptionError):
            one_file(buckets=number)
    assert again(table).version == before


@pytest.mark.parametrize("group_rows", [7, 1000])
@pytest.mark.parametrize("per_task", [1, 9, 30, 99, 100])
def test_the_tasks_of_a_file_have_each_visible_row_once(
    per_task: int, group_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-04: whatever the row groups are; hidden rows stay hidden."""
    monkeypatch.setattr("plait.arrow.output.GROUP_ROWS", group_rows)
    table = one_file()
    source = VersionSource.of(table._handle, table.version, with_row_version=False, spark=None)
    parts = source.parts(per_task)
    assert len(parts) == -(-ROWS // per_task)
    found = [row["id"] for part in parts for row in part.read().read_all().to_pylist()]  # type: ignore[attr-defined]  # a reader
    assert sorted(found) == [number for number, _ in LEFT]


@pytest.mark.parametrize("size", [1, 300, 1 << 30])
@pytest.mark.parametrize("span", [range(100), range(3, 40), range(20, 25), range(50, 50)])
def test_a_divided_stretch_has_the_same_rows(
    span: range, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-04: executors get the parts."""
    monkeypatch.setattr("plait.arrow.output.GROUP_ROWS", 7)
    table = one_file()
    store, snapshot = table._handle.store, table._handle.cache.known().snapshot(table._handle.store)
    scan = StretchScan(store, snapshot, [span], ["id"])
    parts = scan.divided(size)
    assert size > 1 or len(parts) == len(span)
    assert size < 1 << 30 or len(parts) <= 1
    found = [row for part in parts for row in part.to_arrow()["id"].to_pylist()]
    assert found == scan.to_arrow()["id"].to_pylist()
    assert found == [id_ for id_, _ in LEFT if id_ in span]


@pytest.mark.parametrize(
    "how", [{}, {"record_key": (), "buckets": None}, {"properties": {"rows.written": "on"}}]
)
def test_a_repush_of_one_large_file_commits_a_task_at_a_time(how: dict[str, object]) -> None:
    table = one_file(**how)
    columns = ["id", "_written"] if "properties" in how else ["id"]
    before = table.scan(columns=columns).to_arrow().sort_by("id")
    told: list[None] = []
    client = beside(table, PROGRESS, *[lambda: told.append(None)] * ROWS)
    report = client.layout.repush(properties={"file.compression": "zstd"}, rows_per_task=10)
    assert report.rows_loaded == len(LEFT)
    assert len(told) == ROWS // 10
    assert listed(again(table)) == LEFT
    assert again(table).scan(columns=columns).to_arrow().sort_by("id").equals(before)


class KilledAfterOneTask:
    """An observer that kills its process once a task was committed."""

    def __init__(self) -> None:
        self.loaded = 0

    def phase(self, name: str, **facts: object) -> None:
        if name == PROGRESS:
            self.loaded = int(str(facts["rows_loaded"]))
            raise SimulatedCrashError


def test_rows_that_two_clients_load_are_reported_once() -> None:
    """INV-09: whichever of them commits a task, the other one does not count its rows."""
    unkeyed: dict[str, object] = {"record_key": (), "buckets": None}
    elsewhere: list[int] = []

    def load_one_task(other: Table, _: str) -> None:
        observer, handle = KilledAfterOneTask(), other._handle
        other._opened.handle = replace(handle, ports=replace(handle.ports, observer=observer))
        with contextlib.suppress(SimulatedCrashError):
            other.layout.repush(rows_per_task=4, commit_id="c")
        elsewhere.append(observer.loaded)

    for table, client, _ in disturbed(lambda: repush_steps.make(**unkeyed), load_one_task):
        loaded = client.layout.repush(rows_per_task=4, commit_id="c").rows_loaded
        assert loaded + sum(elsewhere) == table.scan().count()
        elsewhere.clear()
