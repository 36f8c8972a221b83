"""Compare two tables of different layouts, beside two plain scans of the same rows.

    python benchmarks/compare_tables.py [--rows 5000000] [--rounds 3]

The second table is merge-on-read with other buckets; it has the same rows, and then three that
differ. Each measurement is a process of its own, and all take turns.
Results: benchmarks/results/compare_tables.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait import Table
from plait.model.words import TableType

RESULTS = Path(__file__).with_name("results") / "compare_tables.json"
SCHEMA = (
    "id bigint, flight string, origin string, dest string, day date, at timestamp, "
    "delay int, distance double, carrier string"
)
_AT_ONCE = 500_000


def rows(first: int, count: int) -> pa.Table:
    """Make rows from their numbers."""
    ids = np.arange(first, first + count)
    names = np.array(["ATL", "DFW", "JFK", "LAX", "ORD", "SFO", "SEA", "DEN"])
    return pa.table(
        {
            "id": ids,
            "flight": np.char.add("F", (ids % 9_973).astype(str)),
            "origin": names[ids % 8],
            "dest": names[(ids // 8) % 8],
            "day": pa.array((20_000 + ids % 30).astype(np.int32)).cast(pa.date32()),
            "at": pa.array(1_700_000_000_000_000 + ids * 1_000_003).cast(pa.timestamp("us", "UTC")),
            "delay": (ids % 300).astype(np.int32),
            "distance": ids * 0.25,
            "carrier": names[(ids // 64) % 8],
        }
    )


def fill(place: Path, count: int) -> None:
    """Make the three tables."""
    layouts: dict[str, tuple[int, TableType]] = {
        "one": (16, "cow"),
        "same": (64, "mor"),
        "three": (64, "mor"),
    }
    for name, (buckets, kind) in layouts.items():
        table = Table.create(
            str(place / name), SCHEMA, record_key="id", buckets=buckets, table_type=kind
        )
        with table.writer("insert") as writer:
            for first in range(0, count, _AT_ONCE):
                writer.write(rows(first, min(_AT_ONCE, count - first)))
        if name == "three":
            table.delete(keys=pa.table({"id": [7]}))
            table.update({"delay": "delay + 1"}, where=f"id = {count // 2}")
            table.insert(rows(count, 1))


def work(place: Path, what: str) -> dict[str, float]:
    """Do one thing, and tell its time and memory."""
    began = time.perf_counter()
    if what == "scans":
        for name in ("one", "same"):
            for _ in Table.open(str(place / name)).scan().to_reader():
                pass
        told = [0, 0, 0]
    else:
        found = Table.open(str(place / "one")).inspect.compare(Table.open(str(place / what)))
        told = [found.missing, found.extra, found.changed]
    seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    if told != ([1, 1, 1] if what == "three" else [0, 0, 0]):
        sys.exit(f"{what}: {told}")
    return {"s": seconds, "cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}


def main() -> None:
    """Measure all in turn, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs=2, metavar=("PLACE", "WHAT"))
    asked = parser.parse_args()
    if asked.work:
        place, what = Path(asked.work[0]), asked.work[1]
        if what == "fill":
            fill(place, asked.rows)
        else:
            print(json.dumps(work(place, what)))
        return
    found: dict[str, list[dict[str, float]]] = {"scans": [], "same": [], "three": []}
    with tempfile.TemporaryDirectory() as scratch:
        # Also this one, since a process counts what the one had that began it.
        base = [sys.executable, __file__, "--rows", str(asked.rows), "--work", scratch]
        subprocess.check_call([*base, "fill"], stdout=subprocess.DEVNULL)
        for _ in range(asked.rounds):
            for what, runs in found.items():
                runs.append(json.loads(subprocess.check_output([*base, what])))
    best = {what: min(runs, key=lambda run: run["s"]) for what, runs in found.items()}
    scans = best["scans"]["s"]
    result = {
        "rows": asked.rows,
        "rounds": asked.rounds,
        "runs": {
            what: {
                "s": round(run["s"], 2),
                "of_scans": round(run["s"] / scans, 2),
                "peak_mib": round(run["peak_mib"]),
            }
            for what, run in best.items()
        },
    }
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
