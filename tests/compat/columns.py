"""A golden table whose columns come with rows, get other names, and have to hold checks."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa
import xxhash

from plait.services.definition.drop import drop_table, undrop_table
from tests.compat.golden import Golden, Row

_DAY = dt.timedelta(days=1)


def named() -> Golden:
    """Key, partition and ordering get other names; rows bring columns; checks come and go."""
    golden = Golden(
        "named",
        "id bigint, at timestamp_ntz, n int, s struct<a:int>",
        record_key=("id",),
        partition_by=("day(at)",),
        ordering="n",
        buckets=2,
        table_type="mor",
        properties={"checkpoint.interval": 3},
        checks={"positive": "n > 0"},
    )
    table, rows = golden.table, dict[int, Row]()
    start = dt.datetime(2026, 1, 31)  # noqa: DTZ001 - of no zone

    def told() -> None:
        golden.shows(rows.values())

    rows |= {k: {"id": k, "at": start + k % 2 * _DAY, "n": 1, "s": {"a": k}} for k in range(5)}
    table.upsert(golden.arrow(rows.values()))
    told()
    table.alter.columns().rename("id", "key").rename("at", "moment").rename("n", "rank").commit()
    names = {"id": "key", "at": "moment", "n": "rank", "s": "s"}
    rows = {k: {names[name]: value for name, value in row.items()} for k, row in rows.items()}
    told()
    fresh: Row = {"key": 1, "moment": start + _DAY, "rank": 2, "s": {"a": 1, "b": "new"}}
    member = pa.struct([("a", pa.int32()), ("b", pa.string())])
    known = table.schema
    kinds = [*list(known)[:3], pa.field("s", member), pa.field("note", pa.string())]
    brought = pa.Table.from_pylist([{**fresh, "note": "it"}], schema=pa.schema(kinds))
    table.upsert(brought, evolve="add")
    for row in rows.values():
        whole = row["s"]
        row |= {"s": {**whole, "b": None} if isinstance(whole, dict) else None, "note": None}
    rows[1] = {**fresh, "note": "it"}
    told()
    table.alter.columns().add_check("noted", "note IS NULL OR length(note) > 1").require(
        "s"
    ).commit()
    told()
    table.layout.repush(buckets=3)
    told()
    table.alter.columns().rename("key", "id").drop_check("positive").commit()
    rows = {k: {"id" if n == "key" else n: v for n, v in row.items()} for k, row in rows.items()}
    told()
    table.delete(where="id = 2")
    rows.pop(2)
    told()
    table.versions.restore(version=1)
    first = {k: {"id": k, "at": start + k % 2 * _DAY, "n": 1, "s": {"a": k}} for k in range(5)}
    golden.shows(first.values())
    return golden


def published() -> Golden:
    """A Delta log beside the files; columns get other names, old ones come back, types widen."""
    return _published("published", "delta", "1h")


def published_iceberg() -> Golden:
    """The same with Iceberg metadata, which only the calls below write, not a thread."""
    return _published("published_iceberg", "iceberg", "0s")


def _published(name: str, target: str, deadline: str) -> Golden:
    golden = Golden(
        name,
        "id bigint, v int, s struct<a:int,b:string>",
        record_key=("id",),
        table_type="mor",
        buckets=1,
        properties={"publish": target, "publish.deadline": deadline, "checkpoint.interval": 3},
    )
    table, rows = golden.table, dict[int, Row]()
    table.maintenance.publish()

    def told() -> None:
        golden.shows(rows.values())
        table.maintenance.publish()

    rows |= {k: {"id": k, "v": k, "s": {"a": k, "b": "old"}} for k in range(4)}
    table.upsert(golden.arrow(rows.values()))
    told()
    table.delete(where="id = 3")
    rows.pop(3)
    told()
    table.alter.columns().rename("v", "w").rename("s.a", "c").widen("w", "bigint").commit()
    for key in rows:
        rows[key] = {"id": key, "w": key, "s": {"c": key, "b": "old"}}
    told()
    rows[1] = {"id": 1, "w": 1 << 40, "s": {"c": 7, "b": None}}
    table.upsert(golden.arrow([rows[1]]))
    told()
    table.alter.columns().drop("w").add("v", "string", after="id").add("s.a", "date").commit()
    for key, row in rows.items():
        member = row["s"]
        assert isinstance(member, dict)
        rows[key] = {"id": key, "s": {**member, "a": None}, "v": None}
    told()
    rows[2] = {"id": 2, "s": {"c": 2, "b": "", "a": dt.date(2026, 1, 31)}, "v": "again"}
    table.upsert(golden.arrow([rows[2]]))
    told()
    return golden


def dropped() -> Golden:
    """The table was dropped and taken back, twice; a row was written between."""
    golden = Golden("dropped", "id bigint, v int", record_key=("id",), buckets=1)
    table, rows = golden.table, dict[int, Row]()
    for key in range(2):
        rows[key] = {"id": key, "v": key}
        table.upsert(golden.arrow([rows[key]]))
        golden.shows(rows.values())
        handle = table._handle
        drop_table(handle)
        golden.shows(rows.values())
        undrop_table(replace(handle, contract=handle.cache.refresh().table.contract))
        golden.shows(rows.values())
    return golden


def generated() -> Golden:
    """Columns come from others: from the start, later, under new names, and no longer."""
    golden = Golden(
        "generated",
        "id bigint, at timestamp, day date, name string, shard int, price int, total bigint",
        record_key=("id",),
        partition_by=("day",),
        table_type="mor",
        properties={"checkpoint.interval": 3},
        generated={"day": "day(at)", "shard": "bucket(4, name)"},
    )
    table, rows = golden.table, dict[int, Row]()
    start = dt.datetime(2026, 1, 31, 18, tzinfo=dt.UTC)
    shards: dict[str | None, object] = {
        name: xxhash.xxh64_intdigest(name.encode(), seed=42) % 4 for name in "abc"
    }

    def put(key: int, name: str | None) -> None:
        at = start + key * dt.timedelta(hours=5)
        known: Row = {"id": key, "at": at, "day": at.date(), "name": name}
        rows[key] = {**known, "shard": shards.get(name), "price": key, "total": None}

    def told() -> None:
        golden.shows(rows.values())

    for key, name in enumerate(["a", "b", None, "c"]):
        put(key, name)
    given = golden.arrow(rows.values())
    table.upsert(given.drop_columns(["day", "shard"]))
    told()
    put(1, "c")
    table.upsert(golden.arrow([rows[1]]))
    told()
    table.update({"name": "'a'", "total": "price * 2"})
    for row in rows.values():
        row |= {"name": "a", "shard": shards["a"], "total": int(str(row["price"])) * 2}
    told()
    table.alter.columns().generate("total", "price * 2").rename("price", "each price").commit()
    for key, row in rows.items():
        kept = {("each price" if name == "price" else name): value for name, value in row.items()}
        rows[key] = kept
    told()
    table.update({"each price": "7"}, where="day = DATE '2026-02-01' AND id < 3")
    rows[2] |= {"each price": 7, "total": 14}
    told()
    table.alter.columns().generate("shard", None).drop("total").commit()
    for row in rows.values():
        row.pop("total")
    told()
    table.update({"shard": "9"}, where="id = 0")
    rows[0] |= {"shard": 9}
    told()
    return golden
