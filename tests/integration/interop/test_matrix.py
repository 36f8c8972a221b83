"""Each engine reads each published version as Plait does, or refuses it (INV-17).

A cell that stands neither in ``REFUSED`` nor in ``OTHERWISE`` is equal in every version. One in
``REFUSED`` is refused in some version, and equal in all others. ``OTHERWISE`` is what an engine
cannot hold: *Limits* in ``docs/how-to/read-from-other-engines.md`` tells it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache, partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from _pytest.mark import ParameterSet

from plait import Table
from plait.interop.publication import newest_metadata
from tests.integration.interop.conftest import Start
from tests.integration.interop.lives import acts, commits, make, values, version_of
from tests.integration.interop.test_delta import NESTED, nested
from tests.services.engines import Read
from tests.support import build
from tests.support.engines import DELTA, ICEBERG, comparable

pytestmark = pytest.mark.processes

Properties = Mapping[str, object]
BOTH = {"publish": "delta,iceberg", "publish.deadline": "1h"}
MOR = {"table_type": "mor", "buckets": 2}
INITIAL = 7
RENAMED = ("renamed", "renamed-masked")


def _typed(place: Path, properties: Properties, **options: Any) -> Table:
    """Return a table with every type, after every kind of change of its rows."""
    table = make(uri=place, properties=properties, **options)
    table.upsert(values(range(300), 1))
    table.upsert(values(range(0, 300, 2), 2))
    table.delete(where="tiny < 0")
    table.maintenance.compact(full=True)
    table.versions.restore(version=2)
    table.upsert(values(range(290, 350), 3))
    return table


def _renamed(place: Path, properties: Properties, **options: Any) -> Table:
    """Return a table whose columns were renamed, dropped and added again, at every level."""
    table = build.make(NESTED, uri=place, properties=properties, **options)
    table.upsert(nested(0))
    table.alter.columns().rename("v", "u").rename("pair.x", "z").commit()
    table.upsert(nested(10, {"v": "u"}).cast(table.scan().schema))
    table.alter.columns().drop("w").rename("u", "w").rename("many.element.x", "y").commit()
    table.alter.columns().add("v", "string").add("pair.x", "bigint").commit()
    table.upsert(table.scan(where="id < 5").to_arrow().set_column(4, "v", [["new"] * 5]))
    table.delete(where="id > 20")
    return table


def _widened(place: Path, properties: Properties, *, date: bool = False) -> Table:
    """Return a table whose columns were widened between two writes."""
    table = build.make("id bigint, a int, b float, c decimal(9,2), d date", uri=place,
                       properties=properties)  # fmt: skip

    def given(*ids: int) -> pa.Table:
        day = dt.date(2026, 1, 1)
        columns = [ids, ids, [key / 10 for key in ids], [Decimal(key) / 100 for key in ids]]
        columns.append([day + dt.timedelta(days=key) for key in ids])
        found = pa.table([pa.array(each) for each in columns], table.scan().schema.names)
        return found.cast(table.scan().schema)

    table.upsert(given(*range(40)))
    change = table.alter.columns().widen("a", "bigint").widen("b", "double")
    change.widen("c", "decimal(12,2)").commit()
    table.upsert(given(*range(30, 60)))
    if date:
        table.alter.columns().widen("d", "timestamp_ntz").commit()
        table.upsert(given(*range(50, 70)))
    return table


def _defaulted(place: Path, properties: Properties) -> Table:
    """Return a table with a column whose older rows have an initial value."""
    table = build.make(uri=place, upsert=build.rows(range(9), v=1), properties=properties)
    table.alter.columns().add("late", "int", default=INITIAL).commit()
    table.upsert(build.rows(range(5, 12), v=2, late=3))
    return table


def _random(place: Path, seed: int) -> Table:
    """Return a table of thousands of rows a file, after whatever can happen to it."""
    draw = Random(seed)
    properties = {
        **BOTH,
        "checkpoint.interval": draw.choice([1, 3, 50]),
        "clean.retain.time": "0s",
        "clean.retain.versions": 4,
        "clean.grace": draw.choice(["0s", "1h"]),
        "archive.keep": 1,
        "publish.iceberg.deletes": "vectors" if seed >= 6 else "positions",
    }
    kind = "cow" if seed < 3 else "mor"
    table = build.make(uri=place, table_type=kind, buckets=2, properties=properties)
    table.upsert(build.rows(range(12_000), v=1))
    table.upsert(build.rows(range(0, 12_000, 2), v=2))  # masks too large to stand in a decision
    whatever = acts(100)
    for _ in range(9):
        whatever[draw.choice(list(whatever))](table, draw)
    return table


FEATURES: Mapping[str, Callable[[Path, Properties], Table]] = {
    "rows": _typed,
    "masked": partial(_typed, **MOR),
    "vectors": lambda place, said: _typed(
        place, {**said, "publish.iceberg.deletes": "vectors"}, **MOR
    ),
    "partitions": partial(_typed, partition_by=["flag"]),
    "renamed": _renamed,
    "renamed-masked": partial(_renamed, **MOR),
    "widened": _widened,
    "widened-date": partial(_widened, date=True),
    "initial": _defaulted,
}
ONLY = {"vectors": "iceberg", "initial": "iceberg", "widened-date": "delta"}
"""What is the same in the other format, or refused by Plait before it comes to be."""
ENGINES = {
    "delta": ("deltalake", "pyarrow", "polars", "duckdb", "datafusion", "daft", "chdb", "spark"),
    "iceberg": ("pyiceberg", "polars", "duckdb", "datafusion", "daft", "chdb", "spark"),
}
REFUSED = {
    "delta": {
        "deltalake": ("widened", "widened-date"),
        "pyarrow": ("masked", *RENAMED, "widened", "widened-date"),
        "polars": (*RENAMED, "widened", "widened-date"),
        "datafusion": ("masked", "renamed-masked", "widened", "widened-date"),
        "daft": ("masked", *RENAMED),
        "chdb": RENAMED,
    },
    "iceberg": {
        "datafusion": RENAMED,
        "daft": ("vectors", *RENAMED),
        "chdb": ("vectors",),
    },
}
STRICT = {"delta": ("deltalake", "duckdb", "chdb", "spark"), "iceberg": ENGINES["iceberg"][:3]}
"""Engines that read every version of a random life; the others may refuse some."""
QUICK = ("masked", "renamed-masked", "widened-date")
"""What ``make test`` reads in Spark with Delta Lake, which takes a second for each version."""


def _cells() -> Iterator[ParameterSet]:
    for target, engines in ENGINES.items():
        for engine, feature in product(engines, FEATURES):
            if ONLY.get(feature, target) != target:
                continue
            slow = (target, engine) == ("delta", "spark") and feature not in QUICK
            yield pytest.param(target, engine, feature, marks=[pytest.mark.long(0)] * slow)


class RefusedError(Exception):
    """An engine said that it cannot read a version."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Table]:
    """Give a function that makes the table of a feature, once."""
    folder = tmp_path_factory.mktemp("matrix")

    @cache
    def one(feature: str) -> Table:
        target = ONLY.get(feature, BOTH["publish"])
        table = FEATURES[feature](folder / feature, {**BOTH, "publish": target})
        table.maintenance.publish()
        return table

    return one


