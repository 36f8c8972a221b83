"""You see a table of two buckets get eight, while a writer is at work that knows nothing of it.

It prints:

    2 buckets before
    8 buckets after, 1000 rows copied
    the writer that had begun before: version 4, 1001 rows
    before the repush: 1000 rows
"""

from __future__ import annotations

import pyarrow as pa

from plait import Table


def buckets() -> int:
    """Return how many buckets have files now."""
    return len(set(table.inspect.files()["bucket"].to_pylist()))


table = Table.create("memory://buckets", "id bigint, fare double", record_key=["id"], buckets=2)
table.upsert(pa.table({"id": range(1000), "fare": [9.5] * 1000}))
before = table.version
print(f"{buckets()} buckets before")

with table.writer("upsert") as writer:
    writer.write(pa.table({"id": [1000], "fare": [7.0]}))  # staged for one of two buckets
    report = table.layout.repush(buckets=8)  # others may write all along
    print(f"{buckets()} buckets after, {report.rows_loaded} rows copied")

version, rows = writer.result.version, table.scan().count()
print(f"the writer that had begun before: version {version}, {rows} rows")
print(f"before the repush: {table.scan(version=before).count()} rows")
