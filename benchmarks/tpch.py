"""TPC-H: 22 queries over our tables, beside plain Parquet, Delta Lake and Iceberg, in one run.

    python benchmarks/tpch.py [--scale 1] [--rounds 5] [--engines duckdb,extensions,polars,spark]

DuckDB's generator makes the data (``python -m tests.services.engines`` installs its extension
beforehand), and the queries are those that come with it; Polars and Spark run the same text. First
all systems hold the same rows: Plait's tables are copy-on-write. Then the refresh functions run,
with rows of a thousandth and a half of the orders: RF1 inserts orders and their lines, and RF2
deletes others. Plait's tables are then merge-on-read, and plain Parquet has the rows that are left.
DuckDB generates no rows for RF1: they are copies of other orders, under order keys that the
generator leaves free.

Plait's tables are laid out as for TPC-H elsewhere: lines are in buckets by their order, and parts'
suppliers by their part; what the first write of a merge-on-read table left in several files a
bucket is compacted before the refresh functions run. A larger ``write.buffer.size`` makes row
groups about as large as those of plain Parquet.

``deltalake`` and ``pyiceberg`` write the peers' tables, without merge-on-read, and rewrite files
that RF2 touches. Each engine reads them by its own reader: ``extensions`` is the last DuckDB whose
extensions come as packages, beside plain Parquet in that DuckDB. Iceberg has no runtime for the
Spark of the environment. The sources take turns at each query, and every answer is compared with
that of plain Parquet. What counts is the median of the rounds: of the seconds, and of the ratio to
plain Parquet in the same round, by the clock and of the processors. On a busy machine the latter
tells more.

Results: results/tpch.json.
"""

from __future__ import annotations

import argparse
import decimal
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import plait.polars
from plait import Table
from plait.model.words import TableType
from tests.services.engines import DuckDB as WithExtensions
from tests.services.engines import place as engines_place
from tests.services.jars import find_jars

