"""Repair a table from a replica, beside a copy of the whole replica.

    python benchmarks/replica_repair.py [--rows 5000000] [--buckets 64] [--damaged 5]

The table has an eighth of its rows updated; the replica is merge-on-read and has the same rows.
Files of some buckets are deleted or overwritten. Counted are the data files that the repair opens
in the replica and writes here. The two tables are compared row by row afterwards.
Results: benchmarks/results/replica_repair.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.compare_tables import SCHEMA, rows
from plait import Table
from plait.model.words import TableType
from plait.table import handle_of

RESULTS = Path(__file__).with_name("results") / "replica_repair.json"
_AT_ONCE = 500_000


def fill(place: Path, count: int, buckets: int) -> tuple[Table, Table]:
    """Make the table and its replica."""
    made = []
    kinds: dict[str, TableType] = {"table": "cow", "replica": "mor"}
    for name, kind in kinds.items():
        table = Table.create(
            str(place / name), SCHEMA, record_key="id", buckets=buckets, table_type=kind
        )
        with table.writer("insert") as writer:
            for first in range(0, count, _AT_ONCE):
                writer.write(rows(first, min(_AT_ONCE, count - first)))
        table.upsert(rows(0, count // 8))
        made.append(table)
    return made[0], made[1]


def live(table: Table) -> list[tuple[int, str]]:
    """Return the bucket and the path of each live file."""
    files = handle_of(table).cache.refresh().snapshot(handle_of(table).store).files
    return list(zip(files["bucket"].to_pylist(), files["path"].to_pylist(), strict=True))


def destroy(table: Table, buckets: Sequence[int]) -> None:
    """Delete every file of each second bucket, and overwrite those of the others."""
    for bucket, path in live(table):
        if bucket in buckets:
            file = Path(handle_of(table).store.location(path))
            if bucket % 2:
                file.unlink()
            else:
                file.write_bytes(b"\0" * file.stat().st_size)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--buckets", type=int, default=64)
    parser.add_argument("--damaged", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        table, replica = fill(place, asked.rows, asked.buckets)
        before = set(live(table))
        damaged = list(range(0, 3 * asked.damaged, 3))
        destroy(table, damaged)

        began = time.perf_counter()
        report = table.check.repair_from_replica(str(place / "replica"))
        repair_s = time.perf_counter() - began

        began = time.perf_counter()
        copy = Table.create(str(place / "copy"), SCHEMA, record_key="id", buckets=asked.buckets)
        with copy.writer("insert") as writer:
            writer.write(replica.scan().to_reader())
        copy_s = time.perf_counter() - began

        after = set(live(table))
        touched = sorted({bucket for bucket, _ in before ^ after})
        if touched != damaged or not table.inspect.compare(replica).equal:
            sys.exit(f"wrong: the buckets {touched} changed")
        result = {
            "rows": asked.rows,
            "buckets": asked.buckets,
            "damaged": asked.damaged,
            "rows_taken": sum(each.found or 0 for each in report.buckets),
            "replica_files": len(live(replica)),
            "replica_files_read": report.files_read,
            "files_written": len(after - before),
            "repair_s": round(repair_s, 2),
            "of_copy": round(repair_s / copy_s, 2),
        }
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
