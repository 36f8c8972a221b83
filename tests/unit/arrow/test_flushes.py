"""B1, B2: a bucket goes beyond its size, everything goes beyond the buffer's; predictably."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from plait.arrow.buffer import FlushPolicy
from plait.arrow.check import prepare
from plait.arrow.ingest import Intake, split
from plait.arrow.memory import MemoryLimits
from tests.support.livetable import LiveTable

A, B, C = ((), 0), ((), 1), ((), 2)


def test_a_bucket_is_flushed_once_it_exceeds_its_size() -> None:
    policy = FlushPolicy(MemoryLimits(bucket=100, buffer=1_000))
    assert policy.add({A: 100, B: 10}) == []
    assert policy.add({A: 1}) == [A]
    assert policy.sizes == {B: 10}


def test_the_whole_buffer_is_flushed_once_it_exceeds_its_size() -> None:
    policy = FlushPolicy(MemoryLimits(bucket=100, buffer=150))
    assert policy.add({A: 75, B: 75}) == []
    assert policy.add({C: 1}) == [A, B, C]
    assert policy.total == 0


def test_a_large_bucket_that_goes_may_spare_the_others() -> None:
    policy = FlushPolicy(MemoryLimits(bucket=100, buffer=150))
    policy.add({A: 90, B: 50})
    assert policy.add({A: 20}) == [A]
    assert policy.sizes == {B: 50}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("key", [(), ("id",)])
def test_the_number_of_flushes_is_the_one_predicted(key: tuple[str, ...], table_type: str) -> None:
    rng = np.random.default_rng(3)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("part", pa.string())])
    options = {"write.buffer.size": "32KiB", "write.bucket.size": "12KiB"}
    table = LiveTable(
        f"memory://flushes-{table_type}-{len(key)}",
        schema,
        key=key,
        partition_by=["part"],
        table_type=table_type,
        options=options,
    )
    data = pa.table(
        {
            "id": rng.integers(0, 1 << 30, 6_000),
            "text": [f"text {i}" * (i % 4) for i in range(6_000)],
            "part": np.array(["x", "x", "x", "y"])[rng.integers(0, 4, 6_000)],
        },
        schema=schema,
    )
    limits = MemoryLimits.of(table.options)
    batches = prepare(data, table.spec, piece_bytes=limits.chunk)
    intake, policy = Intake(limits, table.spec), FlushPolicy(limits)
    for came in chain(chain.from_iterable(map(intake.add, batches)), intake.rest()):
        policy.add(split(came.rows, table.spec).sizes)
    policy.rest()
    expected = policy.flushes
    status = table.write("upsert" if key else "append", data)
    assert status.stats.flushes == expected
    assert expected >= 10


def test_one_bucket_of_rows_of_one_width_is_flushed_every_so_many_chunks() -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64())])
    options = {"write.buffer.size": "256KiB", "write.bucket.size": "256KiB"}
    table = LiveTable("memory://flushes-even", schema, key=["id"], buckets=1, options=options)
    rows = 5 * (256 << 10) // 16
    data = pa.table({"id": np.arange(rows), "n": np.arange(rows)}, schema=schema)
    # 64 chunks make a buffer, the 65th exceeds it.
    chunks = 5 * 64
    assert table.write("upsert", data).stats.flushes == -(-chunks // 65)
    assert len(table.rows()) == rows
