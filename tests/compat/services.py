"""Golden tables of services: restores, expiries, archives and repushes (see ``make_v1``)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from unittest import mock

from plait import Ttl
from plait.repush.begin import NewLayout, begin
from plait.timeline import paths
from tests.compat.golden import Golden, Row

UTC = dt.UTC


def ordered() -> Golden:
    """Buckets in an order of columns with key indexes, and what is written into them."""
    golden = Golden(
        "ordered",
        "id int, day string, v int",
        record_key=("id",),
        table_type="mor",
        buckets=2,
        properties={"cluster.by": "day,v", "cluster.kind": "sort"},
    )
    table = golden.table
    rows: list[Row] = [{"id": n, "day": "abc"[n * 7 % 3], "v": n * 5 % 8} for n in range(12)]
    table.insert(golden.arrow(rows))
    golden.shows(rows)
    with mock.patch("plait.arrow.output.ORDERED_GROUP_ROWS", 2):  # so that there are key indexes
        table.cluster()
    golden.shows(rows)
    table.upsert(golden.arrow([{"id": 4, "day": "z", "v": -1}]))
    rows[4] = {"id": 4, "day": "z", "v": -1}
    golden.shows(rows)
    with mock.patch("plait.arrow.output.ORDERED_GROUP_ROWS", 2):
        table.compact(full=True)
    golden.shows(rows)
    return golden


def restored() -> Golden:
    """Merge on read: savepoints, restores, what they undo, replays, a clean that spares."""
    golden = Golden(
        "restored",
        "id bigint, v string",
        record_key=("id",),
        buckets=1,
        table_type="mor",
        properties={
            "clean.retain.time": "0s",
            "clean.grace": "0s",
            "clean.retain.versions": "3",
            "checkpoint.interval": "4",
        },
    )
    table, stream = golden.table, golden.table.stream("loader")

    def put(text: str, *ids: int, commit_id: str | None = None) -> None:
        table.upsert(golden.arrow({"id": n, "v": text} for n in ids), commit_id=commit_id)
        golden.shows({**rows(), **{n: {"id": n, "v": text} for n in ids}}.values())

    def rows(version: int | None = None) -> dict[object, Row]:
        known = golden.rows[max(golden.rows) if version is None else version]
        return {row["id"]: row for row in known}

    def back(version: int, step: Callable[[], object]) -> None:
        step()
        golden.shows(rows(version).values())

    def epoch(text: str, end: str) -> None:
        with stream.writer("upsert", after=stream.position, end=end) as writer:
            writer.write(golden.arrow([{"id": int(end), "v": text}]))
        golden.shows({**rows(), int(end): {"id": int(end), "v": text}}.values())

    put("first", 1, 2, 3)
    put("second", 2, 4, commit_id="again")
    table.savepoint("kept")
    table.savepoint("dropped", version=1)
    epoch("streamed", "10")
    table.drop_savepoint("dropped")
    back(1, lambda: table.restore(version=1))
    put("third", 3)
    back(2, lambda: table.restore(savepoint="kept"))
    put("fourth", 1, 5)
    back(2, table.undo)
    table.replay()
    epoch("streamed again", "10")
    back(1, lambda: table.restore(version=1, replay=True))
    put("second", 2, 4, commit_id="again")
    back(max(golden.rows), table.clean)
    put("fifth", 6)
    return golden


def expired() -> Golden:
    """Rows and partitions that expire, hidden and removed, on a copy-on-write table."""
    golden = Golden(
        "expired",
        "id bigint, at timestamp, p string",
        record_key=("id",),
        partition_by=("p",),
        buckets=1,
        ttl=Ttl("at", 86_400),
        properties={"checkpoint.interval": "3"},
    )
    table = golden.table
    start = dt.datetime(2026, 1, 1, tzinfo=UTC)
    old, older, new = (start + dt.timedelta(hours=hours) for hours in (-30, -300, 300))
    times: list[tuple[str, dt.datetime | None]] = [
        ("a", old), ("a", new), ("a", None), ("b", older), ("b", older), ("c", old), ("c", new)
    ]  # fmt: skip
    rows = [{"id": number, "at": at, "p": p} for number, (p, at) in enumerate(times)]

    def kept(*ids: int) -> None:
        golden.shows(row for row in rows if row["id"] in ids)

    table.upsert(golden.arrow(rows))
    kept(*range(7))
    table.expire()
    kept(1, 2, 6)
    table.restore(version=1)
    kept(*range(7))
    table.set_ttl("at 8d partition")
    kept(*range(7))
    table.expire()
    kept(0, 1, 2, 5, 6)
    table.set_ttl("at 1d")
    kept(0, 1, 2, 5, 6)
    table.expire()
    kept(1, 2, 6)
    table.compact(full=True)
    kept(1, 2, 6)
    table.set_ttl(None)
    kept(1, 2, 6)
    return golden


def written() -> Golden:
    """Rows that say who wrote them, beside what the files say: they are copied again and again."""
    golden = Golden(
        "written",
        "id bigint, by bigint",
        record_key=("id",),
        buckets=1,
        ttl=Ttl("written", 100),
        properties={"rows.written": "on", "checkpoint.interval": "3"},
    )
    table = golden.table
    rows: dict[int, Row] = {}

    def put(*ids: int) -> None:
        fresh = {n: {"id": n, "by": table.version + 1} for n in ids}
        rows.update(fresh)
        table.upsert(golden.arrow(fresh.values()))
        golden.shows(rows.values())

    put(1, 2)
    put(3)
    put(2, 4)
    table.compact(full=True)
    golden.shows(rows.values())
    table.update({"by": str(table.version + 1)}, where="id = 3")
    rows[3] = {"id": 3, "by": table.version}
    golden.shows(rows.values())
    table.cluster("by")
    golden.shows(rows.values())
    table.restore(version=2)
    rows = {int(str(row["id"])): row for row in golden.rows[2]}
    golden.shows(rows.values())
    table.delete(where="id = 1")
    del rows[1]
    golden.shows(rows.values())
    golden.clock.advance(92.5)  # version 1 is over, version 2 is not
    table.expire()
    del rows[2]
    golden.shows(rows.values())
    put(5)
    return golden


def archived() -> Golden:
    """Decisions in two files of the archive, and a slot that is not emptied yet."""
    golden = Golden(
        "archived",
        "id bigint, v string",
        record_key=("id",),
        buckets=2,
        properties={"checkpoint.interval": "2", "archive.keep": "2"},
    )
    table = golden.table
    rows: dict[int, Row] = {}

    def put(text: str, *ids: int) -> None:
        rows.update({n: {"id": n, "v": text} for n in ids})
        table.upsert(golden.arrow(rows[n] for n in ids))
        golden.shows(rows.values())

    put("first", *range(10))
    for number in range(7):
        put(f"change {number}", number)
    table.archive()
    golden.shows(rows.values())
    for number in range(4):
        put(f"later {number}", number)
    store, last = golden.store, paths.slot(table.plan_archive().last)
    body = store.find(last) or b""
    table.archive()
    store.put(last, body)  # as if the archive had been killed before its last slot
    golden.shows(rows.values())
    put("last", 1_000)
    return golden


def repushed() -> Golden:
    """Three layouts: a repush beside a writer, a restore over it, one cancelled, one open."""
    golden = Golden(
        "repushed",
        "id bigint, day string, v string",
        record_key=("id",),
        buckets=2,
        properties={"checkpoint.interval": "4"},
    )
    table = golden.table
    rows: dict[int, Row] = {}

    def put(text: str, *ids: int) -> None:
        rows.update({n: {"id": n, "day": "ab"[n % 2], "v": text} for n in ids})
        table.upsert(golden.arrow(rows[n] for n in ids))
        golden.shows(rows.values())

    def remove(*ids: int) -> None:
        keys = [{"id": n, "day": rows.pop(n)["day"]} for n in ids]
        wanted = ("id", *table.handle.cache.refresh().table.spec.partition_by)
        table.delete(keys=golden.arrow({**each, "v": None} for each in keys).select(wanted))
        golden.shows(rows.values())

    put("first", *range(12))
    before = dict(rows)
    begin(table.handle, NewLayout(3, ("day",), table_type="mor", rows_per_task=4))
    put("meanwhile", 1, 20)
    remove(2)
    table.repush(buckets=3, partition_by="day", table_type="mor", rows_per_task=4)
    golden.shows(rows.values())
    put("partitioned", 3, 21)
    remove(4)
    swapped = dict(rows)
    table.restore(version=1)
    rows = before
    golden.shows(rows.values())
    put("restored", 5)
    table.restore(version=table.version - 2)
    rows = swapped
    golden.shows(rows.values())
    begin(table.handle, NewLayout(1))
    table.cancel_repush()
    put("cancelled", 6)
    table.repush(partition_by=(), buckets=1)
    golden.shows(rows.values())
    begin(table.handle, NewLayout(4, table_type="cow", properties={"file.size.target": "64MiB"}))
    put("open", 7)
    return golden
