"""Rows are divided by partition and bucket as Spark would, and none is lost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from plait.arrow.ingest import split
from plait.files.hash import bucket_of, key_hashes
from plait.model.bucket import UNKEYED, BucketSpec
from plait.model.plan import COW, TableLayout, TableSpec
from plait.model.schema import Schema

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("n", pa.int32()), ("at", pa.int64())]
)


def spec_of(key: tuple[str, ...] = ("id",), partition_by: tuple[str, ...] = ()) -> TableSpec:
    return TableSpec(
        Schema.create(SCHEMA), TableLayout(partition_by, BucketSpec(0, key, 4), None, COW)
    )


def batch_of(count: int, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    days = np.array(["", "a/b", "ü=%", None], dtype=object)
    return pa.record_batch(
        {
            "id": rng.integers(0, count, count),
            "day": pa.array(days[rng.integers(0, 4, count)]),
            "n": pa.array(
                [None if v == 0 else int(v) for v in rng.integers(0, 3, count)], pa.int32()
            ),
            "at": np.arange(count),
        }
    )


@pytest.mark.parametrize("partition_by", [(), ("day",), ("day", "n")])
@pytest.mark.parametrize("key", [(), ("id",), ("id", "day")])
def test_every_row_is_in_the_group_of_its_values(
    key: tuple[str, ...], partition_by: tuple[str, ...]
) -> None:
    batch = batch_of(500)
    spec = spec_of(key, partition_by)
    chunk = split(batch, spec)
    numbers = bucket_of(key_hashes(batch, key), 4).tolist() if key else [UNKEYED] * 500
    wanted = {
        row["at"]: (row, number) for row, number in zip(batch.to_pylist(), numbers, strict=True)
    }
    seen = 0
    for (partition, bucket), (start, stop) in chunk.spans.items():
        for row in chunk.rows.slice(start, stop - start).to_pylist():
            original, number = wanted.pop(row["at"])
            assert row == original
            assert bucket == number
            texts = tuple(None if row[c] is None else str(row[c]) for c in partition_by)
            assert partition == texts
            seen += 1
    assert seen == 500
    assert not wanted


def test_each_part_is_sorted_by_key_and_keeps_the_order_of_equal_keys() -> None:
    chunk = split(batch_of(500), spec_of(("id",), ("day",)))
    for start, stop in chunk.spans.values():
        part = chunk.rows.slice(start, stop - start)
        pairs = list(zip(part["id"].to_pylist(), part["at"].to_pylist(), strict=True))
        assert pairs == sorted(pairs)


def test_rows_of_a_table_without_a_key_keep_their_order() -> None:
    chunk = split(batch_of(500), spec_of((), ("day",)))
    for start, stop in chunk.spans.values():
        order = chunk.rows.slice(start, stop - start)["at"].to_pylist()
        assert order == sorted(order)


def test_keys_without_partition_columns_belong_to_any_partition() -> None:
    keys = batch_of(20).select(["id"])
    assert {partition for partition, _ in split(keys, spec_of(("id",), ("day",))).spans} == {None}


def test_the_largest_groups_come_first() -> None:
    sizes = list(split(batch_of(500), spec_of(("id",), ("day",))).sizes.values())
    assert sizes == sorted(sizes, reverse=True)


def test_many_partition_columns_with_many_values_stay_apart() -> None:
    count = 3_000
    names = [f"c{i}" for i in range(6)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    columns = {name: pa.array(np.arange(count)) for name in names}
    spec = TableSpec(
        Schema.create(schema), TableLayout(tuple(names), BucketSpec(0, (), 1), None, COW)
    )
    chunk = split(pa.record_batch(columns), spec)
    assert len(chunk.spans) == count
