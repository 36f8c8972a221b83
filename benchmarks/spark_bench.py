"""Spark beside plain Parquet in one run: bulk insert, copy-on-write upsert, scan.

    python benchmarks/spark_bench.py [--rows 5000000] [--upsert 250000] [--rounds 3]

5M rows x 9 columns in random key order go into 16 buckets, sorted by key; 250,000 rows of which
80 % update existing keys are upserted, for copy-on-write and merge-on-read; then everything is
scanned. Each figure is the median of the rounds and stands beside the plain Parquet of the same
run. Results: benchmarks/results/spark_bench.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from plait import Table
from plait.model.words import TableType
from plait.spark import session

RESULTS = Path(__file__).with_name("results") / "spark_bench.json"
BUCKETS = 16
KINDS: tuple[TableType, ...] = ("cow", "mor")
SCHEMA = (
    "id bigint, part string, ts bigint, d1 double, d2 double, l1 bigint, l2 bigint, "
    "s1 string, s2 string"
)


def frame(ids: DataFrame, salt: int) -> DataFrame:
    """Make the nine columns from keys."""
    hashed = [F.xxhash64("id", F.lit(salt * 100 + n)) for n in range(6)]
    return ids.select(
        "id",
        F.concat(F.lit("p"), F.pmod(F.xxhash64("id"), F.lit(8)).cast("string")).alias("part"),
        (F.lit(1_700_000_000_000 + salt) + F.pmod(hashed[0], F.lit(1000))).alias("ts"),
        (hashed[1] / F.lit(9.3e18)).alias("d1"),
        (hashed[2] / F.lit(1e15)).alias("d2"),
        hashed[3].alias("l1"),
        F.pmod(hashed[4], F.lit(100_000)).alias("l2"),
        F.substring(F.sha2(hashed[5].cast("string"), 256), 1, 20).alias("s1"),
        F.concat(
            F.lit("name-"), F.lpad(F.pmod(hashed[0], F.lit(5000)).cast("string"), 14, "0")
        ).alias("s2"),
    )


def sources(spark: SparkSession, place: Path, rows: int, upsert: int) -> dict[str, str]:
    """Write the source data once, in random order of keys."""
    paths = {name: str(place / name) for name in ("base", "changes", "warm")}
    shuffled = spark.range(rows).orderBy(F.xxhash64("id"))
    frame(shuffled, 0).write.parquet(paths["base"])
    old = (
        spark.range(upsert * 4 // 5)
        .select((F.pmod(F.xxhash64("id"), F.lit(rows))).alias("id"))
        .distinct()
    )
    new = spark.range(rows, rows + upsert // 5)
    frame(old.union(new), 1).write.parquet(paths["changes"])
    frame(spark.range(100_000), 2).write.parquet(paths["warm"])
    return paths


def seconds(run: Callable[[], object]) -> float:
    """Time one call."""
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def create(place: Path, name: str, table_type: TableType) -> Table:
    """Make a fresh table."""
    shutil.rmtree(place / name, ignore_errors=True)
    return Table.create(
        str(place / name),
        SCHEMA,
        record_key=["id"],
        ordering="ts",
        buckets=BUCKETS,
        table_type=table_type,
    )


def everything(read: DataFrame) -> None:
    """Read every column of every row."""
    read.write.format("noop").mode("overwrite").save()


def sum_of(read: DataFrame) -> tuple[float, int]:
    """Read one column."""
    row = read.agg(F.sum("d1"), F.count(F.lit(1))).collect()[0]
    return row[0], row[1]


class Bench:
    """Times by name, each as it comes."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def note(self, name: str, run: Callable[[], object]) -> None:
        """Time one call."""
        self.times.setdefault(name, []).append(seconds(run))
        print(f"{name:<24}{self.times[name][-1]:8.2f} s", flush=True)

    def plain(self, place: Path, base: DataFrame) -> None:
        """Write and read plain Parquet."""
        target = str(place / "plain")
        shutil.rmtree(target, ignore_errors=True)
        self.note("plain parquet write", lambda: base.write.parquet(target))
        read = base.sparkSession.read.parquet(target)
        self.note("plain scan all", lambda: everything(read))
        self.note("plain scan sum", lambda: sum_of(read))

    def table(self, table: Table, kind: str, base: DataFrame, changes: DataFrame) -> int:
        """Insert, upsert and scan; give the rows."""
        self.note(f"{kind} bulk insert", lambda: table.insert(base))
        self.note(f"{kind} upsert", lambda: table.upsert(changes))
        merged = table.scan().to_spark(base.sparkSession)
        self.note(f"{kind} scan all", lambda: everything(merged))
        self.note(f"{kind} scan sum", lambda: sum_of(merged))
        return sum_of(merged)[1]

    def result(self, **facts: int) -> dict[str, object]:
        """Return medians and their ratios."""
        median = {name: round(statistics.median(each), 3) for name, each in self.times.items()}
        ratios = {
            ("bulk insert", "plain parquet write"),
            ("upsert", "bulk insert"),
            ("scan all", "plain scan all"),
            ("scan sum", "plain scan sum"),
        }
        result: dict[str, object] = {**facts, "median_seconds": median}
        for kind in ("cow", "mor"):
            for ours, theirs in sorted(ratios):
                other = theirs if theirs.startswith("plain") else f"{kind} {theirs}"
                ratio = round(median[f"{kind} {ours}"] / median[other], 2)
                result[f"{kind} {ours} / {other}"] = ratio
        return result


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upsert", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="plait-spark-bench-"))
    spark = session(
        master="local[2]", **{"spark.driver.memory": "6g", "spark.sql.shuffle.partitions": "16"}
    )
    bench = Bench()
    try:
        paths = sources(spark, place, options.rows, options.upsert)
        base, changes = spark.read.parquet(paths["base"]), spark.read.parquet(paths["changes"])
        changed = changes.count()
        warm = create(place, "warm-table", "cow")
        warm.insert(spark.read.parquet(paths["warm"]))
        everything(warm.scan().to_spark(spark))
        for _ in range(options.rounds):
            bench.plain(place, base)
            for kind in KINDS:
                found = bench.table(create(place, kind, kind), kind, base, changes)
                if found != options.rows + options.upsert // 5:
                    message = f"{kind}: {found} rows where others belong"
                    raise SystemExit(message)
    finally:
        spark.stop()
        shutil.rmtree(place)
    result = bench.result(rows=options.rows, changed=changed)
    print(json.dumps(result, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
