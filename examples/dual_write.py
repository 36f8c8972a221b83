"""You see rows reach another table before the commit, and no commit when that table is away.

It prints:

    table ['Lima', 'Oslo'], region eu ['Lima', 'Oslo']
    no commit: a region that is away acknowledges nothing
    table ['Lima', 'Oslo'], region eu ['Lima', 'Oslo']
"""

from __future__ import annotations

import pyarrow as pa

from plait import ReplicationError, Table
from plait.replicate import Replicas, Retries, TableSink

SCHEMA = "id bigint, city string"
table = Table.create("memory://dual-write", SCHEMA, record_key=["id"])
region = Table.create("memory://dual-write-eu", SCHEMA, record_key=["id"])


def cities(of: Table) -> list[str]:
    """Return the cities of a table, in order."""
    return sorted(of.scan().to_arrow()["city"].to_pylist())


def write(rows: pa.Table, address: str) -> None:
    """Write rows to the region first; the commit waits until it has acknowledged them."""
    sinks = Replicas([TableSink("eu", address)], retries=Retries(attempts=1))
    with table.writer("upsert", replicas=sinks) as writer:
        writer.write(rows)


write(pa.table({"id": [1, 2], "city": ["Oslo", "Lima"]}), "memory://dual-write-eu")
print(f"table {cities(table)}, region eu {cities(region)}")
try:
    write(pa.table({"id": [3], "city": ["Rome"]}), "memory://dual-write-away")
except ReplicationError:
    print("no commit: a region that is away acknowledges nothing")
print(f"table {cities(table)}, region eu {cities(region)}")
