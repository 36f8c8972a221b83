"""``compare(spark=...)``: executors hash the rows, and find what this process finds."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table

pytestmark = pytest.mark.spark

_SCHEMA = "id bigint, day date, at timestamp, name string, price decimal(20,4), tags array<string>"
_COUNT = 5_000


def _rows(ids: range, extra: str = "") -> pa.Table:
    day, at = dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return pa.table(
        {
            "id": list(ids),
            "day": [day + dt.timedelta(days=n % 5) for n in ids],
            "at": [at + dt.timedelta(seconds=n) for n in ids],
            "name": [None if n % 7 == 0 else f"n{n}{extra}" for n in ids],
            "price": pa.array(list(ids), pa.decimal128(20, 4)),
            "tags": [["a", None][: n % 3] for n in ids],
        }
    )


def test_executors_find_the_same_differences_as_this_process(spark, tmp_path: Path) -> None:
    one = Table.create(str(tmp_path / "one"), _SCHEMA, record_key="id", buckets=4)
    two = Table.create(
        str(tmp_path / "two"), _SCHEMA, record_key="id", partition_by="day", table_type="mor"
    )
    one.upsert(_rows(range(_COUNT)))
    two.upsert(_rows(range(_COUNT)))
    assert one.inspect.compare(two, spark=spark).equal
    two.upsert(_rows(range(40, 42), "!"))
    two.delete(where="id = 4999")
    far, near = one.inspect.compare(two, spark=spark), one.inspect.compare(two)
    assert (far.missing, far.extra, far.changed) == (1, 0, 2)
    assert (near.missing, near.extra, near.changed) == (1, 0, 2)
    assert far.sample.equals(near.sample)
    assert one.inspect.compare(two, where="id < 40", spark=spark).equal
