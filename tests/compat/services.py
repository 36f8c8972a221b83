"""Golden tables of services: restores, expiries, archives and repushes (see ``make_v1``)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from unittest import mock

import pyarrow as pa

from plait import Table, Ttl
from plait.repush.begin import RepushRequest, begin
from plait.services.definition.alter import Alteration
from plait.timeline import paths
from tests.compat.golden import Golden, Row
from tests.support.memory import forget

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
        table.maintenance.cluster()
    golden.shows(rows)
    table.upsert(golden.arrow([{"id": 4, "day": "z", "v": -1}]))
    rows[4] = {"id": 4, "day": "z", "v": -1}
    golden.shows(rows)
    with mock.patch("plait.arrow.output.ORDERED_GROUP_ROWS", 2):
        table.maintenance.compact(full=True)
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
    table.versions.savepoint("kept")
    table.versions.savepoint("dropped", version=1)
    epoch("streamed", "10")
    table.versions.drop_savepoint("dropped")
    back(1, lambda: table.versions.restore(version=1))
    put("third", 3)
    back(2, lambda: table.versions.restore(savepoint="kept"))
    put("fourth", 1, 5)
    back(2, table.versions.undo)
    table.versions.replay()
    epoch("streamed again", "10")
    back(1, lambda: table.versions.restore(version=1, replay=True))
    put("second", 2, 4, commit_id="again")
    back(max(golden.rows), table.maintenance.clean)
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
    table.maintenance.expire()
    kept(1, 2, 6)
    table.versions.restore(version=1)
    kept(*range(7))
    table.alter.set_ttl("at 8d partition")
    kept(*range(7))
    table.maintenance.expire()
    kept(0, 1, 2, 5, 6)
    table.alter.set_ttl("at 1d")
    kept(0, 1, 2, 5, 6)
    table.maintenance.expire()
    kept(1, 2, 6)
    table.maintenance.compact(full=True)
    kept(1, 2, 6)
    table.alter.set_ttl(None)
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
    table.maintenance.compact(full=True)
    golden.shows(rows.values())
    table.update({"by": str(table.version + 1)}, where="id = 3")
    rows[3] = {"id": 3, "by": table.version}
    golden.shows(rows.values())
    table.maintenance.cluster(order_by="by")
    golden.shows(rows.values())
    table.versions.restore(version=2)
    rows = {int(str(row["id"])): row for row in golden.rows[2]}
    golden.shows(rows.values())
    table.delete(where="id = 1")
    del rows[1]
    golden.shows(rows.values())
    golden.clock.advance(92.5)  # version 1 is over, version 2 is not
    table.maintenance.expire()
    del rows[2]
    golden.shows(rows.values())
    put(5)
    return golden


def replicated() -> Golden:
    """Sinks in the definition: what names them, and the ledgers of what went there first."""
    forget("memory://golden-sink")
    schema = "id bigint, v string"
    Table.create("memory://golden-sink", schema, record_key=["id"])
    golden = Golden(
        "replicated",
        schema,
        record_key=("id",),
        buckets=1,
        replicas={"eu": "memory://golden-sink"},
        allow=("memory://golden-sink",),
        properties={"checkpoint.interval": "3", "replicas.batch.size": "2"},
    )
    table = golden.table
    rows: dict[int, Row] = {}

    def put(text: str, *ids: int) -> None:
        fresh = {n: {"id": n, "v": text} for n in ids}
        rows.update(fresh)
        table.upsert(golden.arrow(fresh.values()))
        golden.shows(rows.values())

    put("first", 1, 2, 3)
    with table.transaction() as tx:
        tx.delete(keys=pa.table({"id": [1]}))
        tx.upsert(golden.arrow([{"id": 4, "v": "block"}]))
    del rows[1]
    rows[4] = {"id": 4, "v": "block"}
    golden.shows(rows.values())
    table.replicas.add("us=memory://golden-sink")
    golden.shows(rows.values())
    put("both", 2)
    table.replicas.remove("us")
    golden.shows(rows.values())
    put("one", 5)
    table.replicas.remove("eu")
    golden.shows(rows.values())
    put("none", 6)
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
    table.maintenance.archive()
    golden.shows(rows.values())
    for number in range(4):
        put(f"later {number}", number)
    store, last = golden.store, paths.slot(table.maintenance.archive(dry_run=True).last)
    body = store.find(last) or b""
    table.maintenance.archive()
    store.put(last, body)  # as if the archive had been killed before its last slot
    golden.shows(rows.values())
    put("last", 1_000)
    return golden


def fields() -> Golden:
    """Partitions by every transform, by others after a repush, and by columns again."""
    golden = Golden(
        "fields",
        "id bigint, at timestamp, day date, user string, tag binary, v int",
        record_key=("id",),
        partition_by=("day(at)", "bucket(2, user)", "truncate(1, tag)"),
        buckets=1,
        table_type="mor",
    )
    table = golden.table
    rows: dict[int, Row] = {}
    begin = dt.datetime(1969, 12, 30, 23, 59, 59, 999_999, UTC)

    def row(number: int, v: int) -> Row:
        at = None if number == 6 else begin + dt.timedelta(hours=9 * number)
        day = dt.date(1968 + number, 2, 28) if number % 4 else None
        user = f"u\u00e9{number % 3}" if number % 5 else None
        return {"id": number, "at": at, "day": day, "user": user, "tag": b"\xff\x00", "v": v}

    def put(v: int, *ids: int) -> None:
        rows.update({n: row(n, v) for n in ids})
        table.upsert(golden.arrow(rows[n] for n in ids))
        golden.shows(rows.values())

    put(0, *range(12))
    put(1, 3, 6)
    table.delete(keys=golden.arrow([rows.pop(5)]).select(["id", "at", "user", "tag"]))
    golden.shows(rows.values())
    for number, partition_by in enumerate(
        (("year(day)", "truncate(2, user)"), ("month(at)", "truncate(4, id)"), ("hour(at)",), ())
    ):
        table.layout.repush(partition_by=partition_by)
        golden.shows(rows.values())
        put(10 + number, number, 20 + number)
    return golden


def hashed() -> Golden:
    """Buckets by a part of the record key, by another part after a repush, and by all of it."""
    golden = Golden(
        "hashed",
        "user string, n bigint, v string",
        record_key=("user", "n"),
        buckets=3,
        bucket_by=("user",),
        table_type="mor",
    )
    table = golden.table
    rows: dict[tuple[str, int], Row] = {}

    def put(text: str, *ids: int) -> None:
        some = [{"user": "abcdefg"[n % 7], "n": n // 7, "v": text} for n in ids]
        rows.update({(str(each["user"]), int(str(each["n"]))): each for each in some})
        table.upsert(golden.arrow(some))
        golden.shows(rows.values())

    put("first", *range(20))
    put("second", *range(0, 20, 3))
    for by in (("n",), ()):
        table.layout.repush(bucket_by=by)
        golden.shows(rows.values())
        put(f"by {by}", 3, 30)
        del rows["a", 0 if by else 1]
        table.delete(keys=golden.arrow([{"user": "a", "n": 0 if by else 1}]).select(["user", "n"]))
        golden.shows(rows.values())
    return golden


def altered() -> Golden:
    """Columns that come, go, are called otherwise and become wider, beside rows of every time."""
    golden = Golden(
        "altered",
        "id bigint, f float, d date, n int, price decimal(6,1), s struct<a:int,b:string>",
        record_key=("id",),
        buckets=2,
        table_type="mor",
        properties={"checkpoint.interval": 3},
    )
    table, rows = golden.table, dict[int, Row]()

    def put(*ids: int, **values: object) -> None:
        some = [{"id": number, **values} for number in ids]
        rows.update({int(str(each["id"])): each for each in some})
        table.upsert(golden.arrow(some))
        golden.shows(rows.values())

    def change(alteration: Alteration, becomes: Callable[[Row], Row]) -> None:
        alteration.commit()
        rows.update({number: becomes(row) for number, row in rows.items()})
        golden.shows(rows.values())

    day, price = dt.date(2026, 1, 31), Decimal("1.5")
    put(*range(4), f=0.5, d=day, n=7, price=price, s={"a": 1, "b": "x"})
    wider = (
        table.alter.columns().widen("f", "double").widen("d", "timestamp_ntz").widen("n", "bigint")
    )
    wider = wider.widen("price", "decimal(9,3)")
    midnight = dt.datetime(2026, 1, 31)  # noqa: DTZ001 - of no zone
    change(wider, lambda row: {**row, "d": midnight, "price": Decimal("1.500")})
    put(1, 9, f=1e300, d=midnight, n=2**40, price=Decimal("123456.789"), s=None)
    renamed = table.alter.columns().rename("n", "count").drop("f").move("price", after="")
    change(renamed.add("s.c", "date"), _renamed)
    fresh = (
        table.alter.columns().add("f", "string", default="none", after="id").default("f", "late")
    )
    change(fresh.comment("f", "a word"), lambda row: {**row, "f": "none"})
    table.append(golden.arrow([{"id": 20}]).select(["id"]))
    rows[20] = {**dict.fromkeys(table.schema.names), "id": 20, "f": "late"}
    golden.shows(rows.values())
    table.delete(where="f = 'none' AND id < 2")
    rows.pop(0), rows.pop(1)
    golden.shows(rows.values())
    table.maintenance.compact(full=True)
    golden.shows(rows.values())
    return golden


def _renamed(row: Row) -> Row:
    """Return a row as it is shown once its columns are called otherwise."""
    whole = row["s"]
    member = {**whole, "c": None} if isinstance(whole, dict) else None
    return {"price": row["price"], "id": row["id"], "d": row["d"], "count": row["n"], "s": member}


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
        wanted = ("id", *table._handle.cache.refresh().table.spec.layout.partition_by)
        table.delete(keys=golden.arrow({**each, "v": None} for each in keys).select(wanted))
        golden.shows(rows.values())

    put("first", *range(12))
    before = dict(rows)
    begin(
        table._handle,
        RepushRequest(buckets=3, partition_by=("day",), table_type="mor", rows_per_task=4),
    )
    put("meanwhile", 1, 20)
    remove(2)
    table.layout.repush(buckets=3, partition_by="day", table_type="mor", rows_per_task=4)
    golden.shows(rows.values())
    put("partitioned", 3, 21)
    remove(4)
    swapped = dict(rows)
    table.versions.restore(version=1)
    rows = before
    golden.shows(rows.values())
    put("restored", 5)
    table.versions.restore(version=table.version - 2)
    rows = swapped
    golden.shows(rows.values())
    begin(table._handle, RepushRequest(buckets=1))
    table.layout.cancel()
    put("cancelled", 6)
    table.layout.repush(partition_by=(), buckets=1)
    golden.shows(rows.values())
    begin(
        table._handle,
        RepushRequest(buckets=4, table_type="cow", properties={"file.size.target": "64MiB"}),
    )
    put("open", 7)
    return golden
