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
def test_every_row_is_in_the_group_of_its_values_and_in_its_order_there(
    key: tuple[str, ...], partition_by: tuple[str, ...]
) -> None:
    batch = batch_of(500)
    spec = spec_of(key, partition_by)
    chunk = split(batch, spec)
    numbers = bucket_of(key_hashes(batch, key), 4).tolist() if key else [UNKEYED] * 500
    wanted = {
        row["at"]: (row, number) for row, number in zip(batch.to_pylist(), numbers, strict=True)
    }
    for (partition, bucket), (start, stop) in chunk.spans.items():
        for row in chunk.rows.slice(start, stop - start).to_pylist():
            original, number = wanted.pop(row["at"])
            assert row == original
            assert bucket == number
            texts = tuple(None if row[c] is None else str(row[c]) for c in partition_by)
            assert partition == texts
        if key != ("id", "day"):  # texts and nulls have an order of their own
            part = chunk.rows.slice(start, stop - start).select([*key, "at"])
            order = [tuple(row.values()) for row in part.to_pylist()]
            assert order == sorted(order), "by key, of equal keys as they came"
    assert not wanted
    sizes = list(chunk.sizes.values())
    assert sizes == sorted(sizes, reverse=True), "the largest groups come first"


def test_keys_without_partition_columns_belong_to_any_partition() -> None:
    keys = batch_of(20).select(["id"])
    assert {partition for partition, _ in split(keys, spec_of(("id",), ("day",))).spans} == {None}


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
