"""Small commits: storage calls counted, and time beside deltalake in the same run.

    python benchmarks/small_commits.py [--commits 200] [--until 2000]

Appends of 100 rows x 9 columns to a local disk. The storage port counts the calls at version 10
and at version ``--until``; if they differ, the program exits with 1. Plait and deltalake commit in
turn, so that a slow moment of the machine meets both. Results:
benchmarks/results/small_commits.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from plait import Table
from plait.testing import CountingStore, open_wrapped

RESULTS = Path(__file__).with_name("results") / "small_commits.json"
ROWS = 100


def batch(number: int) -> pa.Table:
    """Make the rows of one commit."""
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": ids,
            "part": np.full(ROWS, "p0"),
            "ts": 1_700_000_000_000 + ids,
            "d1": ids * 0.5,
            "d2": ids * 0.25,
            "l1": ids,
            "l2": ids + 1,
            "s1": [f"abcdefghijklmno{i}" for i in ids],
            "s2": [f"name-00000000{i}" for i in ids],
        }
    )


def counted(uri: str, number: int) -> dict[str, object]:
    """Count the storage calls and syncs of one append by a client that is warm."""
    table, store = open_wrapped(uri, CountingStore)
    table.append(batch(number))
    store.reset()
    table.append(batch(number + 1))
    return {
        "metadata": store.counts("metadata"),
        "data": store.counts("data"),
        "fsyncs": store.fsyncs,
    }


def main() -> int:
    """Run and print; return 1 if a late commit makes more calls than an early one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--until", type=int, default=2000)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="plait-bench-"))
    schema = batch(0).schema
    plait = Table.create(str(place / "plait"), schema)
    write_deltalake(str(place / "delta"), batch(0))
    counts: dict[int, dict[str, object]] = {}
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(1, options.commits + 1):
        data = batch(number)
        if number == 9:  # the second of the two commits works from version 10
            counts[10] = counted(str(place / "plait"), number)
        begun = time.perf_counter()
        plait.append(data)
        ours.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        write_deltalake(str(place / "delta"), data, mode="append")
        theirs.append(time.perf_counter() - begun)
    number = options.commits
    while plait.version < options.until - 1:
        number += 1
        plait.append(batch(number))
    counts[options.until] = counted(str(place / "plait"), number + 1)
    late: list[float] = []
    for extra in range(number + 3, number + 53):
        data = batch(extra)
        begun = time.perf_counter()
        plait.append(data)
        late.append(time.perf_counter() - begun)
    result = {
        "rows_a_commit": ROWS,
        "commits": options.commits,
        "plait_median_ms": round(statistics.median(ours) * 1000, 2),
        "deltalake_median_ms": round(statistics.median(theirs) * 1000, 2),
        "deltalake_fsyncs": "none: its local store does not sync",
        "ratio": round(statistics.median(ours) / statistics.median(theirs), 3),
        f"plait_median_ms_at_{options.until}": round(statistics.median(late) * 1000, 2),
        "storage_calls": {str(version): calls for version, calls in counts.items()},
    }
    print(json.dumps(result, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    shutil.rmtree(place)
    if counts[10] != counts[options.until]:
        print(f"storage calls of a commit grow with the table's history: {counts}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
