"""Merging sorted sources: the right row wins, whatever the sizes of blocks and rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from plait.arrow.merge import DuplicateRule, Merge, Round
from plait.read.join import SortedBatch, Source

SCHEMA = pa.schema([("id", pa.int64()), ("rank", pa.int64()), ("of", pa.string())])


def source(
    name: str, ids: Sequence[int], ranks: Sequence[int | None] = (), *, existing: bool = False
) -> Source:
    given = list(ranks) or [0] * len(ids)
    table = pa.table({"id": ids, "rank": given, "of": [name] * len(ids)}, schema=SCHEMA)
    positions = np.arange(len(ids), dtype=np.uint64)
    blocks = (SortedBatch(table.slice(i, 3), positions[i : i + 3]) for i in range(0, len(ids), 3))
    return Source(blocks, existing=existing)


def merged(
    sources: Sequence[Source],
    rule: DuplicateRule = DuplicateRule.REPLACE,
    *,
    ordering: str | None = None,
    size: int = 1,
) -> tuple[list[tuple[int, str]], list[Round]]:
    rounds = list(Merge(("id",), ordering, rule).rounds(sources, size))
    rows: list[tuple[int, str]] = []
    for each in rounds:
        kept = each.rows if each.order is None else each.rows.take(pa.array(each.order))
        rows += [(row["id"], row["of"]) for row in kept.to_pylist()]
    return rows, rounds


def test_sources_that_follow_each_other_are_not_taken_in_crumbs() -> None:
    count, each = 50, 400
    sources = [source(str(n), range(n * each, (n + 1) * each)) for n in range(count)]
    rows, rounds = merged(sources, size=20_000)
    assert len(rows) == count * each
    width = 64 + 8 + 8 + 5
    assert len(rounds) < 3 * count * each * width / 20_000


def test_rounds_stay_about_as_large_as_asked() -> None:
    rng = np.random.default_rng(1)
    ids = [np.unique(rng.integers(0, 1 << 40, 1_500)).tolist() for _ in range(8)]
    _, rounds = merged([source(str(n), part) for n, part in enumerate(ids)], size=20_000)
    assert max(each.rows.nbytes for each in rounds) < 45_000


def test_nothing_comes_of_nothing() -> None:
    assert merged([]) == ([], [])
    assert merged([source("empty", [])]) == ([], [])


def test_keys_are_told_without_the_other_columns() -> None:
    """They are hashed, whatever else is in the rows: a wide row is not copied for that."""
    old = pa.table({"id": [1, 2], "n": [5, 5], "wide": ["a", "b"]})
    new = pa.table({"id": [1, 2], "n": [4, 6], "wide": ["c", "d"]})
    sources = [Source(iter([SortedBatch(old)]), existing=True), Source(iter([SortedBatch(new)]))]
    (found,) = Merge(["id"], "n", DuplicateRule.REPLACE).rounds(sources, 1 << 20)
    assert found.arrived(["id"]).to_pylist() == [{"id": 2}]
    assert found.unchanged(["id"]).to_pylist() == [{"id": 1}]


def removal(*ids: int) -> Source:
    table = pa.table({"id": ids}, schema=pa.schema([SCHEMA.field("id")]))
    blocks = (SortedBatch(table.slice(i, 3)) for i in range(0, len(ids), 3))
    return Source(blocks, removes=True)


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize("ordering", [None, "rank"])
def test_a_removal_takes_away_whatever_came_before_it(size: int, ordering: str | None) -> None:
    """The ordering field has no say in that; it chooses among the rows that come later."""
    sources = [
        source("table", [1, 2, 3, 4, 5, 6], [9] * 6, existing=True),
        source("first", [2, 3, 7, 8], [99, 99, 99, 5]),
        removal(1, 2, 3, 7, 8, 9),
        source("second", [3, 4, 8], [5, 5, 5]),
        source("third", [3, 10], [4, 4]),
        removal(10, 11),
    ]
    rows, rounds = merged(sources, ordering=ordering, size=size)
    newest = "third" if ordering is None else "second"
    fourth = "second" if ordering is None else "table"
    assert rows == [(3, newest), (4, fourth), (5, "table"), (6, "table"), (8, "second")]

    def ids(tables: Sequence[pa.Table]) -> list[int]:
        return [number for table in tables for number in table["id"].to_pylist()]

    assert ids([each.removed(["id"]) for each in rounds]) == [1, 2]
    idle = [7, 9, 10, 11] if ordering is None else [4, 7, 9, 10, 11]
    assert ids([each.unchanged(["id"]) for each in rounds]) == idle
    assert sum(each.inserted for each in rounds) == 1
    assert sum(each.updated for each in rounds) == (2 if ordering is None else 1)
    lost: dict[int, list[int]] = {}
    for each in rounds:
        for at, positions in each.lost():
            lost.setdefault(at, []).extend(positions.tolist())
    replaced = {0: [0, 1, 2, 3], 1: [0, 1, 2, 3], 3: [0], 4: [1]}
    kept = {0: [0, 1, 2], 1: [0, 1, 2, 3], 3: [1], 4: [0, 1]}
    assert lost == (replaced if ordering is None else kept)


def test_removals_alone_find_the_rows_of_the_table() -> None:
    rows, rounds = merged([source("table", [1, 5], existing=True), removal(1, 2), removal(2, 5)])
    assert rows == []
    gone = [n for each in rounds for n in each.removed(["id"])["id"].to_pylist()]
    absent = [n for each in rounds for n in each.unchanged(["id"])["id"].to_pylist()]
    assert (gone, absent) == ([1, 5], [2])
    assert merged([removal(1), removal(1)])[0] == []
