"""Which task has which bucket: Spark and this library must agree, or rows would be there twice."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from plait.arrow.ingest import split
from plait.model.bucket import BucketSpec, Partition, partition_text
from plait.model.plan import LIVE, TableLayout, TableSpec
from plait.model.schema import Schema, plain_type
from plait.model.value import texts_of
from plait.spark.route import Route
from plait.spark.values import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY = dt.date(2026, 1, 30)
VALUES: dict[str, list[object]] = {
    "tinyint": [-128, -1, 0, 127, None],
    "int": [-(1 << 31), -7, 0, 5, (1 << 31) - 1, None],
    "bigint": [-(1 << 63), -7, 0, 5, (1 << 63) - 1, None],
    "string": ["", "p0", "p1", "žluťoučký \U0001f40e", "a/b=c", None],
    "date": [dt.date(1, 1, 1), DAY, dt.date(9999, 12, 31), None],
    "boolean": [True, False, None],
    "decimal(9,2)": [Decimal("-1.50"), Decimal("0.00"), None],
    "timestamp": [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
}


def spec_of(types: list[str]) -> TableSpec:
    """Lay a table out in 3 buckets a partition of columns p0, p1 and so on of these types."""
    names = [f"p{at}" for at in range(len(types))]
    columns = [pa.field(name, plain_type(kind)) for name, kind in zip(names, types, strict=True)]
    schema = Schema.create(pa.schema([pa.field("id", pa.int64()), *columns]))
    return TableSpec(schema, TableLayout(tuple(names), BucketSpec(1, ("id",), 3), None, "cow"))


TIMES = [
    dt.datetime(1, 1, 2, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2026, 2, 28, 13, 14, 15, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 30, tzinfo=dt.UTC),
]
PERIODS = ("year", "month", "day")
TRANSFORMS: list[tuple[str, str, list[object]]] = [
    *((f"{each}(c)", "timestamp", [*TIMES, None]) for each in (*PERIODS, "hour")),
    *((f"{each}(c)", "timestamp_ntz", [t.replace(tzinfo=None) for t in TIMES]) for each in PERIODS),
    *((f"{each}(c)", "date", VALUES["date"]) for each in PERIODS),
    *(("truncate(7, c)", kind, VALUES[kind]) for kind in ("tinyint", "int", "bigint", "string")),
    ("truncate(2, c)", "binary", [b"", b"\xff\x00\x01", b"a", None]),
    *(("bucket(5, c)", kind, values) for kind, values in VALUES.items()),
]


@pytest.mark.long(6)
@pytest.mark.parametrize(("field", "kind", "values"), TRANSFORMS)
def test_spark_and_the_driver_compute_the_same_partition(
    spark: SparkSession, field: str, kind: str, values: list[object]
) -> None:
    """INV-08: rows of one partition and bucket that two tasks stage would be there twice."""
    schema = Schema.create(pa.schema([pa.field("id", pa.int64()), pa.field("c", plain_type(kind))]))
    spec = TableSpec(schema, TableLayout((field,), BucketSpec(1, ("id",), 3), None, "cow"))
    rows = pa.Table.from_pylist(
        [{"id": at, "c": value} for at, value in enumerate(values * 3)], schema=schema.arrow
    )
    frame = spark.createDataFrame(rows)
    (batch,) = rows.combine_chunks().to_batches()
    for shift in SHIFTS:
        route = Route(spec, 7, by_partition=True, shift=shift)
        task = route.task(Values.of(frame)).alias("task")
        sent = frame.select("id", task).toArrow().sort_by("id")["task"].to_pylist()
        assert route.tasks_of_rows(batch).tolist() == sent
        places = [
            (group, sent[number])
            for group, (start, stop) in split(batch, spec).spans.items()
            for number in split(batch, spec).rows["id"][start:stop].to_pylist()
        ]
        assert all(route.task_of(group) == task for group, task in places)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", [(), ("a",), ("b",)])
def test_buckets_by_a_part_of_the_key_are_the_same_in_spark(
    spark: SparkSession, by: tuple[str, ...]
) -> None:
    """INV-08."""
    schema = Schema.create(pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())]))
    spec = TableSpec(schema, TableLayout((), BucketSpec(1, ("a", "b"), 5, by), None, "cow"))
    rows = pa.table({"a": [n % 9 for n in range(90)], "b": [f"b{n % 10}" for n in range(90)]})
    route = Route(spec, 5, by_partition=False)
    task = route.task(Values.of(spark)).alias("task")
    sent = spark.createDataFrame(rows).select("a", "b", task).toArrow()
    (batch,) = rows.combine_chunks().to_batches()
    assert route.tasks_of_rows(batch).tolist() == sent["task"].to_pylist()
    for part in by:
        together = sent.group_by(part).aggregate([("task", "count_distinct")])
        assert set(together["task_count_distinct"].to_pylist()) == {1}
    groups = split(batch, spec).spans
    assert sorted(groups, key=str) == [((), n) for n in sorted(set(sent["task"].to_pylist()))]


def files_of(partitions: list[Partition], buckets: list[int], sizes: list[int]) -> pa.Table:
    """Give as much of LIVE as a route looks at."""
    columns = {"partition": map(partition_text, partitions), "bucket": buckets, "bytes": sizes}
    fields = [LIVE.field(name) for name in columns]
    return pa.table([pa.array(list(c)) for c in columns.values()], schema=pa.schema(fields))


SHIFTS = (None, 0, 1, 31)


@pytest.mark.parametrize("kind", VALUES)
def test_spark_and_the_driver_send_a_row_to_the_same_task(spark: SparkSession, kind: str) -> None:
    """INV-08: a task that looked for a key in other buckets than its own would write it twice."""
    spec = spec_of([kind, "int"])
    routes = [Route(spec, 7, by_partition=True, shift=shift) for shift in SHIFTS]
    pairs = list(itertools.product(VALUES[kind], [0, 1, -1, None, 9]))
    named = [{"id": at, "p0": a, "p1": b} for at, (a, b) in enumerate(pairs)]
    rows = pa.Table.from_pylist(named, schema=spec.schema.arrow)
    frame = spark.createDataFrame(rows)
    tasks = [route.task(Values.of(frame)).alias(f"task {route.shift}") for route in routes]
    sent = (
        frame.selectExpr("*", "pmod(xxhash64(id), 3) AS bucket").select(*tasks, "bucket").toArrow()
    )
    partitions = list(
        zip(*(texts_of(rows[name]) for name in spec.layout.partition_by), strict=True)
    )
    buckets = sent["bucket"].to_pylist()
    (batch,) = rows.combine_chunks().to_batches()
    for route in routes:
        task = sent[f"task {route.shift}"].to_pylist()
        files = files_of(partitions, buckets, [1] * len(pairs))
        assert route.tasks_of(files).tolist() == task
        assert route.tasks_of_rows(batch).tolist() == task
        assert [route.task_of(place) for place in zip(partitions, buckets, strict=True)] == task
