"""Rows on their way to tasks: every row once, in the task that its bucket has."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import StorageError
from plait.model.plan import LIVE
from plait.spark.exchange import Split
from plait.spark.pieces import Pieces
from plait.spark.route import Route
from plait.spark.task import Place
from tests.support.livetable import LiveTable

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


def given_to(split: Split, task: int, parts: Sequence[Sequence[Row]]) -> bool:
    """Let a task divide these batches; tell whether it had rows."""
    report = split(Place(task, 0, f"{task}-{task}"), _batches(parts))
    assert report is None or report.rows == sum(map(len, parts))
    return report is not None


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
        there = [at for at, parts in enumerate(sources) if given_to(split, at, parts)]
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


def test_an_attempt_that_fails_is_not_read(tmp_path: Path) -> None:
    split = split_of(tmp_path)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from _batches([[(1, "a")] * 100])
        message = "the query failed"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError):
        split(Place(0, 0, "0-0"), broken())
    assert not list(tmp_path.glob("*.arrow"))
    assert given_to(split, 0, [[(2, "b")]])
    found = [b for task in range(5) for b in Pieces(str(tmp_path), (0,), ()).read(task)]
    assert [batch["id"].to_pylist() for batch in found] == [[2]]


def test_a_file_that_is_gone_is_told_with_what_to_do(tmp_path: Path) -> None:
    split = split_of(tmp_path)
    assert given_to(split, 0, [[(1, "a")]])
    (tmp_path / "0.arrow").unlink()
    with pytest.raises(StorageError, match=r"spark\.local\.dir"):
        list(Pieces(str(tmp_path), (0,), ()).read(0))


def test_a_disk_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    split = split_of(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="on their way"):
        given_to(split, 0, [[(1, "a")]])
