"""Make the golden tables of format version 1, and the rows that each version of them shows.

    python -m tests.compat.make_v1

The tables under ``v1/`` are evidence of what was written once: after a release they are never made
anew, whatever Plait writes then. Clock, nonces, host and process are fixed, so a run with the same
libraries writes the same bytes. The expected rows come from the plain Python lists below, never
from a reader.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa

from plait import Insert, Table, Update
from tests.compat.columns import dropped, generated, named, published, published_iceberg
from tests.compat.combined import combined, downgraded, upgraded
from tests.compat.golden import Golden, Row, by
from tests.compat.indexed import indexed
from tests.compat.services import (
    altered,
    archived,
    expired,
    fields,
    hashed,
    ordered,
    replicated,
    repushed,
    restored,
    written,
)

HERE = Path(__file__).parent / "v1"
UTC = dt.UTC


# --- the tables ------------------------------------------------------------------------------


def types() -> Golden:
    """Copy on write; a column of every type, nested ones too; every whole-table operation."""
    golden = Golden(
        "types",
        "id bigint, b boolean, i1 tinyint, i2 smallint, i4 int, f float, d double, "
        "n decimal(10,2), m decimal(38,4), s string, x binary, day date, at timestamp, "
        "local timestamp_ntz, pair struct<a:int,b:array<string>>, list array<struct<v:bigint>>, "
        "tags map<string,bigint>",
        record_key=("id",),
        buckets=3,
    )
    table = golden.table

    def row(number: int, **values: object) -> Row:
        return {**dict.fromkeys(table.schema.names), "id": number, **values}

    full = row(
        1, b=True, i1=-128, i2=32767, i4=-(2**31), f=1.5, d=1e300, n=Decimal("-12345678.90"),
        m=Decimal("1234567890123456789012345678901234.5678"), s="Grüße, 世界 🌍", x=b"\x00\xff",
        day=dt.date(1969, 12, 31), at=dt.datetime(1960, 2, 29, 1, 2, 3, 456789, UTC),
        local=dt.datetime.fromisoformat("2026-03-29T02:30"), pair={"a": 7, "b": ["x", None, ""]},
        list=[{"v": 1}, {"v": None}, None], tags=[("one", 1), ("none", None)],
    )  # fmt: skip
    odd = [
        row(-(2**63), d=float("nan"), f=float("-inf"), s="", x=b"", list=[], tags=[]),
        row(2**63 - 1, d=-0.0, f=float("nan"), pair={"a": None, "b": None}),
        row(0, b=False, i1=127, s="a" * 70, x=b"\xff" * 70, day=dt.date(9999, 12, 31)),
        row(3, f=1e6, d=1e16, m=Decimal("-0.0001")),
        row(4, f=9.999999747378752e-05, d=1e15),
        row(2, d=float("inf"), n=Decimal("0.00"), at=dt.datetime(9999, 12, 31, 23, 59, tzinfo=UTC)),
    ]
    with table.stream("types").writer("insert", after=None, end="7 rows") as epoch:
        epoch.write(golden.arrow([full, *odd]))
    rows = by([full, *odd], "id")
    golden.shows(rows.values())

    changed = [{**full, "s": "changed"}, row(5, s="fifth"), row(6, s="sixth", i4=6)]
    table.upsert(golden.arrow(changed))
    rows |= by(changed, "id")
    golden.shows(rows.values())

    table.delete(keys=pa.table({"id": pa.array([0, 5, 99], pa.int64())}))
    del rows[0,], rows[5,]
    golden.shows(rows.values())

    table.update({"s": "concat(s, '!')", "i4": "i4 + 1"}, where="id > 0 AND s IS NOT NULL")
    for each in (rows[1,], rows[6,]):
        each["s"] = f"{each['s']}!"
        each["i4"] = int(str(each["i4"])) + 1
    golden.shows(rows.values())

    table.overwrite(golden.arrow([row(8, s="alone")]))
    golden.shows([row(8, s="alone")])
    table.alter.set({"write.bucket.size": "32MiB"})
    golden.shows([row(8, s="alone")])
    return golden


PARTS = [
    (None, None, None, None, None),
    ("", Decimal("0.0"), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), b"", False),
    ("a/b", Decimal("-1.5"), dt.datetime(2026, 1, 1, tzinfo=UTC), b"\x00/\xff", True),
    ("..", Decimal("99999999999999999.9"), dt.datetime(1, 1, 1, tzinfo=UTC), b"..", None),
    ('Zürich=\u4e16\u754c "quoted" \\ %2F\n', None, None, None, None),
    ("null", None, None, None, None),
    ("x" * 90, None, None, None, None),
]


def partitions() -> Golden:
    """Copy on write; partition values that no path could hold; overwrites of parts."""
    golden = Golden(
        "partitions",
        "k string, text string, dec decimal(18,1), at timestamp, bin binary, flag boolean, v int",
        record_key=("k",),
        partition_by=("text", "dec", "at", "bin", "flag"),
    )
    table = golden.table
    names = ("text", "dec", "at", "bin", "flag")
    every = [
        {"k": key, **dict(zip(names, part, strict=True)), "v": number}
        for number, part in enumerate(PARTS)
        for key in (f"k{number}", "everywhere")
    ]
    table.insert(golden.arrow(every))
    rows = by(every, "k", *names)
    golden.shows(rows.values())

    fresh = [{**each, "v": 100} for each in every[:4]]
    table.overwrite(golden.arrow(fresh[2:]), partitions="dynamic")
    rows = {key: row for key, row in rows.items() if row["text"] != ""} | by(fresh[2:], "k", *names)
    golden.shows(rows.values())

    replaced = [{**every[4], "v": -1}]
    table.overwrite(golden.arrow(replaced), where="text = 'a/b' AND v < 50")
    rows = {key: row for key, row in rows.items() if row["text"] != "a/b"}
    rows |= by(replaced, "k", *names)
    golden.shows(rows.values())

    table.delete(where="text IS NULL")
    rows = {key: row for key, row in rows.items() if row["text"] is not None}
    golden.shows(rows.values())
    return golden


def merged() -> Golden:  # noqa: PLR0915 - a history is told in order
    """Merge on read: logs, masks, an ordering column, look-ups that count, checkpoints."""
    golden = Golden(
        "merged",
        "a string, b int, at bigint, v string",
        record_key=("a", "b"),
        ordering="at",
        table_type="mor",
        buckets=5,
        isolation="serializable",
        properties={"checkpoint.interval": "4"},
    )
    table = golden.table

    def row(a: str, b: int, at: int, v: str | None) -> Row:
        return {"a": a, "b": b, "at": at, "v": v}

    first = [row(f"a{n}", n % 4, 10, f"v{n}") for n in range(24)]
    table.insert(golden.arrow(first), commit_id="seed")
    rows = by(first, "a", "b")
    golden.shows(rows.values())

    newer = [row(f"a{n}", n % 4, 20, "newer") for n in range(0, 24, 3)]
    older = [row(f"a{n}", n % 4, 5, "older") for n in range(1, 24, 3)]
    table.upsert(golden.arrow(newer + older))
    rows |= by(newer, "a", "b")
    golden.shows(rows.values())

    gone = [("a0", 0), ("a1", 1), ("a2", 2), ("nobody", 0)]
    table.delete(
        keys=pa.table({"a": [a for a, _ in gone], "b": pa.array([b for _, b in gone], pa.int32())})
    )
    rows = {key: each for key, each in rows.items() if key not in gone}
    golden.shows(rows.values())

    again = [row("a0", 0, 1, "back"), row("a3", 3, 99, "skipped")]
    table.insert(golden.arrow(again), on_duplicate="skip")
    rows |= by(again[:1], "a", "b")
    golden.shows(rows.values())  # version 4: the first checkpoint

    table.delete(where="v LIKE 'newer' AND b IN (1, 2)")
    rows = {k: each for k, each in rows.items() if not (each["v"] == "newer" and k[1] in (1, 2))}
    golden.shows(rows.values())

    with table.transaction(commit_id="both") as tx:
        tx.scan(where="b = 3").to_arrow()
        tx.delete(where="b = 3 AND at < 20")
        tx.upsert(golden.arrow([row("fresh", 3, 30, None)]))
    rows = {k: each for k, each in rows.items() if k[1] != 3 or int(str(each["at"])) >= 20}
    rows["fresh", 3] = row("fresh", 3, 30, None)
    golden.shows(rows.values())

    table.update({"v": "upper(v)"}, where="b = 0")
    for key, each in rows.items():
        if key[1] == 0:
            each["v"] = str(each["v"]).upper()
    golden.shows(rows.values())

    source = golden.arrow([row("a4", 0, 50, "merged"), row("new", 1, 50, "merged")])
    table.merge(source, matched=Update(), not_matched=Insert())
    rows |= by([row("a4", 0, 50, "merged"), row("new", 1, 50, "merged")], "a", "b")
    golden.shows(rows.values())  # version 8: the second

    table.alter.set({"clean.retain.versions": "5"})
    golden.shows(rows.values())
    table.upsert(golden.arrow([row("last", 2, 60, "after the checkpoint")]), read_from=9)
    rows["last", 2] = row("last", 2, 60, "after the checkpoint")
    golden.shows(rows.values())
    return golden


def events() -> Golden:
    """No record key: streams, predicates of every kind, a rollback, and work that is pending."""
    golden = Golden(
        "events",
        "day date, kind string, n bigint, x double, nested struct<deep:struct<v:int>>",
        partition_by=("day",),
        table_type="mor",
        properties={
            "write.bucket.size": "2KiB",
            "write.buffer.size": "64KiB",
            "checkpoint.interval": "5",
        },
    )
    table = golden.table
    days = [dt.date(2026, 1, 31), None, dt.date(1900, 1, 1)]

    def row(number: int) -> Row:
        return {
            "day": days[number % 3],
            "kind": f"kind {number % 4}" if number % 5 else None,
            "n": number,
            "x": float("nan") if number % 7 == 0 else number / 2,
            "nested": None if number % 6 == 0 else {"deep": {"v": number}},
        }

    stream = table.stream("loader")
    rows = [row(n) for n in range(20)]
    for start, end in ((0, 10), (10, 20)):
        with stream.writer("append", after=stream.position, end=str(end)) as epoch:
            epoch.write(golden.arrow(rows[start:end]))
        golden.shows(rows[:end])

    try:
        with table.writer("append") as writer:
            writer.write(golden.arrow(row(n) for n in range(300)))
            golden.wait_for(writer.instant)
            message = "the job fails"
            raise RuntimeError(message)
    except RuntimeError:
        golden.shows(rows)

    def without(test: Callable[[Row], bool], where: str) -> None:
        table.delete(where=where)
        rows[:] = [each for each in rows if not test(each)]
        golden.shows(rows)

    def odd(each: Row) -> bool:
        number = int(str(each["n"]))
        return (
            number in (3, 4) or (each["kind"] is None and number <= 5) or each["kind"] == "kind 3"
        )

    without(odd, "n IN (3, 4) OR (kind IS NULL AND n <= 5) OR kind LIKE '%3'")
    without(lambda e: e["n"] == 8, "nested.deep.v = 8")
    table.append(golden.arrow([row(21), row(22)]))
    rows += [row(21), row(22)]
    golden.shows(rows)
    table.overwrite(golden.arrow([row(32)]), where="day = DATE '1900-01-01'")
    rows = [each for each in rows if each["day"] != days[2]] + [row(32)]
    golden.shows(rows)
    without(lambda e: e["n"] == 21, "n = 21")

    # left behind on purpose: a reader's lease, and a writer that has said where it writes
    writer = table.writer("append").__enter__()
    writer.write(golden.arrow(row(n) for n in range(300)))
    golden.wait_for(writer.instant)
    golden.left = (table.scan(), writer)
    golden.background.run()
    return golden


def large() -> Golden:
    """Masks and key hashes too large for a decision."""
    golden = Golden("large", "id int, v string", record_key=("id",), table_type="mor", buckets=1)
    table = golden.table
    count = 3_200
    first: list[Row] = [{"id": n, "v": None} for n in range(count)]
    table.insert(golden.arrow(first))
    golden.shows(first)
    gone = {n for n in range(count) if n % 3}  # no long runs, so the vector is large
    table.delete(keys=pa.table({"id": pa.array(sorted(gone), pa.int32())}))
    rows = [each for each in first if each["id"] not in gone]
    golden.shows(rows)
    table.upsert(golden.arrow([{"id": 1, "v": "one"}, {"id": 2, "v": "two"}]))
    rows = [each for each in rows if each["id"] not in (1, 2)]
    rows += [{"id": 1, "v": "one"}, {"id": 2, "v": "two"}]
    golden.shows(rows)
    return golden


def wide() -> Golden:
    """More buckets than a decision lists itself: manifests."""
    golden = Golden(
        "wide",
        "id bigint",
        record_key=("id",),
        buckets=300,
        properties={"checkpoint.interval": "2"},
    )
    table = golden.table
    rows: list[Row] = [{"id": n} for n in range(700)]
    table.insert(golden.arrow(rows))
    golden.shows(rows)
    table.delete(where="id < 2")
    golden.shows(rows[2:])
    table.upsert(golden.arrow([{"id": 1000}]))
    golden.shows([*rows[2:], {"id": 1000}])
    table.upsert(golden.arrow([{"id": 2000}]))  # version 4: a checkpoint that uses an older part
    golden.shows([*rows[2:], {"id": 1000}, {"id": 2000}])
    table.delete(where="id = 1000")
    golden.shows([*rows[2:], {"id": 2000}])
    return golden


def keys() -> Golden:
    """A record key of every type that one may have."""
    golden = Golden(
        "keys",
        "b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, n decimal(18,3), m decimal(30,2), "
        "s string, x binary, day date, at timestamp, local timestamp_ntz, v int",
        record_key=("b", "i1", "i2", "i4", "i8", "n", "m", "s", "x", "day", "at", "local"),
        buckets=7,
    )
    table = golden.table
    start = dt.datetime(1950, 1, 1, tzinfo=UTC)
    rows: list[Row] = []
    for n in range(40):
        sign = -1 if n % 2 else 1
        moment = start + dt.timedelta(days=997 * n, microseconds=n)
        rows.append(
            {
                "b": n % 3 == 0,
                "i1": sign * n,
                "i2": sign * n * 800,
                "i4": sign * n * 50_000_000,
                "i8": sign * n * 10**17,
                "n": Decimal(sign * n * 10**13).scaleb(-3),
                "m": Decimal(sign * 7**n).scaleb(-2) if n < 34 else Decimal("-0.01") * n,
                "s": "aß世🌍"[: n % 5] * n,
                "x": bytes(range(n)) * (n % 4),
                "day": moment.date(),
                "at": moment,
                "local": moment.replace(tzinfo=None),
                "v": n,
            }
        )
    table.insert(golden.arrow(rows))
    golden.shows(rows)
    changed = [{**each, "v": 0} for each in rows[10:20]]
    table.upsert(golden.arrow(changed))
    golden.shows([*rows[:10], *changed, *rows[20:]])
    return golden


class _Between:
    """Lets somebody else commit just before a client publishes, once for each call given."""

    def __init__(self, *calls: Callable[[], object]) -> None:
        self.calls = list(calls)

    def phase(self, name: str, **facts: object) -> None:
        if name == "publish" and self.calls:
            self.calls.pop(0)()


def cleaned() -> Golden:
    """Versions that are gone, a reservation, a rollback by another, cleans, an undo."""
    golden = Golden(
        "cleaned",
        "id bigint, v string",
        record_key=("id",),
        buckets=2,
        properties={
            "clean.retain.time": "0s",
            "clean.grace": "0s",
            "clean.retain.versions": "2",
            "commit.reserve.after": "1",
            "checkpoint.interval": "6",
        },
    )
    table = golden.table
    rows: dict[int, Row] = {}

    def put(client: Table, number: int, text: str) -> None:
        client.upsert(golden.arrow([{"id": number, "v": text}]), on_conflict="retry")
        rows[number] = {"id": number, "v": text}
        golden.shows(rows.values())

    put(table, 0, "first")
    others = [lambda n=n: put(table, n, "meanwhile") for n in (10, 20, 30)]
    put(golden.client(_Between(*others)), 1, "second")

    dead = golden.client().writer("upsert").__enter__()
    dead.write(golden.arrow([{"id": 5, "v": "never seen"}]))
    table.maintenance.rollback(dead.instant)
    golden.shows(rows.values())
    golden.left = (dead,)

    put(table, 0, "third")
    golden.clock.advance(60)
    table.maintenance.clean()
    golden.shows(rows.values())
    put(table, 1, "fourth")
    golden.clock.advance(60)
    table.maintenance.clean()
    golden.shows(rows.values())
    put(table, 2, "fifth")

    def let_go(step: Callable[[], object]) -> None:
        golden.clock.advance(60)
        step()
        golden.shows(rows.values())

    let_go(lambda: table.alter.set({"clean.grace": "1h"}))
    for text in ("sixth", "seventh"):
        put(table, 2, text)
        let_go(table.maintenance.clean)
    put(table, 0, "eighth")
    let_go(table.maintenance.undo_clean)
    put(table, 1, "ninth")
    return golden


TABLES = (
    types, partitions, merged, events, large, ordered, wide, keys, cleaned, restored, expired,
    archived, written, repushed, hashed, replicated, fields, altered, named, generated, combined,
    upgraded, downgraded, indexed, published, published_iceberg, dropped,
)  # fmt: skip


def make(folder: Path, tables: Iterable[Callable[[], Golden]] = TABLES) -> None:
    """Write every table below a folder; nothing in them tells of this machine."""
    with (
        mock.patch("platform.node", return_value="host"),
        mock.patch("plait.txn.table_handle.os", SimpleNamespace(getpid=lambda: 4711)),
        mock.patch("plait.txn.liveness._place", return_value=""),
    ):
        for build in tables:
            build().save(folder)


if __name__ == "__main__":
    make(HERE)
