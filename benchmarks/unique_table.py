"""Upserts into a table whose keys are unique in all partitions, beside one of unique partitions.

    python benchmarks/unique_table.py [--rows 5000000] [--rounds 3]

Both tables have the same rows in 30 partitions, and take the same upserts in turn: a tenth of the
rows, at random, each in the partition where it is; then 1,000 rows. Without a record index, and
with one. The last step moves 1,000 rows to other partitions, which only one of the tables can do.

Results: results/unique_table.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait import Table
from plait.model.words import TableType, Unique

RESULTS = Path(__file__).with_name("results") / "unique_table.json"
PARTITIONS = 30
NAMES = pa.array([f"day {number:02}" for number in range(PARTITIONS)])
UNIQUE: tuple[Unique, ...] = ("partition", "table")


def rows(ids: np.ndarray, value: int, *, moved: int = 0) -> pa.Table:
    """Make rows; a key decides its partition, unless it is moved."""
    day = NAMES.take(pa.array((ids * 7 + moved) % PARTITIONS))
    return pa.table({"id": ids, "day": day, "v": np.full(len(ids), value)})


def timed(table: Table, data: pa.Table) -> float:
    """Upsert; return the seconds."""
    began = time.perf_counter()
    table.upsert(data)
    return time.perf_counter() - began


def measure(folder: Path, kind: TableType, count: int, rounds: int) -> dict[str, object]:
    """Fill two tables, and upsert into them in turn."""
    tables, load = {}, {}
    for unique in UNIQUE:
        tables[unique] = Table.create(
            str(folder / f"{kind}-{unique}"),
            "id bigint, day string, v bigint",
            record_key="id",
            partition_by="day",
            table_type=kind,
            unique=unique,
            buckets=4,
            properties={"compact": "off"},
        )
        load[unique] = timed(tables[unique], rows(np.arange(count), 0))
    told: dict[str, object] = {"load, s": load}
    chance = np.random.default_rng(1)
    for index in ("no index", "index"):
        if index == "index":
            for table in tables.values():
                table.index.create()
        for size in (count // 10, 1_000):
            times: dict[str, list[float]] = {unique: [] for unique in UNIQUE}
            for number in range(rounds):
                data = rows(chance.choice(count, size, replace=False), number + 1)
                for unique in UNIQUE if number % 2 else UNIQUE[::-1]:
                    times[unique].append(timed(tables[unique], data))
            least = {unique: statistics.median(each) for unique, each in times.items()}
            told[f"{size} rows, {index}"] = {
                **{f"{unique}, s": seconds for unique, seconds in least.items()},
                "ratio": least["table"] / least["partition"],
            }
    away = rows(chance.choice(count, 1_000, replace=False), 99, moved=1)
    told["1000 rows moved, s"] = timed(tables["table"], away)
    assert tables["table"].scan().count() == count
    return told


def main() -> None:
    """Measure both types of table."""
    parser = argparse.ArgumentParser(description="Upserts where keys are unique in all partitions.")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    results: dict[str, object] = {"rows": asked.rows}
    kinds: tuple[TableType, ...] = ("mor", "cow")
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="plait-bench-unique-") as place:
            results[kind] = measure(Path(place), kind, asked.rows, asked.rounds)
    text = json.dumps(results, indent=1)
    RESULTS.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
