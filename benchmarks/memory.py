"""Memory of a writer: 20 times its buffer comes in; base + 1.5 times the buffer is the promise.

    python benchmarks/memory.py [--buffer 32MiB] [--times 20]

For each table type a process of its own writes a stream with a small buffer. Its peak resident
memory is compared with that of the same process writing one small batch (the base). Flushes are
compared with what the sizes of the buffer ask for, and every row must be there once. Results:
benchmarks/results/memory.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait import Table
from plait.model.words import TableType

RESULTS = Path(__file__).with_name("results") / "memory.json"
ROWS = 8192
SCHEMA = pa.schema(
    [("id", pa.int64()), ("a", pa.float64()), ("b", pa.float64()), ("s", pa.string())]
)
ROW_BYTES = 8 * 3 + 4 + 20
BUCKETS = 4


def batches(total_bytes: int) -> Iterator[pa.RecordBatch]:
    """Make rows with keys in random order, each key once."""
    count = max(1, total_bytes // (ROWS * ROW_BYTES))
    chance = np.random.default_rng(7)
    for number in range(count):
        # multiplication by an odd number permutes 64-bit keys: no memory, no duplicates
        first = number * ROWS
        ids = (
            np.arange(first, first + ROWS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        ).view(np.int64)
        values = chance.random(ROWS)
        text = pa.array(np.char.mod("text-%015d", np.arange(first, first + ROWS)))
        yield pa.record_batch([ids, values, values * 2, text], schema=SCHEMA)


def peak_bytes() -> int:
    """Return the most memory that this process ever held.

    Not ``ru_maxrss``: that survives exec, so a child would answer with its parent's peak.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def child(place: str, table_type: TableType, buffer: int, total: int) -> None:
    """Write, and print what was used."""
    table = Table.create(
        place,
        SCHEMA,
        record_key=["id"],
        buckets=BUCKETS,
        table_type=table_type,
        properties={"write.buffer.size": str(buffer), "write.bucket.size": str(buffer)},
    )
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches(total):
            rows += batch.num_rows
            yield batch

    with table.writer("upsert") as writer:
        writer.write(pa.RecordBatchReader.from_batches(SCHEMA, counted()))
    print(json.dumps({"peak": peak_bytes(), "flushes": writer.result.stats.flushes, "rows": rows}))


def measured(table_type: str, buffer: int, total: int) -> dict[str, int]:
    """Run a child; check that every row is there once."""
    with tempfile.TemporaryDirectory(prefix="plait-memory-") as place:
        command = [sys.executable, __file__, "--child", f"{place}/t", table_type]
        done = subprocess.run(
            [*command, str(buffer), str(total)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"},
        )
        result: dict[str, int] = json.loads(done.stdout)
        found = Table.open(f"{place}/t").scan(columns=["id"]).to_arrow()["id"]
        if len(found) != result["rows"] or len(found.unique()) != len(found):
            message = f"{len(found)} rows, {len(found.unique())} keys of {result['rows']}"
            raise SystemExit(message)
    return result


def main() -> None:
    """Run and print."""
    if "--child" in sys.argv:
        place, table_type, buffer, total = sys.argv[2:]
        kind: TableType = "mor" if table_type == "mor" else "cow"
        child(place, kind, int(buffer), int(total))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--buffer", type=int, default=32)
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    buffer = options.buffer << 20
    results = {}
    for table_type in ("cow", "mor"):
        base = measured(table_type, buffer, 1)
        full = measured(table_type, buffer, options.times * buffer)
        grown = full["peak"] - base["peak"]
        results[table_type] = {
            "buffer_bytes": buffer,
            "input_times_buffer": options.times,
            "base_bytes": base["peak"],
            "peak_bytes": full["peak"],
            "grown_in_buffers": round(grown / buffer, 2),
            "flushes": full["flushes"],
            "rows": full["rows"],
        }
    print(json.dumps(results, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
