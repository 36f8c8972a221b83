"""You see an older version read by its number and by a time, and a mistake taken back.

It prints:

    now: []
    version 2: ['Lima', 'Oslo']
    before the mistake: ['Lima', 'Oslo']
    after the restore, version 5: ['Lima', 'Oslo']
"""

from __future__ import annotations

import pyarrow as pa

from plait import Scan, Table


def cities(scan: Scan) -> list[str]:
    """Return the cities that a scan gives, in order."""
    return sorted(scan.to_arrow()["city"].to_pylist())


table = Table.create("memory://time-travel", "id bigint, city string", record_key=["id"])
table.upsert(pa.table({"id": [1], "city": ["Oslo"]}))
table.upsert(pa.table({"id": [2], "city": ["Lima"]}))
good = table.inspect.history()[0]  # the newest decision: what it did, and when
table.versions.savepoint("before-cleanup")  # keeps its version readable, however long
table.delete(where="id > 0")  # a mistake: all rows

print("now:", cities(table.scan()))
print("version 2:", cities(table.scan(version=good.version)))
print("before the mistake:", cities(table.scan(as_of=good.completed_ms)))
result = table.versions.restore(savepoint="before-cleanup")
print(f"after the restore, version {result.version}:", cities(table.scan()))
