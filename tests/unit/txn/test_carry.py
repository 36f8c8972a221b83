"""The small steps of carrying over: positions among targets, and files that nobody names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from plait.files.deletion import load_masked
from plait.model.bucket import Partition
from plait.model.changes import PATHS, PLACED, Changes
from plait.model.instant import Instant
from plait.testing import CountingStore
from plait.txn.carry import MaskFiles, count_rows, divided, rows_of_group
from tests.support.protocol import client, create, listed, memory

NOBODY = Instant.at(0, "0" * 16)
TARGETS = [
    {"path": "a", "group": 1, "first": 0, "rows": 3},
    {"path": "b", "group": 1, "first": 3, "rows": 2},
    {"path": "c", "group": 1, "first": 5, "rows": 4},
]
MANY = np.random.default_rng(1).choice(1 << 20, 9_000, replace=False).astype(np.uint64)
"""So many that their vector does not stand in the decision."""


def positions(*each: int) -> np.ndarray:
    return np.array(each, np.uint64)


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ((0, 2, 3, 4, 8), {"a": [0, 2], "b": [0, 1], "c": [3]}),
        ((2, 5), {"a": [2], "c": [0]}),
        ((4,), {"b": [1]}),
        ((), {}),
        (range(9), {"a": [0, 1, 2], "b": [0, 1], "c": [0, 1, 2, 3]}),
    ],
)
def test_positions_of_a_group_are_those_of_its_files(
    hidden: Iterable[int], expected: dict[str, list[int]]
) -> None:
    """INV-14: a row is hidden in the file that has it, and in no other."""
    found = {path: part.tolist() for path, part in divided(positions(*hidden), TARGETS)}
    assert found == expected
    assert count_rows(TARGETS) == 9


def test_targets_of_a_group_come_in_their_order() -> None:
    others = [{"path": "d", "group": 2, "first": 0, "rows": 1}]
    table = pa.Table.from_pylist([*reversed(TARGETS), *others], schema=PLACED)
    assert [row["path"] for row in rows_of_group(table, 1)] == ["a", "b", "c"]
    assert [row["path"] for row in rows_of_group(table, 2)] == ["d"]


def made(store: CountingStore, announced: list[Partition]) -> MaskFiles:
    handle = client(store)
    return MaskFiles(handle, NOBODY, announced.extend)


def test_vectors_are_announced_before_and_durable_when_they_are_told() -> None:
    """INV-06, INV-10: recovery finds their file, and a decision that names it outlives power."""
    inner = memory()
    create(inner)
    store, announced = CountingStore(inner), list[Partition]()
    masks = made(store, announced)
    assert masks.write((), {}).num_rows == 0
    assert announced == []
    told = masks.write((), {"a": MANY, "b": positions(3)}).to_pylist()
    assert announced == [()]
    by_path = {row["path"]: row for row in told}
    (path,) = masks.written
    assert by_path["a"]["dv_path"] == path
    assert by_path["b"]["dv_path"] is None
    assert [call.path for call in store.calls if call.operation == "persist"] == [path]
    assert load_masked(inner, by_path["a"], rows=1 << 20).tolist() == sorted(MANY.tolist())


def test_vectors_of_an_earlier_round_are_garbage_and_small_ones_leave_no_file() -> None:
    """INV-06: every file of the instant is named, or condemned."""
    inner = memory()
    create(inner)
    masks = made(CountingStore(inner), [])
    first, second = (masks.write((), {"a": MANY}) for _ in range(2))
    masks.write((), {"b": positions(3)})
    names = [table["dv_path"].to_pylist()[0] for table in (first, second)]
    assert len({*names}) == 2
    assert masks.written == {*names}
    staged = Changes(garbage=pa.table({"path": ["x"]}, schema=PATHS))
    left = masks.garbage(staged, Changes(masked=second))
    assert set(left["path"].to_pylist()) == {names[0], "x"}
    assert {path for path in listed(inner) if path in names} == {*names}
