"""Calls that a type checker must refuse. Each line says by which code; nothing runs this file."""

from __future__ import annotations

import pyarrow as pa

from plait import CleanReport, Table

t = Table.open("flights")
rows = pa.table({"id": [1]})

# words
Table.create("flights", "id bigint", table_type="morr")  # E: arg-type
Table.create("flights", "id bigint", isolation="snapshott")  # E: arg-type
Table.create("flights", "id bigint", unique="everywhere")  # E: arg-type
Table.create("flights", "id bigint", concurrency="single")  # E: arg-type
Table.create("flights", "id bigint", failed_writes="never")  # E: arg-type
t.writer("upserts")  # E: arg-type
t.upsert(rows, on_conflict="retries")  # E: arg-type
t.upsert(rows, missing_columns="kept")  # E: arg-type
t.insert(rows, on_duplicate="ignore")  # E: arg-type
t.append(rows, evolve="yes")  # E: arg-type
t.overwrite(rows, partitions="static")  # E: arg-type
t.transaction(on_conflict="again")  # E: arg-type
t.stream("loader").writer("merge", after=None, end="1")  # E: arg-type
t.layout.repush(table_type="morr")  # E: arg-type
t.maintenance.cluster(order_by="id", kind="z-order")  # E: call-overload
t.alter.contract(concurrency="single")  # E: arg-type

# plans
compacted: CleanReport = t.maintenance.clean(dry_run=True)  # E: assignment
t.maintenance.clean(t.maintenance.compact(dry_run=True))  # E: call-overload
t.maintenance.clean(3)  # E: call-overload
t.versions.restore(3)  # E: call-overload

# names and values
t.upsert(3)  # E: arg-type
t.append([{"id": 1}])  # E: arg-type
t.delete(keys=[1, 2])  # E: arg-type
t.scan(columns=3)  # E: arg-type
t.scan(version="3")  # E: arg-type
t.compact()  # E: attr-defined
t.handle  # noqa: B018  # E: attr-defined
t.version = 3  # E: misc
