"""Sorting a file by key in bounded memory: the same rows, each with its own position."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plait.errors import StorageError
from plait.read import key_sort
from plait.read.join import SortedBatch
from plait.read.key_sort import each_sorted, sorted_by_key


def blocks(ids: list[int], size: int, *, placed: bool) -> Iterator[SortedBatch]:
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        table = pa.table({"v": [str(each) for each in part], "id": pa.array(part, pa.int64())})
        at = np.arange(start, start + len(part), dtype=np.uint64)
        yield SortedBatch(table, at if placed else None)


@example(ids=[0, 0, 0], size=2, size_bytes=1, placed=True)  # one key in two blocks of a run
@given(
    ids=st.lists(st.integers(-1000, 1000), max_size=400),
    size=st.integers(1, 60),
    size_bytes=st.integers(1, 4_000),
    placed=st.booleans(),
)
def test_rows_come_in_the_order_of_their_keys_with_their_positions(
    ids: list[int], size: int, size_bytes: int, *, placed: bool
) -> None:
    """Equal keys in the order of the file, though runs are merged on the way."""
    found = list(sorted_by_key(blocks(ids, size, placed=placed), ["id"], size_bytes))
    got = [each for block in found for each in block.rows["id"].to_pylist()]
    assert got == sorted(ids)
    assert [each for block in found for each in block.rows["v"].to_pylist()] == list(map(str, got))
    if placed:
        positions = [int(at) for block in found for at in block.positions]  # type: ignore[union-attr]
        assert positions == sorted(range(len(ids)), key=lambda at: (ids[at], at))
    else:
        assert all(block.positions is None for block in found)


def test_a_block_sorted_by_itself_keeps_its_rows() -> None:
    first, second = each_sorted(blocks([3, 1, 9, 2], 2, placed=True), ["id"])
    assert first.rows["id"].to_pylist() == [1, 3]
    assert first.positions is not None
    assert first.positions.tolist() == [1, 0]
    assert second.rows["id"].to_pylist() == [2, 9]


def test_a_local_disk_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr("tempfile.tempdir", f"{tmp_path}/nowhere")
    with pytest.raises(StorageError, match="nowhere"):
        list(sorted_by_key(blocks([2, 1], 1, placed=True), ["id"], 1))


def test_a_row_is_written_a_few_times_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs are merged with runs of their size."""
    written, real = [], key_sort._with_positions

    def counted(block: SortedBatch) -> pa.Table:
        written.append(block.rows.num_rows)
        return real(block)

    monkeypatch.setattr(key_sort, "_FAN_IN", 4)
    monkeypatch.setattr(key_sort, "_with_positions", counted)
    ids = [each * 7919 % 640 for each in range(640)]
    found = list(sorted_by_key(blocks(ids, 10, placed=True), ["id"], 1))
    assert [each for block in found for each in block.rows["id"].to_pylist()] == list(range(640))
    assert 640 < sum(written) <= 640 * (1 + 3)
