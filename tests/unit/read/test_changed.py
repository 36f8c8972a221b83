"""What became of the rows of one bucket, from files in every state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from plait.files.data_file import LiveFile
from plait.files.deletion import encode
from plait.read.changed import CHANGE_TYPES, BucketChange
from tests.unit.read.conftest import Build, Built

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def table(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"id": [i for i, _ in pairs], "v": [v for _, v in pairs]}, schema=SCHEMA)


def masked(file: LiveFile, *positions: int) -> LiveFile:
    vector = encode(np.array(positions, dtype=np.uint64)) if positions else None
    return replace(file, masked=len(positions), inline=vector)


def told(built: Built, before: list[LiveFile], after: list[LiveFile]) -> list[tuple[str, int, int]]:
    change = BucketChange(5, 0, tuple(before), tuple(after))
    return [
        (CHANGE_TYPES[kind], row["id"], row["v"])
        for found in change.rows(built.reader, built.spec.key, ["id", "v"])
        for kind, row in zip(found.kinds.tolist(), found.rows.to_pylist(), strict=True)
    ]


def test_files_that_are_not_sorted_are_joined_all_the_same(build: Build) -> None:
    """Files from elsewhere may be in any order."""
    built = build(SCHEMA, key=["id"], group_rows=2)
    built.add_file(table((5, 0), (1, 0), (9, 0), (3, 0)), (), 0)
    built.add_file(table((9, 0), (4, 1), (1, 1)), (), 0)
    built.add_file(table((8, 1), (5, 0)), (), 0)
    old, *new = built.files
    assert old.order == -1
    assert told(built, [old], new) == [
        ("update_preimage", 1, 0),
        ("update_postimage", 1, 1),
        ("delete", 3, 0),
        ("insert", 4, 1),
        ("insert", 8, 1),
    ]


@pytest.mark.parametrize("key", [("id",), ()])
def test_a_mask_that_grows_deletes_and_one_that_shrinks_inserts(
    build: Build, key: tuple[str, ...]
) -> None:
    """Only rows that it hides now and did not before, or the other way round."""
    built = build(SCHEMA, key=key, group_rows=2)
    built.add_file(table(*((i, i) for i in range(7))), (), 0)
    (file,) = built.files
    assert told(built, [masked(file, 1)], [masked(file, 1, 2, 6)]) == [
        ("delete", 2, 2),
        ("delete", 6, 6),
    ]
    assert told(built, [masked(file, 1, 2, 6)], [masked(file, 6)]) == [
        ("insert", 1, 1),
        ("insert", 2, 2),
    ]
    assert told(built, [masked(file, 3)], [masked(file, 4)]) == [
        *([("insert", 3, 3), ("delete", 4, 4)] if key else [("delete", 4, 4), ("insert", 3, 3)])
    ]
    assert told(built, [masked(file, 3)], [masked(file, 3)]) == []


def test_rows_without_a_key_are_matched_across_files_and_masks(build: Build) -> None:
    built = build(SCHEMA, group_rows=2)
    built.add_file(table((1, 0), (1, 0), (2, 0), (3, 0)), (), -1)
    built.add_file(table((3, 0), (1, 0)), (), -1)
    built.add_file(table((1, 0), (4, 0)), (), -1)
    first, second, third = built.files
    assert told(built, [first], [second]) == [("delete", 1, 0), ("delete", 2, 0)]
    assert sorted(told(built, [first, second], [masked(first, 0, 1, 2), third])) == [
        *[("delete", 1, 0)] * 2,
        ("delete", 2, 0),
        ("delete", 3, 0),
        ("insert", 4, 0),
    ]
