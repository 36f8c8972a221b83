"""A table with generated columns, and rows for it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa

from plait import Table
from tests.support.build import again

DDL = "id bigint, at timestamp, price int, amount int, day date, total bigint"
RULES = {"day": "day(at)", "total": "price * amount"}
_BEGIN = dt.datetime(2026, 1, 30, 20, tzinfo=dt.UTC)
_ZONED = pa.timestamp("us", "UTC")


def make(uri: str, **how: object) -> Table:
    asked: dict[str, object] = {"record_key": "id", "buckets": 2, "generated": RULES, **how}
    return Table.create(uri, asked.pop("ddl", DDL), **asked)  # type: ignore[arg-type]  # of several tests


def rows(ids: Sequence[int], price: int | None = 2, hours: int = 12) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array([_BEGIN + dt.timedelta(hours=hours * n) for n in ids], _ZONED),
            "price": pa.array([price] * len(ids), pa.int32()),
            "amount": pa.array(ids, pa.int32()),
        }
    )


def content(table: Table, where: str | None = None) -> dict[int, dict[str, object]]:
    return {row["id"]: row for row in again(table).scan(where=where).to_arrow().to_pylist()}


def require_generated(table: Table) -> None:
    """INV-04: every row has the value that plain Python computes."""
    for row in content(table).values():
        moment, price, amount = row["at"], row["price"], row["amount"]
        assert row["day"] == (moment.date() if isinstance(moment, dt.datetime) else None)
        known = isinstance(price, int) and isinstance(amount, int)
        assert row["total"] == (price * amount if known else None)  # type: ignore[operator]  # of numbers
    assert not table.check.verify(data=True).problems


def wrong(ids: Sequence[int], **others: object) -> pa.Table:
    """Return rows of which one brings another value."""
    values = [2 * n for n in ids[:-1]] + [77]
    return rows(ids).append_column("total", pa.array(values, pa.int64()))
