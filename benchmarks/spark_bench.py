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
from plait.spark import session

RESULTS = Path(__file__).with_name("results") / "spark_bench.json"
BUCKETS = 16
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


def create(place: Path, name: str, table_type: str) -> Table:
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


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upsert", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="plait-spark-bench-"))
    spark = session(
        master="local[2]",
        **{"spark.driver.memory": "6g", "spark.sql.shuffle.partitions": "16"},
    )
    times: dict[str, list[float]] = {}

    def note(name: str, run: Callable[[], object]) -> None:
        times.setdefault(name, []).append(seconds(run))
        print(f"{name:<24}{times[name][-1]:8.2f} s", flush=True)

    try:
        paths = sources(spark, place, options.rows, options.upsert)
        base, changes = spark.read.parquet(paths["base"]), spark.read.parquet(paths["changes"])
        count, changed = options.rows, changes.count()
        warm = create(place, "warm-table", "cow")
        warm.insert(spark.read.parquet(paths["warm"]))
        everything(warm.scan().to_spark(spark))
        plain = str(place / "plain")
        for _ in range(options.rounds):
            shutil.rmtree(plain, ignore_errors=True)
            note("plain parquet write", lambda: base.write.parquet(plain))
            for kind in ("cow", "mor"):
                table = create(place, kind, kind)
                note(f"{kind} bulk insert", lambda t=table: t.insert(base))
                note(f"{kind} upsert", lambda t=table: t.upsert(changes))
                merged = table.scan().to_spark(spark)
                total = count + options.upsert // 5
                if sum_of(merged)[1] != total:
                    message = f"{kind}: {sum_of(merged)[1]} rows where {total} belong"
                    raise SystemExit(message)
                note(f"{kind} scan all", lambda m=merged: everything(m))
                note(f"{kind} scan sum", lambda m=merged: sum_of(m))
            read = spark.read.parquet(plain)
            note("plain scan all", lambda: everything(read))
            note("plain scan sum", lambda: sum_of(read))
    finally:
        spark.stop()
        shutil.rmtree(place)
    median = {name: round(statistics.median(each), 3) for name, each in times.items()}
    plain_write, bulk = median["plain parquet write"], median["cow bulk insert"]
    result = {
        "rows": options.rows,
        "changed": changed,
        "median_seconds": median,
        "bulk insert / plain write": round(bulk / plain_write, 2),
        "cow upsert / bulk insert": round(median["cow upsert"] / bulk, 2),
        "mor upsert / bulk insert": round(median["mor upsert"] / bulk, 2),
        "cow scan all / plain": round(median["cow scan all"] / median["plain scan all"], 2),
        "cow scan sum / plain": round(median["cow scan sum"] / median["plain scan sum"], 2),
        "mor scan all / plain": round(median["mor scan all"] / median["plain scan all"], 2),
        "mor scan sum / plain": round(median["mor scan sum"] / median["plain scan sum"], 2),
    }
    print(json.dumps(result, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
