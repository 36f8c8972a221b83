"""Rows on their way to tasks: every row once, in the task that its bucket has."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.arrow.cast import apply
from plait.errors import StorageError
from plait.model.plan import LIVE
from plait.spark.exchange import Pieces, Split
from plait.spark.route import Route
from plait.spark.task import TaskSetting
from tests.support.livetable import LiveTable
from tests.unit.spark.test_route import spec_of

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("rev", pa.int64())])
NUMBERED = pa.schema([(f"c{at}", field.type) for at, field in enumerate(SCHEMA)])
Row = tuple[int, str]

batches = st.lists(st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abcd")), max_size=30))


def split_of(directory: Path, *, buffer: str = "64KiB") -> Split:
    """Divide among 5 tasks the rows of a table with 3 buckets a partition."""
    options = {"write.buffer.size": buffer}
    table = LiveTable(
        f"memory://exchange-{directory.name}",
        SCHEMA,
        key=["id"],
        partition_by=["p"],
        buckets=3,
        options=options,
    )
    plan = table.plan("append")
    route = Route.plan(plan.spec, columns=SCHEMA.names, wanted=5, files=LIVE.empty_table())
    return Split(plan, route, tuple(SCHEMA.names), str(directory))


def given_to(split: Split, task: int, parts: Sequence[Sequence[Row]], attempt: int = 0) -> str:
    """Let a task divide these batches; give the name of what it left, '' if it had no rows."""
    report = split(TaskSetting(task, attempt, f"{task}-{attempt}"), _batches(parts))
    if report is None:
        return ""
    assert report.rows == sum(map(len, parts))
    return report.label


def _batches(parts: Sequence[Sequence[Row]]) -> Iterator[pa.RecordBatch]:
    revision = itertools.count()
    for part in parts:
        rows = [{"c0": key, "c1": place, "c2": next(revision)} for key, place in part]
        yield pa.RecordBatch.from_pylist(rows, schema=NUMBERED)


@given(st.lists(batches, max_size=4))
def test_each_row_comes_once_and_in_order_to_the_task_of_its_bucket(
    sources: list[list[list[Row]]],
) -> None:
    """Where no ordering field decides, the last row of a key wins."""
    with tempfile.TemporaryDirectory() as place:
        split = split_of(Path(place))
        there = [label for at, each in enumerate(sources) if (label := given_to(split, at, each))]
        pieces = Pieces(place, tuple(there), tuple(range(5)))
        found: list[Row] = []
        for task in range(5):
            for batch in pieces.read(task):
                assert split.route.tasks_of_rows(batch).tolist() == [task] * batch.num_rows
                found += [(row["id"], row["p"]) for row in batch.to_pylist()]
            for source in there:
                one = Pieces(place, (source,), ()).read(task)
                revisions = [revision for batch in one for revision in batch["rev"].to_pylist()]
                assert revisions == sorted(set(revisions))
    assert sorted(found) == sorted(row for parts in sources for part in parts for row in part)


def test_only_the_attempt_that_was_reported_is_read(tmp_path: Path) -> None:
    """INV-08: rows of one attempt with the index of another would go to the wrong buckets."""
    split = split_of(tmp_path)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from _batches([[(1, "a")] * 100])
        message = "the query failed"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError):
        split(TaskSetting(0, 0, "0-0"), broken())
    good = given_to(split, 0, [[(2, "b"), (3, "c")]], attempt=1)
    given_to(split, 0, [[(9, "d")] * 30], attempt=2)
    found = [batch for task in range(5) for batch in Pieces(str(tmp_path), (good,), ()).read(task)]
    assert sorted(key for batch in found for key in batch["id"].to_pylist()) == [2, 3]


@pytest.mark.parametrize("damage", ["gone", "cut off", "index gone", "index cut off"])
def test_a_disk_that_fails_is_told_with_what_to_do(tmp_path: Path, damage: str) -> None:
    with pytest.raises(StorageError, match=r"spark\.local\.dir") as caught:
        given_to(split_of(tmp_path / "nowhere"), 0, [[(1, "a")]])
    assert caught.value.path == str(tmp_path / "nowhere")
    split = split_of(tmp_path)
    label = given_to(split, 0, [[(1, "a")]])
    path = tmp_path / f"{label}.{'npy' if 'index' in damage else 'arrow'}"
    if "gone" in damage:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StorageError, match=r"spark\.local\.dir"):
        [*Pieces(str(tmp_path), (label,), ()).read(0)]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("int32", "decimal(9,2)"), ("int64", "decimal(9,2)"), ("int8", "bigint"), ("double", "int")],
)
def test_rows_of_other_types_go_where_the_tables_own_would(given: str, wanted: str) -> None:
    """What fits is cast before it is hashed, as it is before it is written."""
    spec = spec_of(wanted)
    route = Route.plan(spec, columns=["id", "p"], wanted=7, files=LIVE.empty_table())
    for each in (route, replace(route, shift=3)):
        rows = pa.record_batch({"id": [1, 2, 3], "p": pa.array([0, 7, -5]).cast(given)})
        fitting = rows.set_column(1, "p", apply(rows["p"], spec.schema.arrow.field("p").type))
        assert each.tasks_of_rows(rows).tolist() == each.tasks_of_rows(fitting).tolist()


def test_rows_that_will_be_refused_go_anywhere() -> None:
    route = Route.plan(spec_of("int"), columns=["id", "p"], wanted=7, files=LIVE.empty_table())
    rows = pa.record_batch({"id": [1, 2], "p": pa.array([1, 1 << 40])})
    assert all(0 <= task < 7 for task in route.tasks_of_rows(rows).tolist())
