"""Published tables for the tests of other engines, and what they must show."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from random import Random

import pyarrow as pa

from plait import Table
from plait.files.data_file import parse_path
from tests.support import build
from tests.support.engines import DELTA, comparable

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tiny", pa.int8()),
        ("whole", pa.int32()),
        ("text", pa.string()),
        ("real", pa.float64()),
        ("single", pa.float32()),
        ("money", pa.decimal128(12, 2)),
        ("wide", pa.decimal128(38, 3)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("items", pa.list_(pa.int64())),
        ("pair", pa.struct([("x", pa.int16()), ("y", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
PUBLISHED = {"publish": "delta", "publish.deadline": "1h"}
make = partial(build.make, SCHEMA, buckets=2)


def values(ids: range, seed: int) -> pa.Table:
    """Return rows with a value of each type, the awkward ones too."""
    draw = Random(seed)
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def maybe(value: object) -> object:
        return None if draw.random() < 0.1 else value

    def moment() -> dt.datetime:
        return begin + dt.timedelta(microseconds=draw.randrange(10**13))

    def row(key: int) -> dict[str, object]:
        return {
            "id": key,
            "tiny": maybe(draw.randrange(-128, 128)),
            "whole": maybe(draw.randrange(-(2**31), 2**31)),
            "text": maybe("é" * draw.randrange(80) + str(key % 7)),
            "real": maybe(draw.choice([1.5, -0.0, float("inf"), 1e300, float("nan")])),
            "single": maybe(draw.choice([0.1, -2.5, 0.0])),
            "money": maybe(Decimal(draw.randrange(-(10**9), 10**9)) / 100),
            "wide": maybe(Decimal(draw.randrange(10**30)) / 1000),
            "at": maybe(moment()),
            "local": maybe(moment().replace(tzinfo=None)),
            "day": maybe(dt.date(1900, 1, 1) + dt.timedelta(days=draw.randrange(90_000))),
            "raw": maybe(draw.randbytes(3)),
            "flag": maybe(draw.random() < 0.5),
            "items": maybe([1, None, draw.randrange(9)]),
            "pair": maybe({"x": draw.randrange(99), "y": None}),
            "counts": maybe([("a", draw.randrange(9)), ("b", None)]),
        }

    return pa.Table.from_pylist([row(key) for key in ids], schema=SCHEMA)


def acts(scale: int = 1) -> dict[str, Callable[[Table, Random], object]]:
    """Return everything that can happen to a table, by name; ``scale`` multiplies its rows."""

    def some(table: Table, draw: Random) -> pa.Table:
        first = draw.randrange(60)
        last = first + draw.randrange(1, 30)
        found = build.rows(range(first * scale, last * scale), v=draw.randrange(100))
        for field in list(table.scan().schema)[2:]:
            value = pa.array([draw.randrange(9)] * len(found), field.type)
            found = found.append_column(field.name, value)
        return found

    def rewound(table: Table, draw: Random) -> object:
        state = table._handle.cache.refresh()
        return table.versions.restore(version=draw.randrange(state.horizon, state.version + 1))

    def added(table: Table, name: str) -> object:
        return name in table.schema.names or table.alter.columns().add(name, "int").commit()

    def renamed(table: Table, old: str, new: str) -> object:
        known = table.schema.names
        fits = old in known and new not in known
        return table.alter.columns().rename(old, new).commit() if fits else None

    def dropped(table: Table, name: str) -> object:
        return table.alter.columns().drop(name).commit() if name in table.schema.names else None

    return {
        "upsert": lambda t, d: t.upsert(some(t, d)),
        "upsert again": lambda t, d: t.upsert(some(t, d)),
        "delete": lambda t, d: t.delete(
            where=f"id BETWEEN {(n := d.randrange(60) * scale)} AND {n + 5 * scale}"
        ),
        "update": lambda t, d: t.update({"v": "v + 1"}, where=f"id > {d.randrange(90) * scale}"),
        "overwrite": lambda t, d: t.overwrite(some(t, d), where="id < 20 OR id >= 20"),
        "compact": lambda t, _: t.maintenance.compact(full=True),
        "cluster": lambda t, _: t.maintenance.cluster(order_by="v"),
        "restore": rewound,
        "repush": lambda t, d: t.layout.repush(buckets=d.randrange(1, 4)),
        "savepoint": lambda t, d: t.versions.savepoint(f"s{d.randrange(10**9)}"),
        "clean": lambda t, _: t.maintenance.clean(),
        "archive": lambda t, _: t.maintenance.archive(),
        "column": lambda t, d: added(t, f"c{d.randrange(3)}"),
        "rename": lambda t, d: renamed(t, f"c{d.randrange(3)}", f"c{d.randrange(3)}"),
        "drop": lambda t, d: dropped(t, f"c{d.randrange(3)}"),
        "nothing": lambda t, d: t.upsert(some(t, d).slice(0, 0)),
    }


def shown(table: Table, engine: str, version: int) -> list[str]:
    return comparable(DELTA[engine](build.uri_of(table).removeprefix("file://"), version))


def held(table: Table, version: int) -> list[str]:
    return comparable(build.again(table).scan(version=version).to_arrow())


def version_of(table: Table) -> int:
    return table._handle.cache.refresh().version


def commits(table: Table) -> list[int]:
    """Return the numbers of the commits in the log."""
    store = table._handle.store
    names = (info.path.rpartition("/")[2] for info in store.list("_delta_log"))
    return [int(name[:20]) for name in names if name.endswith(".json")]


def only_strays(table: Table) -> bool:
    """Tell whether all that verify finds are files that an engine wrote before it was refused."""
    found = table.check.verify().problems
    strange = [each for each in found if each.invariant != "INV-06" or parse_path(each.path)]
    assert not strange, strange
    return True
