"""You see rows go by predicate, by key, and because their time to live is over.

It prints:

    6 rows
    5 rows after the delete by predicate
    4 rows after the delete by key
    2 rows after the expiry, which removed 2
    version 2 still has 5 rows
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from plait import Table

OLD = datetime(2020, 1, 1, tzinfo=UTC)
NEW = datetime(2100, 1, 1, tzinfo=UTC)

table = Table.create(
    "memory://delete-and-ttl",
    "id bigint, at timestamp",
    record_key=["id"],
    ttl="at 90d row",  # a row may go 90 days after the time in its column
)
table.upsert(pa.table({"id": range(6), "at": [OLD, OLD, OLD, NEW, NEW, NEW]}))
print(f"{table.scan().count()} rows")
table.delete(where="id = 2")
print(f"{table.scan().count()} rows after the delete by predicate")
table.delete(keys=pa.table({"id": [5]}))
print(f"{table.scan().count()} rows after the delete by key")

report = table.maintenance.expire()  # `tablectl services run` does this by itself
print(f"{table.scan().count()} rows after the expiry, which removed {report.rows_deleted}")
print(f"version 2 still has {table.scan(version=2).count()} rows")
