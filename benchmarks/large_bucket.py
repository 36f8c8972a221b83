"""A copy-on-write upsert into one bucket of 2 GB of Parquet: what the Python worker holds of it.

    python benchmarks/large_bucket.py [--gigabytes 2] [--rows 100000]

The bucket is written first, from a stream of rows whose content does not compress. Then Spark
upserts rows of which half update keys all over the bucket, so that every row group is merged. The
peak of resident memory is read from the system for each Python worker. Results:
benchmarks/results/large_bucket.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from plait import Table
from plait.spark import session

RESULTS = Path(__file__).with_name("results") / "large_bucket.json"
SCHEMA = pa.schema([("id", pa.int64()), ("version", pa.int64()), ("body", pa.binary())])
BODY_BYTES = 200
BATCH_ROWS = 50_000
BOUND_BYTES = 1 << 30


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """Make rows with the even numbers as keys."""
    chance = np.random.default_rng(11)
    for first in range(0, count, BATCH_ROWS):
        rows = min(BATCH_ROWS, count - first)
        ids = np.arange(first, first + rows, dtype=np.int64) * 2
        offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(BODY_BYTES)
        body = [None, pa.py_buffer(offsets), pa.py_buffer(chance.bytes(rows * BODY_BYTES))]
        bodies = pa.Array.from_buffers(pa.binary(), rows, body)
        yield pa.record_batch([ids, np.zeros(rows, dtype=np.int64), bodies], schema=SCHEMA)


class Workers:
    """Watches Spark's Python workers."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                self._look(process)

    def _look(self, process: Path) -> None:
        try:
            if b"pyspark.daemon" not in (process / "cmdline").read_bytes():
                return
            lines = (process / "status").read_text(encoding="ascii").splitlines()
        except OSError:
            return  # it has just ended
        for line in lines:
            if line.startswith("VmHWM:"):
                self.peak_bytes = max(self.peak_bytes, int(line.split()[1]) * 1024)

    def stop(self) -> int:
        """Return the most that one of them held."""
        self._done.set()
        self._thread.join()
        return self.peak_bytes


def _step(rows: int, changed: int) -> int:
    """Return the distance of keys to upsert; it is odd, so that every second is a new one."""
    return max(1, 2 * rows // changed) | 1


def upsert(spark: SparkSession, table: Table, rows: int, changed: int) -> tuple[int, float]:
    """Upsert rows of which half are there; give the peak of a worker and the seconds."""
    step = _step(rows, changed)
    frame = spark.range(changed).selectExpr(
        f"id * {step} AS id", "1L AS version", f"cast(repeat('x', {BODY_BYTES}) AS binary) AS body"
    )
    workers = Workers()
    began = time.perf_counter()
    table.upsert(frame)
    seconds = time.perf_counter() - began
    return workers.stop(), seconds


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--rows", type=int, default=100_000)
    asked = parser.parse_args()
    rows = int(asked.gigabytes * (1 << 30) / (BODY_BYTES + 12))
    with tempfile.TemporaryDirectory(prefix="plait-large-bucket-") as place:
        table = Table.create(f"{place}/t", SCHEMA, record_key=["id"], buckets=1)
        table.insert(pa.RecordBatchReader.from_batches(SCHEMA, batches(rows)))
        size = sum(file.stat().st_size for file in Path(place).rglob("*.parquet"))
        spark = session(master="local[2]", **{"spark.driver.memory": "2g"})
        peak, seconds = upsert(spark, table, rows, asked.rows)
        updated, there = rows_of(spark, table)
        spark.stop()
    step = _step(rows, asked.rows)
    known = sum(number % 2 == 0 and number * step < 2 * rows for number in range(asked.rows))
    if there != rows + asked.rows - known or updated != asked.rows:
        message = f"{there} rows, {updated} of the upsert: others belong there"
        raise SystemExit(message)
    result = {
        "bucket_bytes": size,
        "rows": rows,
        "upserted_rows": asked.rows,
        "worker_peak_bytes": peak,
        "seconds": round(seconds, 1),
        "bound_bytes": BOUND_BYTES,
    }
    print(json.dumps(result, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


def rows_of(spark: SparkSession, table: Table) -> tuple[int, int]:
    """Count the rows of the upsert, and all."""
    row = table.scan(columns=["version"]).to_spark(spark).selectExpr("sum(version)", "count(*)")
    found = row.collect()[0]
    return int(found[0]), int(found[1])


if __name__ == "__main__":
    main()
