"""What it costs to publish a version: a small commit with it and without, and CPU.

    python benchmarks/publishing.py [--commits 150] [--files 100000]

Three merge-on-read tables on a local disk, two of which are published, take the same upserts of
100 rows in turn, so that a slow moment of the machine meets all. What counts is the median of the
ratios to the commit of the same turn that is not published. Iceberg is published on a thread, which
ends before the next commit begins: its wall is that of the commit alone. Then a table of
``--files`` live files gets a commit that touches one bucket, and its publication is measured alone,
in seconds of CPU, in each format.
Results: results/publishing.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa

from benchmarks.planning import filled
from benchmarks.small_commits import batch
from plait import Table
from plait.files.data_file import data_path
from plait.interop.publication import delta_publisher, iceberg_publisher
from plait.model.bucket import partition_text
from plait.model.changes import ADDED, BASE, KEYS_FILES, TOUCHED, Changes, WriteStats, WriteStatus
from plait.model.decision import SCOPE_BUCKETS, Scope
from plait.model.instant import Operation
from plait.model.request import WriteRequest
from plait.services.maintenance.upkeep import finish_upkeep
from plait.table import handle_of
from plait.testing import CountingStore, open_wrapped
from plait.txn.transaction import OptimisticTransaction

RESULTS = Path(__file__).with_name("results") / "publishing.json"
LATE = 20


def small(place: Path, commits: int) -> dict[str, object]:
    """Upsert into both tables in turn."""
    schema = batch(0).schema
    tables = {
        name: Table.create(
            str(place / name),
            schema,
            record_key="id",
            table_type="mor",
            buckets=4,
            properties={"publish": publish},
        )
        for name, publish in (("plain", ""), ("published", "delta"), ("iceberg", "iceberg"))
    }
    wall: dict[str, list[float]] = {name: [] for name in tables}
    cpu: dict[str, list[float]] = {name: [] for name in tables}
    for number in range(commits):
        data = batch(number % 7)
        names = list(tables)
        for name in names[number % 3 :] + names[: number % 3]:
            table = tables[name]
            begun, worked = time.perf_counter(), time.process_time()
            table.upsert(data)
            wall[name].append(time.perf_counter() - begun)
            finish_upkeep()
            cpu[name].append(time.process_time() - worked)
    calls = {}
    for name in tables:
        table, store = open_wrapped(str(place / name), CountingStore)
        table.upsert(batch(1))
        store.reset()
        table.upsert(batch(2))
        finish_upkeep()
        calls[name] = sum(store.counts("metadata").values()) + sum(store.counts("data").values())
    medians = {name: statistics.median(times) for name, times in wall.items()}

    def ratio(times: dict[str, list[float]], name: str) -> float:
        pairs = zip(times[name], times["plain"], strict=True)
        return round(statistics.median(one / other for one, other in pairs), 3)

    return {
        "commits": commits,
        "ratio_wall": ratio(wall, "published"),
        "ratio_cpu": ratio(cpu, "published"),
        "iceberg_ratio_wall": ratio(wall, "iceberg"),
        "iceberg_ratio_cpu": ratio(cpu, "iceberg"),
        "median_ms": {name: round(value * 1000, 2) for name, value in medians.items()},
        "store_calls_a_commit": calls,
    }


def large(files: int, target: str) -> dict[str, object]:
    """Publish commits to a table of many files, one bucket each."""
    table = filled(f"memory://bench-publishing-{target}", files)
    table.alter.set({"publish": target, "publish.deadline": "0s", "checkpoint.interval": "1000"})
    finish_upkeep()
    handle = handle_of(table)
    publisher = delta_publisher(handle) if target == "delta" else iceberg_publisher(handle)
    begun = time.process_time()
    state, look = handle.cache.refresh(), handle.cache.refresh
    first = publisher.catch_up(state, late=lambda: False, refresh=look, whole=True)
    assert first.published
    first_s = time.process_time() - begun
    spent = []
    for number in range(LATE):
        txn = OptimisticTransaction.begin(handle, WriteRequest(Operation.INSERT))
        place = (str(number),)
        txn.announce([place])
        path, text = data_path(place, 0, txn.instant, "0-0000", BASE), partition_text(place)
        added = pa.table(
            [[path], [text], [0], [BASE], [10], [1 << 20], [0], [0], [0], ['{"2":["1","2",0]}']],
            schema=ADDED,
        )
        touched = pa.table(
            [[text], [0], [KEYS_FILES], [10], pa.nulls(1, pa.binary()), pa.nulls(1, pa.string())],
            schema=TOUCHED,
        )
        status = WriteStatus(Changes(added=added, touched=touched), WriteStats(files_added=1))
        txn.commit(status, Scope(SCOPE_BUCKETS), None)
        finish_upkeep()
        begun = time.process_time()
        done = publisher.catch_up(handle.cache.known(), late=lambda: False, refresh=look)
        spent.append(time.process_time() - begun)
        assert done.published == 1
    return {
        "files": files,
        "first_publication_cpu_s": round(first_s, 2),
        "commit_of_one_bucket_cpu_ms": round(statistics.median(spent) * 1000, 2),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=150)
    parser.add_argument("--files", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as place:
        result: dict[str, object] = {
            "small": small(Path(place), options.commits),
            "large": large(options.files, "delta"),
            "large_iceberg": large(options.files, "iceberg"),
        }
    result["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(result, indent=2))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
