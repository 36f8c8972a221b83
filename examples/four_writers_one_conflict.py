"""You see four writers that start from one version: three commit, and one meets a conflict.

It prints:

    north: version 2, buckets that it did again: 0
    east: version 3, buckets that it did again: 1
    south: version 4, buckets that it did again: 1
    late: refused, version 2 was first; nothing of it is visible
    [('a', 1), ('b', 1), ('c', 1)]
"""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa

from plait import ConflictError, Table

table = Table.create("memory://four-writers", "key string, n bigint", record_key=["key"], buckets=1)
table.upsert(pa.table({"key": ["a", "b"], "n": [0, 0]}))

# North and late change one key. East and south change other keys in the same bucket.
keys = {"north": "a", "east": "b", "south": "c", "late": "a"}
jobs = {name: ExitStack() for name in keys}
writers = {name: jobs[name].enter_context(table.writer("upsert")) for name in keys}
for name, writer in writers.items():  # all begin before anyone commits, as jobs do that overlap
    writer.write(pa.table({"key": [keys[name]], "n": [9 if name == "late" else 1]}))

for name, job in jobs.items():
    try:
        job.close()  # the end of a writer's block commits
    except ConflictError as error:
        print(f"{name}: refused, version {error.version} was first; nothing of it is visible")
    else:
        result = writers[name].result
        print(f"{name}: version {result.version}, buckets that it did again: {result.rebased}")

rows = table.scan().to_arrow().sort_by("key").to_pylist()
print([(row["key"], row["n"]) for row in rows])
