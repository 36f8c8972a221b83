"""One system's work, in a process and a Spark of its own; one JSON line a measurement.

    python work.py SYSTEM PLACE --rows 5000000 --upsert 250000 [--jar FILE]...

Every write reads the same source, so that reading it is part of each figure. A short run on a small
table comes first, so that no figure holds the first use of a code path.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.peers.systems import PARTITIONS, SYSTEMS, System, source_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS, UPSERTS = 2, 5
MANY = 50
"""So many upserts beside upkeep, each of a fifth of the first changes."""
WARM_ROWS = 100_000


def main() -> None:
    """Run one system's part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=[*SYSTEMS, "source"])
    parser.add_argument("place", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--upsert", type=int, required=True)
    parser.add_argument("--jar", action="append", default=[])
    asked = parser.parse_args()
    source = source_of(asked.place, asked.rows, asked.upsert)
    if asked.system == "source":
        spark = start("source", {}, [])
        make_source(spark, source, asked.rows, asked.upsert)
        spark.stop()
        return
    system = SYSTEMS[asked.system](asked.system, asked.place / "tables")
    spark = start(asked.system, system.settings(), asked.jar)
    system.session = spark
    Work(system, source, asked.rows, asked.upsert).run()
    spark.stop()


def start(name: str, settings: dict[str, str], jars: list[str]) -> SparkSession:
    """Start Spark with two cores; the same for all."""
    from pyspark.sql import SparkSession

    common = {
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.default.parallelism": "4",
        "spark.sql.files.maxPartitionBytes": "64m",
        "spark.sql.parquet.compression.codec": "snappy",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {**common, **settings}.items():
        builder = builder.config(key, value)
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def make_source(spark: SparkSession, place: Path, rows: int, upsert: int) -> None:
    """Write the rows to load, in random order of keys, and the batches of changes."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    def nine(keys: DataFrame, salt: int) -> DataFrame:
        mixed = [F.xxhash64("id", F.lit(1000 * salt + number)) for number in range(6)]
        name = F.lpad(F.pmod(mixed[5], F.lit(5000)).cast("string"), 14, "0")
        return keys.select(
            "id",
            F.concat(F.lit("p"), F.pmod(F.xxhash64("id"), F.lit(PARTITIONS))).alias("part"),
            (F.lit(1_700_000_000_000 + salt) + F.pmod(mixed[0], F.lit(1000))).alias("ts"),
            (mixed[1] / F.lit(9.3e18)).alias("d1"),
            (mixed[2] / F.lit(1e15)).alias("d2"),
            mixed[3].alias("l1"),
            F.pmod(mixed[4], F.lit(100_000)).alias("l2"),
            F.substring(F.sha2(mixed[5].cast("string"), 256), 1, 20).alias("s1"),
            F.concat(F.lit("name-"), name).alias("s2"),
        )

    def changes(count: int, of: int, salt: int) -> DataFrame:
        known = count * 4 // 5
        # So many different keys, spread over all.
        step = spark.range(known).select(((F.col("id") * (of // known) + salt) % of).alias("id"))
        new = spark.range(of + salt * count, of + salt * count + count - known)
        return nine(step.union(new), salt)

    def write(frame: DataFrame, name: str) -> None:
        frame.repartition(8).write.mode("overwrite").parquet(str(place / name))

    nine(spark.range(rows).orderBy(F.xxhash64("id")), 0).write.mode("overwrite").parquet(
        str(place / "base")
    )
    for number in range(1, UPSERTS + 1):
        write(changes(upsert, rows, number), f"changes{number}")
    write(nine(spark.range(WARM_ROWS), 0), "warm")
    write(changes(WARM_ROWS // 10, WARM_ROWS, 1), "warm-changes")


class Work:
    """What is measured of one system."""

    def __init__(self, system: System, source: Path, rows: int, upsert: int) -> None:
        self._system, self._source = system, source
        self._rows, self._new = rows, upsert - upsert * 4 // 5

    def run(self) -> None:
        """Warm up, then measure."""
        system = self._system
        self._warm()
        for _ in range(ROUNDS):
            system.create("t")
            self._time("bulk insert", lambda: system.insert("t", self._read("base")))
        self._scans("fresh", self._rows)
        if not system.updates:
            return
        for number in range(1, UPSERTS + 1):
            rows = self._read(f"changes{number}")
            self._time("upsert", partial(system.upsert, "t", rows))
            if number in (1, UPSERTS):
                self._scans(f"after {number}", self._rows + number * self._new)
        if system.merges_on_read:
            self._time("compaction", lambda: system.compact("t"))
            self._scans("compacted", self._rows + UPSERTS * self._new)
            self._many()

    def _many(self) -> None:
        """Upsert often, and count the upkeep: the system's own, or one call after every fifth.

        The scan stands for what readers meet in between, so it comes before the call.
        """
        system = self._system
        system.create("many", kept=True)
        system.insert("many", self._read("base"))
        for _ in range(MANY // UPSERTS):
            begun = time.perf_counter()
            for share in range(UPSERTS):
                here = f"pmod(xxhash64(id, 1), {UPSERTS}) = {share}"
                system.upsert("many", self._read("changes1").where(here))
            seconds = time.perf_counter() - begun
            self._time("all among many", lambda: self._all("many"))
            begun = time.perf_counter()
            if not system.looks_after_itself:
                system.compact("many")
            seconds += time.perf_counter() - begun
            self._say("upsert with upkeep", seconds / UPSERTS)

    def _warm(self) -> None:
        system = self._system
        system.create("warm")
        system.insert("warm", self._read("warm"))
        if system.updates:
            system.upsert("warm", self._read("warm-changes"))
        self._sum("warm")
        self._all("warm")
        system.find("warm", 7).collect()

    def _scans(self, when: str, expected: int) -> None:
        for _ in range(3):
            self._time(f"sum {when}", lambda: self._sum("t"))
        for _ in range(2):
            self._time(f"all {when}", lambda: self._all("t"))
        for key in (42, 1_234_567 % self._rows, self._rows - 3):
            self._time(f"look-up {when}", partial(self._find, "t", key))
        found = self._sum("t")
        if found != expected:
            message = f"{self._system.name}: {found} rows {when} where {expected} belong"
            raise SystemExit(message)

    def _sum(self, table: str) -> int:
        row = self._system.read(table).selectExpr("sum(d1)", "count(1)").collect()[0]
        return int(row[1])

    def _all(self, table: str) -> None:
        # Not the noop sink: Delta refuses it where there are deletion vectors.
        frame = self._system.read(table)
        columns = ", ".join(frame.columns)
        frame.selectExpr(f"sum(cast(xxhash64({columns}) AS double))").collect()

    def _find(self, table: str, key: int) -> None:
        rows = self._system.find(table, key).collect()
        if len(rows) != 1:
            message = f"{self._system.name}: {len(rows)} rows with key {key}"
            raise SystemExit(message)

    def _read(self, name: str) -> DataFrame:
        return self._system.session.read.parquet(str(self._source / name))

    def _time(self, what: str, run: Callable[[], object]) -> None:
        begun = time.perf_counter()
        run()
        self._say(what, time.perf_counter() - begun)

    def _say(self, what: str, seconds: float) -> None:
        line = {"system": self._system.name, "spark": self._system.session.version}
        sys.stdout.write(json.dumps({**line, "what": what, "seconds": round(seconds, 3)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
