"""What the driver does beside the executors: plan writes and scans on 200,000 buckets.

    python benchmarks/planning.py [--buckets 200000] [--rounds 3]

A table in memory gets one file in each bucket of 1,000 partitions; the files are entries of a real
decision and checkpoint, their contents are never looked at. What is timed is one process's work
with them: open and load the state, plan scans, divide the buckets among the tasks of a write, pack
the snapshot for them, and put their statuses together. Results: results/planning.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait import Table
from plait.files.data_file import data_path
from plait.model.bucket import partition_text
from plait.model.changes import ADDED, BASE, KEYS_FILES, TOUCHED, Changes, WriteStats, WriteStatus
from plait.model.decision import SCOPE_BUCKETS, Scope
from plait.model.instant import Operation
from plait.model.request import WriteRequest
from plait.spark.route import Route
from plait.spark.transfer import PackedSnapshot
from plait.table import handle_of
from plait.txn.transaction import OptimisticTransaction
from plait.write.combine import combine_tasks

RESULTS = Path(__file__).with_name("results") / "planning.json"
PARTITIONS, TASKS = 1_000, 200


def filled(uri: str, buckets: int) -> Table:
    """Make a table with a file in each bucket."""
    each = buckets // PARTITIONS
    table = Table.create(
        uri,
        "day bigint, id bigint, value double",
        record_key=["id"],
        partition_by=["day"],
        buckets=each,
        properties={"checkpoint.interval": "1"},
    )
    txn = OptimisticTransaction.begin(handle_of(table), WriteRequest(Operation.INSERT))
    places = [(str(day),) for day in range(PARTITIONS)]
    txn.announce(places)
    names = [
        (data_path(place, number, txn.instant, "0-0000", BASE), partition_text(place), number)
        for place in places
        for number in range(each)
    ]
    paths, texts, numbers = zip(*names, strict=True)
    count = len(names)
    low = np.arange(count) * 1_000
    stats = [f'{{"2":["{n}","{n + 999_999}",0]}}' for n in low.tolist()]
    columns = [paths, texts, numbers, [BASE] * count, [1_000] * count, [1 << 20] * count]
    added = pa.table([*columns, *[[0] * count] * 3, stats], schema=ADDED)
    keys = [[KEYS_FILES] * count, [1_000] * count, [None] * count, [None] * count]
    touched = pa.table([texts, numbers, *keys], schema=TOUCHED)
    status = WriteStatus(Changes(added=added, touched=touched), WriteStats(files_added=count))
    txn.commit(status, Scope(SCOPE_BUCKETS), None)
    return table


def measured(table: Table) -> dict[str, Callable[[], object]]:
    """Name what is timed."""
    uri = handle_of(table).store.address.uri
    snapshot = handle_of(table).cache.snapshot()
    spec = snapshot.spec

    def plan_write() -> None:
        route = Route.plan(spec, columns=spec.schema.names, wanted=TASKS, files=snapshot.files)
        route.tasks_of(snapshot.files)
        PackedSnapshot.pack(snapshot)

    shares = [
        WriteStatus(Changes(added=snapshot.files.select(ADDED.names).slice(start, 1_000)))
        for start in range(0, snapshot.files.num_rows, 1_000)
    ]
    return {
        "open and load": lambda: Table.open(uri).inspect.files().num_rows,
        "plan a scan of all": lambda: table.scan().plan,
        "plan a scan of one day": lambda: table.scan(where="day = 7").plan,
        "plan a scan by bounds": lambda: table.scan(where="id < 5000").plan,
        "plan a look-up": lambda: table.scan(where="day = 7 AND id = 5").plan,
        "plan a write": plan_write,
        "put the statuses together": lambda: combine_tasks(shares, keyed=True),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--buckets", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    table = filled(f"memory://planning-{os.getpid()}", asked.buckets)
    assert table.inspect.files().num_rows == asked.buckets
    seconds: dict[str, float] = {}
    for name, run in measured(table).items():
        times = []
        for _ in range(asked.rounds):
            begun = time.perf_counter()
            run()
            times.append(time.perf_counter() - begun)
        seconds[name] = round(statistics.median(times), 3)
    result = {"buckets": asked.buckets, "median_seconds": seconds}
    print(json.dumps(result, indent=2))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