RESULTS = Path(__file__).with_name("results") / "tpch.json"
KEYS = {
    "customer": ["c_custkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
    "nation": ["n_nationkey"],
    "orders": ["o_orderkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "region": ["r_regionkey"],
    "supplier": ["s_suppkey"],
}
FILES = {"lineitem": 8, "orders": 4, "partsupp": 2}
"""Buckets of our tables, and files of plain Parquet; one of the others."""
GROUP_ROWS = 128 * 1024
"""Rows of a row group, as in our tables."""
REFRESHED = 1500
"""Orders that a refresh function touches at scale 1."""
FREE_KEY = 8
"""The generator uses the first 8 of each 32 order keys."""

BUCKETED = {"lineitem": "l_orderkey", "partsupp": "ps_partkey"}
"""What rows are put into buckets by, if not by the whole key."""
OPTIONS = {"write.buffer.size": "512MiB"}


class Run(NamedTuple):
    """Runs queries over one source."""

    execute: Callable[[str], list[tuple[Any, ...]]]
    """Executes a query; returns its rows."""
    process: int | None = None
    """The process that does the work, if it is another one."""


class Refresh(NamedTuple):
    """What the refresh functions do."""

    orders: pa.Table
    lines: pa.Table
    removed: pa.Array
    """Order keys."""


# --- data ----------------------------------------------------------------------------------------


def generate(scale: float, folder: Path) -> dict[int, str]:
    """Make the data in ``folder``, a file a table, by the DuckDB whose extensions are packages.

    Returns the queries by number.
    """
    body = (
        "import json, sys, duckdb_worker\n"
        "c = duckdb_worker.connect(('tpch',))\n"
        "c.execute('SET enable_progress_bar = false')\n"
        "c.execute(f'CALL dbgen(sf={sys.argv[1]})')\n"
        "for t in sys.argv[3:]:\n"
        "    c.execute(f\"COPY {t} TO '{sys.argv[2]}/{t}.parquet' (FORMAT parquet)\")\n"
        "print(json.dumps(c.execute('SELECT query_nr, query FROM tpch_queries()').fetchall()))\n"
    )
    services = Path(__file__).resolve().parents[1] / "tests" / "services"
    paths = os.pathsep.join([str(engines_place()), str(services)])
    order = [sys.executable, "-c", body, str(scale), str(folder), *KEYS]
    done = subprocess.run(
        order, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": paths}
    )
    return {int(number): str(text).strip().rstrip(";") for number, text in json.loads(done.stdout)}


def loaded(folder: Path) -> dict[str, pa.Table]:
    """Read the data, with keys that are never null."""
    tables = {}
    for name in KEYS:
        table = pq.read_table(folder / f"{name}.parquet")
        fields = [each.with_nullable(False) for each in table.schema]  # noqa: FBT003 - pyarrow's
        tables[name] = table.cast(pa.schema(fields))
    return tables


def refresh_of(tables: Mapping[str, pa.Table], scale: float) -> Refresh:
    """Choose what RF1 inserts and RF2 deletes."""
    count = max(1, round(REFRESHED * scale))
    keys = tables["orders"]["o_orderkey"].to_numpy()
    chosen = np.random.default_rng(0).choice(keys, 2 * count, replace=False)
    copied, removed = pa.array(chosen[:count]), pa.array(chosen[count:])
    fresh = []
    for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
        rows = tables[name].filter(pc.is_in(tables[name][key], value_set=copied))
        fresh.append(rows.set_column(0, rows.schema.field(0), pc.add(rows[key], FREE_KEY)))
    orders, lines = fresh
    return Refresh(orders, lines, removed)


def refreshed(tables: Mapping[str, pa.Table], change: Refresh) -> dict[str, pa.Table]:
    """Return the rows after both functions."""
    after = dict(tables)
    fresh = {"orders": ("o_orderkey", change.orders), "lineitem": ("l_orderkey", change.lines)}
    for name, (key, rows) in fresh.items():
        removed = pc.is_in(tables[name][key], value_set=change.removed)
        after[name] = pa.concat_tables([tables[name].filter(pc.invert(removed)), rows])
    return after


def write_plain(tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Write a folder of Parquet files for each table."""
    for name, rows in tables.items():
        (folder / name).mkdir(parents=True)
        count = FILES.get(name, 1)
        share = -(-rows.num_rows // count)
        for at in range(count):
            part = rows.slice(at * share, share)
            file = folder / name / f"{at}.parquet"
            pq.write_table(part, file, compression="snappy", row_group_size=GROUP_ROWS)


def write_plait(
    tables: Mapping[str, pa.Table], folder: Path, kind: TableType, change: Refresh | None = None
) -> None:
    """Write tables of ours; run the refresh functions on them."""
    for name, rows in tables.items():
        table = Table.create(
            str(folder / name),
            rows.schema,
            record_key=KEYS[name],
            buckets=FILES.get(name, 1),
            bucket_by=BUCKETED.get(name, ()),
            table_type=kind,
            properties=OPTIONS,
        )
        table.insert(rows)
        if kind == "mor":
            table.maintenance.compact(full=True)
        if change is not None and name in ("orders", "lineitem"):
            key = KEYS[name][0]
            table.insert(change.orders if name == "orders" else change.lines)
            table.delete(where=f"{key} IN ({listed(change.removed)})")


def listed(keys: pa.Array) -> str:
    """Write keys as SQL."""
    return ", ".join(map(str, keys.to_pylist()))


def write_delta(tables: Mapping[str, pa.Table], folder: Path, change: Refresh) -> None:
    """Write tables of Delta Lake, a version before the refresh functions and one after them."""
    import deltalake

    for name, rows in tables.items():
        place = str(folder / name)
        deltalake.write_deltalake(place, rows)
        if name in ("orders", "lineitem"):
            fresh = change.orders if name == "orders" else change.lines
            deltalake.write_deltalake(place, fresh, mode="append")
            deltalake.DeltaTable(place).delete(f"{KEYS[name][0]} IN ({listed(change.removed)})")


def write_iceberg(
    tables: Mapping[str, pa.Table], folder: Path, change: Refresh
) -> dict[str, tuple[str, str]]:
    """Write tables of Iceberg; return their metadata before the refresh functions and after."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.expressions import In

    folder.mkdir()
    catalog = SqlCatalog("tpch", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("t")
    found = {}
    for name, rows in tables.items():
        table = catalog.create_table(f"t.{name}", rows.schema)
        table.append(rows)
        before = table.metadata_location
        if name in ("orders", "lineitem"):
            table.append(change.orders if name == "orders" else change.lines)
            table.delete(In(KEYS[name][0], change.removed.to_pylist()))  # type: ignore[call-arg,arg-type]
        found[name] = (before, table.metadata_location)
    catalog.close()
    return found


# --- engines -------------------------------------------------------------------------------------


def delta_version(folder: Path, name: str, after: int) -> Any:  # noqa: ANN401 - deltalake's
    """Open a table of Delta Lake before the refresh functions, or after them."""
    import deltalake

    return deltalake.DeltaTable(str(folder / name), version=None if after else 0)


def in_duckdb(views: Mapping[str, object]) -> Run:
    """Run queries over views: SQL texts, datasets of Arrow, or scans of ours."""
    connection = duckdb.connect()
    for name, source in views.items():
        if isinstance(source, str):
            connection.execute(f"CREATE VIEW {name} AS {source}")
        elif isinstance(source, plait.Scan):
            source.to_duckdb(connection).create_view(name)
        else:
            connection.register(name, source)
    return Run(lambda query: connection.execute(query).fetchall())


def in_extensions(views: Mapping[str, str]) -> Run:
    """Run queries in the DuckDB with extensions, over views."""
    worker = WithExtensions()
    for name, source in views.items():
        worker.query(f"CREATE VIEW {name} AS {source}")

    def execute(query: str) -> list[tuple[Any, ...]]:
        rows = worker.query(f"SELECT * FROM ({query})")
        return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    return Run(execute, worker.process)


def in_polars(frames: Mapping[str, Any]) -> Run:
    """Run queries over LazyFrames."""
    import polars as pl

    context = pl.SQLContext(frames)
    return Run(lambda query: context.execute(query, eager=True).rows())


def sources(
    engine: str, folder: Path, iceberg: Mapping[str, tuple[str, str]], after: int
) -> dict[str, Run]:
    """Return what runs queries, by source; the first is what the others are compared with."""
    kind = ("cow", "mor")[after]
    plain = folder / ("plain", "plain-after")[after]
    files = {name: f"{plain}/{name}/*.parquet" for name in KEYS}
    scans = {name: Table.open(str(folder / kind / name)).scan() for name in KEYS}
    delta = folder / "delta"
    if engine == "duckdb":
        return {
            "plain": in_duckdb({n: f"FROM read_parquet('{f}')" for n, f in files.items()}),
            "plait": in_duckdb(scans),
        }
    if engine == "extensions":
        version = "" if after else ", version = 0"
        return {
            "plain": in_extensions({n: f"FROM read_parquet('{f}')" for n, f in files.items()}),
            "delta": in_extensions({n: f"FROM delta_scan('{delta / n}'{version})" for n in KEYS}),
            "iceberg": in_extensions(
                {n: f"FROM iceberg_scan('{place[after]}')" for n, place in iceberg.items()}
            ),
        }
    if engine == "polars":
        import polars as pl

        return {
            "plain": in_polars({n: pl.scan_parquet(f) for n, f in files.items()}),
            "plait": in_polars({n: plait.polars.scan(scan) for n, scan in scans.items()}),
            "delta": in_polars({n: pl.scan_delta(delta_version(delta, n, after)) for n in KEYS}),
            "iceberg": in_polars({n: pl.scan_iceberg(f[after]) for n, f in iceberg.items()}),
        }
    return in_spark(plain, scans, delta, after)


def in_spark(
    plain: Path, scans: Mapping[str, plait.Scan], delta: Path, after: int
) -> dict[str, Run]:
    """Run queries in one session: over plain Parquet, our tables and those of Delta Lake."""
    import plait.spark

    jars = find_jars("delta")
    assert jars is not None, "python -m tests.services.jars was not run"
    spark = plait.spark.session(
        **{
            "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.driver.memory": "4g",
            "spark.sql.shuffle.partitions": "4",
        }
    )
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - nobody else knows the JVM
    assert gateway is not None
    version = {} if after else {"versionAsOf": "0"}
    frames = {
        "plain": {n: spark.read.parquet(str(plain / n)) for n in KEYS},
        "plait": {n: scan.to_spark(spark) for n, scan in scans.items()},
        "delta": {
            n: spark.read.format("delta").options(**version).load(str(delta / n)) for n in KEYS
        },
    }

    def run(tables: Mapping[str, Any]) -> Run:
        def execute(query: str) -> list[tuple[Any, ...]]:
            for name, frame in tables.items():
                frame.createOrReplaceTempView(name)
            return [tuple(row) for row in spark.sql(query).collect()]

        return Run(execute, gateway.proc.pid)

    return {name: run(tables) for name, tables in frames.items()}


# --- measuring -----------------------------------------------------------------------------------


def spelled(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Return an answer in which the order of equal rows, and of sums of floats, does not show."""

    def text(value: object) -> str:
        if isinstance(value, (float, decimal.Decimal)) and math.isfinite(value):
            short = f"{value:.9g}"
            return short if "e" in short or "." not in short else short.rstrip("0").rstrip(".")
        return str(value)

    return sorted(tuple(map(text, row)) for row in rows)


class Times(NamedTuple):
    """Seconds of a query."""

    wall: float
    cpu: float


def processor_s(process: int | None) -> float:
    """Return the seconds that this process and another one have spent on processors."""
    if process is None:
        return time.process_time()
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def timed(run: Run, query: str) -> tuple[Times, list[tuple[Any, ...]]]:
    """Run a query."""
    wall, cpu = time.perf_counter(), processor_s(run.process)
    rows = run.execute(query)
    return Times(time.perf_counter() - wall, processor_s(run.process) - cpu), rows


Measured = dict[str, dict[int, list[Times]]]
"""Times by source and query, one a round."""


def compared(runs: Mapping[str, Run], queries: Mapping[int, str], rounds: int) -> Measured:
    """Time every query over every source, in turns; refuse an answer that differs."""
    names = list(runs)
    found: Measured = {name: {number: [] for number in queries} for name in names}
    for number, query in queries.items():
        expected: list[tuple[str, ...]] | None = None
        for turn in range(-1, rounds):  # the first one is not counted
            shift = turn % len(names) if turn > 0 else 0
            for name in names[shift:] + names[:shift]:
                took, rows = timed(runs[name], query)
                if turn >= 0:
                    found[name][number].append(took)
                    continue
                answer = spelled(rows)
                expected = answer if expected is None else expected
                assert answer == expected, f"query {number} over {name} has another answer"
    return found


def ratios(found: Measured) -> dict[str, dict[str, object]]:
    """Return for each source its times, and beside plain Parquet the ratios and their mean."""
    plain = found["plain"]
    told: dict[str, dict[str, object]] = {}
    for name, times in found.items():
        walls = {n: statistics.median(each.wall for each in rounds) for n, rounds in times.items()}
        cpus = {n: statistics.median(each.cpu for each in rounds) for n, rounds in times.items()}
        told[name] = {
            "seconds": {number: round(wall, 4) for number, wall in walls.items()},
            "total_s": round(sum(walls.values()), 3),
            "total_cpu_s": round(sum(cpus.values()), 3),
        }
        if name != "plain":
            for kind, key in enumerate(("of_plain", "of_plain_cpu")):
                each = {n: ratio(times[n], plain[n], kind) for n in times}
                mean = statistics.geometric_mean(each.values())
                told[name][key] = {number: round(share, 2) for number, share in each.items()}
                told[name][f"mean_{key}"] = round(mean, 3)
    return told


def ratio(times: Sequence[Times], plain: Sequence[Times], kind: int) -> float:
    """Return the median of how much longer a query took than in the same round of plain Parquet."""
    tick = kind / os.sysconf("SC_CLK_TCK")  # in which the system counts seconds of processors
    pairs = zip(times, plain, strict=True)
    return statistics.median(max(one[kind], tick) / max(other[kind], tick) for one, other in pairs)


@contextmanager
def prepared(scale: float, kept: str | None) -> Iterator[tuple[Path, dict[int, str], Any]]:
    """Make all tables, or take those that an earlier run left in a folder."""
    with tempfile.TemporaryDirectory(prefix="plait-bench-tpch-") as scratch:
        folder = Path(kept or scratch)
        known = folder / "known.json"
        if not known.exists():
            (folder / "raw").mkdir(parents=True)
            queries = generate(scale, folder / "raw")
            tables = loaded(folder / "raw")
            change = refresh_of(tables, scale)
            write_plain(tables, folder / "plain")
            write_plain(refreshed(tables, change), folder / "plain-after")
            write_plait(tables, folder / "cow", "cow")
            write_plait(tables, folder / "mor", "mor", change)
            write_delta(tables, folder / "delta", change)
            iceberg = write_iceberg(tables, folder / "iceberg", change)
            known.write_text(json.dumps([queries, iceberg]))
        queries, iceberg = json.loads(known.read_text())
        yield folder, {int(number): text for number, text in queries.items()}, iceberg


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="TPC-H over our tables, and over others.")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="duckdb,extensions,polars,spark")
    parser.add_argument("--folder", help="keep the tables there, or use those that are there")
    asked = parser.parse_args()
    os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")
    results: dict[str, object] = {"scale": asked.scale, "cores": os.cpu_count()}
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if known.get("scale") == asked.scale:  # of the engines that are not measured now
        results = known | results
    with prepared(asked.scale, asked.folder) as (folder, queries, iceberg):
        for engine in asked.engines.split(","):
            for after, state in enumerate(("copy-on-write", "merge-on-read, refreshed")):
                runs = sources(engine, folder, iceberg, after)
                told = ratios(compared(runs, queries, asked.rounds))
                told["measured"] = {"rounds": asked.rounds, "load": round(os.getloadavg()[0], 1)}
                results[f"{engine}, {state}"] = told
                for name, entry in told.items():
                    shown = {k: v for k, v in entry.items() if k != "seconds"}
                    print(engine, state, name, shown, flush=True)
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