def read_by(start: Start, target: str, engine: str) -> Callable[[Table, int], pa.Table]:
    """Return how an engine reads a version of a table; it raises RefusedError."""
    local: Mapping[str, Read] = {
        name: lambda _, place, version, one=one: one(place, version)
        for name, one in {"delta": DELTA, "iceberg": ICEBERG}[target].items()
    }
    libraries = (
        f"datafusion-{target}" if (engine, target) == ("datafusion", "iceberg") else "readers"
    )

    def read(table: Table, version: int) -> pa.Table:
        try:
            return found(target, build.uri_of(table).removeprefix("file://"), version)
        except Exception as problem:
            raise RefusedError(str(problem)[-300:]) from problem

    found: Read
    if engine in local:
        found = local[engine]
    elif engine == "duckdb":
        found = start("duckdb").read
    elif engine == "spark":
        found = start(f"{target}-spark").read
    else:
        found = start(libraries).by(engine)
    return read


def named(table: Table, target: str) -> list[int]:
    """Return the versions that are published."""
    if target == "iceberg":
        found = newest_metadata(build.again(table)._handle)
        assert found is not None
        return [each["snapshot-id"] for each in found[1]["snapshots"]]
    horizon = table._handle.cache.refresh().horizon
    return [number for number in commits(table) if number >= horizon]


def expected(cell: tuple[str, str, str], version: int, rows: pa.Table) -> list[str]:
    """Return what an engine shows of rows, as far as it can hold them.

    daft and chdb read null where a column has an initial value. daft finds no list in a Delta table
    with renamed columns. What ClickHouse has no null for, chdb shows empty.
    """
    target, engine, feature = cell
    found = rows.to_pylist()
    for row in found:
        if feature == "initial" and version == 2 and engine in ("daft", "chdb"):
            row["late"] = None
        if feature in RENAMED and (target, engine) == ("delta", "daft") and version > 1:
            row["many"] = None
        if engine == "chdb":
            row.update(
                {each.name: _in_clickhouse(row[each.name], each.type) for each in rows.schema}
            )
    return comparable(found)


def _in_clickhouse(value: Any, kind: pa.DataType) -> Any:
    """Return a value in a column of ClickHouse: one type for text and bytes, few nulls."""
    if pa.types.is_struct(kind):
        return {each.name: _in_clickhouse((value or {}).get(each.name), each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(key.encode(), each) for key, each in value or ()]
    if pa.types.is_list(kind):
        return [_in_clickhouse(each, kind.value_type) for each in value or ()]
    return value.encode() if isinstance(value, str) else value


def look(start: Start, table: Table, cell: tuple[str, str, str]) -> list[int]:
    """Compare every published version in one engine; return those that it refuses."""
    target, engine, _ = cell
    read, refused, fresh = read_by(start, target, engine), [], build.again(table)
    versions = named(table, target)
    assert version_of(table) in versions, "INV-17: the newest version is there"
    for version in versions:
        wanted = expected(cell, version, fresh.scan(version=version).to_arrow())
        try:
            found = read(table, version)
        except RefusedError:
            refused.append(version)
        else:
            assert comparable(found) == wanted, (*cell, version)
    return refused


@pytest.mark.parametrize(("target", "engine", "feature"), list(_cells()))
def test_each_version_is_equal_or_refused_as_documented(
    start: Start, tables: Callable[[str], Table], target: str, engine: str, feature: str
) -> None:
    refused = look(start, tables(feature), (target, engine, feature))
    assert bool(refused) == (feature in REFUSED[target].get(engine, ()))


@pytest.mark.long(3)
@pytest.mark.parametrize("seed", range(9))
def test_each_version_of_a_random_life_is_equal_or_refused(
    tmp_path: Path, start: Start, seed: int
) -> None:
    """With thousands of rows a file, and several vectors a commit."""
    table = _random(tmp_path / "t", seed)
    table.maintenance.publish()
    for target, engines in ENGINES.items():
        for engine in engines:
            refused = look(start, table, (target, engine, "random"))
            assert not refused or engine not in STRICT[target], (target, engine, refused)
