"""You see what each commit inserted, updated and deleted, and a reader that goes on where it was.

It prints:

    version 2: insert Rome 1.0
    version 2: update_preimage Lima 5.0
    version 2: update_postimage Lima 7.5
    version 3: delete Oslo 3.0
    nothing new
"""

from __future__ import annotations

import pyarrow as pa

from plait import Table

table = Table.create("memory://change-feed", "city string, delay double", record_key=["city"])
table.upsert(pa.table({"city": ["Oslo", "Lima"], "delay": [3.0, 5.0]}))
seen = table.version  # a reader keeps this number, and nothing else

table.upsert(pa.table({"city": ["Lima", "Rome"], "delay": [7.5, 1.0]}))
table.delete(where="city = 'Oslo'")

for _ in range(2):
    changes = table.changes(since=seen)
    for row in changes.to_arrow().to_pylist():
        what = row["_change_type"]
        print(f"version {row['_commit_version']}: {what} {row['city']} {row['delay']}")
    if not changes.to_arrow().num_rows:
        print("nothing new")
    seen = changes.until
