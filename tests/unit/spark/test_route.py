"""Buckets are divided evenly among tasks, whatever the partitions are called."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from plait.model.bucket import BucketSpec, Partition, partition_text
from plait.model.plan import LIVE, TableLayout, TableSpec
from plait.model.schema import Schema, plain_type
from plait.spark.route import Route

DAYS = [(str(dt.date(2026, 1, 1) + dt.timedelta(days=at)),) for at in range(64)]
CODES = [(f"p{at}",) for at in range(8)]
CITIES = [(name,) for name in ("Rome", "Oslo", "Wien", "Praha", "Lima", "Kyiv", "Riga", "Bern")]


def spec_of(kind: str, buckets: int = 2) -> TableSpec:
    columns = [pa.field("id", pa.int64()), pa.field("p", plain_type(kind))]
    schema = Schema.create(pa.schema(columns))
    return TableSpec(schema, TableLayout(("p",), BucketSpec(1, ("id",), buckets), None, "cow"))


def files_of(partitions: Sequence[Partition], sizes: Sequence[int], buckets: int = 2) -> pa.Table:
    """Give as much of LIVE as a route looks at: a file a bucket, as large as its partition says."""
    rows = [
        {"partition": partition_text(partition), "bucket": bucket, "bytes": size}
        for partition, size in zip(partitions, sizes, strict=True)
        for bucket in range(buckets)
    ]
    fields = [LIVE.field(name) for name in ("partition", "bucket", "bytes")]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def shares(route: Route, files: pa.Table) -> list[float]:
    """Give the part of the bytes that each task has."""
    found = np.bincount(route.tasks_of(files), files["bytes"].to_numpy(), minlength=route.tasks)
    return list(found / found.sum())


@pytest.mark.parametrize(
    ("kind", "partitions"),
    [("date", DAYS), ("string", DAYS), ("string", CODES), ("int", [(str(n),) for n in range(16)])],
)
@pytest.mark.parametrize("tasks", [4, 16])
def test_days_and_codes_of_a_new_table_go_to_all_tasks(
    kind: str, partitions: list[Partition], tasks: int
) -> None:
    spec = spec_of(kind)
    route = Route.plan(spec, columns=["id", "p"], wanted=tasks, files=LIVE.empty_table())
    files = files_of(partitions, [1] * len(partitions))
    assert route.tasks == tasks
    assert max(shares(route, files)) <= max(1.5 / tasks, 1 / len(partitions))


@pytest.mark.parametrize("partitions", [CITIES, CODES, DAYS])
@pytest.mark.parametrize("sizes", ["equal", "rising"])
def test_buckets_with_files_are_divided_by_their_bytes(
    partitions: list[Partition], sizes: str
) -> None:
    count = len(partitions)
    files = files_of(partitions, [1] * count if sizes == "equal" else range(1, count + 1))
    route = Route.plan(spec_of("string"), columns=["id", "p"], wanted=4, files=files)
    assert max(shares(route, files)) <= 0.35


def test_rows_without_their_partition_go_by_bucket_alone() -> None:
    """A delete by key meets every partition: one task must have a bucket number in all of them."""
    files = files_of(CITIES, [1] * len(CITIES), buckets=6)
    route = Route.plan(spec_of("string", 6), columns=["id"], wanted=4, files=files)
    assert route.tasks == 3
    assert route.tasks_of(files).tolist() == [n % 3 for n in files["bucket"].to_pylist()]


def test_very_many_buckets_are_divided_without_a_search() -> None:
    partitions = [(f"user {at}",) for at in range(6_000)]
    files = files_of(partitions, [1] * len(partitions))
    route = Route.plan(spec_of("string"), columns=["id", "p"], wanted=8, files=files)
    assert (route.tasks, route.shift) == (8, 0)
    assert max(shares(route, files)) <= 0.14
