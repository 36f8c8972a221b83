"""Keys that tasks looked up count as read, as with Arrow (INV-07, RFC 0011)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from plait import Table, Update
from plait.errors import RetryableConflictError
from plait.model.clauses import Clauses
from plait.model.request import WriteRequest
from plait.write.request import merge_request, write_request
from tests.integration.spark.tables import DDL, arrow_rows, assert_sound, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Make = Callable[["SparkSession", Table], tuple[WriteRequest, "DataFrame"]]


def _order(table: Table, operation: str, on_duplicate: str = "raise") -> WriteRequest:
    return write_request(
        operation, table._handle.cache.known().table.spec, on_duplicate=on_duplicate
    )


def _merge(spark: SparkSession, table: Table) -> tuple[WriteRequest, DataFrame]:
    clauses = Clauses(matched=(Update(),))
    order = merge_request(clauses, None, table._handle.cache.known().table.spec)
    return order, frame(spark, 100, 104, 1)


ABSENT: dict[str, Make] = {
    "delete": lambda s, t: (_order(t, "delete"), frame(s, 100, 104, 1).select("id", "part")),
    "delete in every partition": lambda s, t: (
        _order(t, "delete"),
        frame(s, 98, 104, 1).select("id"),
    ),
    "merge that only updates": _merge,
}
PRESENT: dict[str, Make] = {
    "insert that skips": lambda s, t: (_order(t, "insert", "skip"), frame(s, 0, 4, 9)),
    "upsert that loses": lambda s, t: (_order(t, "upsert"), frame(s, 0, 4, -1)),
}


def row(key: int, rev: int, place: str | None = None) -> pa.Table:
    part = place or f"p{key % 3}"
    return pa.table({"id": [key], "part": [part], "rev": [rev], "name": ["theirs"]})


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_key_that_a_task_looked_up_is_protected(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    """INV-07: also in partitions and buckets that no task had a file of; other keys commit."""
    numbers = itertools.count()
    for name, make in {**ABSENT, **PRESENT}.items():
        key = 102 if name in ABSENT else 2
        place = "new" if "every" in name else None
        others = [(row(key, 50, place), True), (row(200, 50), False)]
        for theirs, refused in others if place else others[:1]:
            table = Table.create(
                str(tmp_path / str(next(numbers))),
                DDL,
                record_key=["id"],
                partition_by=["part"],
                table_type=table_type,
                buckets=2,
                ordering="rev",
                isolation="serializable",
            )
            table.upsert(arrow_rows(0, 9, 1))
            order, data = make(spark, table)
            writer = table._writer(order).__enter__()
            writer.write(data)
            table.upsert(theirs)
            if refused:
                with pytest.raises(RetryableConflictError):
                    writer.__exit__(None, None, None)
            else:
                writer.__exit__(None, None, None)
                assert writer.result.stats.keys_unchanged == 6
            assert_sound(table)
