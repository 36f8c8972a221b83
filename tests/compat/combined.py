"""Golden tables with several features at once, and with features that came and went (RFC 0029)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from tests.compat.golden import Golden, Row

BASE = ("slots-1",)


def _put(golden: Golden, rows: dict[int, Row], fresh: Iterable[Row]) -> None:
    """Upsert rows, and note what the table shows."""
    named = {int(str(each["id"])): each for each in fresh}
    rows.update(named)
    golden.table.upsert(golden.arrow(named.values()))
    golden.shows(rows.values())


def combined() -> Golden:
    """Every feature that one table can have at once, but for sinks."""
    golden = Golden(
        "combined",
        "id bigint, user string, day date, v int",
        record_key=("id", "user"),
        partition_by=("month(day)",),
        bucket_by=("user",),
        buckets=2,
        table_type="mor",
        properties={"checkpoint.interval": "2", "archive.keep": "3", "rows.written": "on"},
    )
    rows: dict[int, Row] = {}

    def row(number: int, v: int, **more: object) -> Row:
        day = dt.date(2999, 1 + number % 3, 1)
        return {"id": number, "user": f"u{number % 4}", "day": day, "v": v, **more}

    table = golden.table
    _put(golden, rows, [row(number, 0) for number in range(12)])
    table.alter.set_ttl("day 30d")
    golden.shows(rows.values())
    table.versions.savepoint("first")
    golden.shows(rows.values())
    _put(golden, rows, [row(number, 1) for number in range(0, 12, 5)])
    table.maintenance.compact(full=True)
    golden.shows(rows.values())
    table.versions.restore(savepoint="first")
    rows = {number: row(number, 0) for number in range(12)}
    golden.shows(rows.values())
    table.layout.repush(buckets=1)
    golden.shows(rows.values())
    table.alter.columns().add("note", "string", default="none").commit()
    for each in rows.values():
        each["note"] = "none"
    golden.shows(rows.values())
    for number in range(6):
        _put(golden, rows, [row(number, 2, note=None)])
    table.maintenance.archive()
    golden.shows(rows.values())
    _put(golden, rows, [row(1, 3, note="last")])
    return golden


def upgraded() -> Golden:
    """A list of features: writers must know all of them, readers those in use."""
    golden = Golden(
        "upgraded",
        "id bigint, v string",
        record_key=("id",),
        buckets=1,
        properties={"checkpoint.interval": "3"},
    )
    rows: dict[int, Row] = {}
    table = golden.table
    _put(golden, rows, [{"id": n, "v": "before"} for n in range(4)])
    table.alter.downgrade(to=BASE)
    golden.shows(rows.values())
    table.alter.upgrade(features=["restores-1", "rows-written-1", "archive-1"])
    golden.shows(rows.values())
    _put(golden, rows, [{"id": 1, "v": "listed"}])
    table.versions.savepoint("used")
    golden.shows(rows.values())
    table.alter.set({"rows.written": "on"})
    golden.shows(rows.values())
    _put(golden, rows, [{"id": 2, "v": "used"}])
    return golden


def downgraded() -> Golden:
    """What was in use is gone again: a checkpoint and the decisions after it name nothing of it."""
    golden = Golden(
        "downgraded",
        "id bigint, v string",
        record_key=("id",),
        buckets=1,
        properties={"rows.written": "on"},
    )
    rows: dict[int, Row] = {}
    table = golden.table
    _put(golden, rows, [{"id": n, "v": "before"} for n in range(4)])
    table.versions.savepoint("short")
    golden.shows(rows.values())
    table.versions.drop_savepoint("short")
    golden.shows(rows.values())
    table.alter.set({"rows.written": "off"})
    golden.shows(rows.values())
    table.alter.downgrade(to=BASE)
    golden.shows(rows.values())
    _put(golden, rows, [{"id": 1, "v": "after"}])
    table.alter.upgrade(features=["restores-1"])
    golden.shows(rows.values())
    table.alter.downgrade(to=BASE)
    golden.shows(rows.values())
    _put(golden, rows, [{"id": 9, "v": "last"}])
    return golden
