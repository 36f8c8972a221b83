"""A table without a timeline: what a writer staged is applied at once, as a commit would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Task
from plait.expr import parse_where, to_json
from plait.files.data_file import live_files
from plait.model.bucket import BucketId, BucketSpec, Partition
from plait.model.changes import Changes, WriteStatus
from plait.model.contract import Options
from plait.model.instant import Instant, Operation
from plait.model.plan import LIVE, Snapshot, TableLayout, TableSpec
from plait.model.request import WritePlan, WriteRequest
from plait.model.schema import Schema
from plait.read.slices import SliceReader
from plait.storage import open_store
from plait.storage.port import Store

_NO_MASK = {"masked": 0, "inline": None, "dv_path": None, "dv_offset": None, "dv_bytes": None}


class LiveTable:
    """The live files of one table, and writers on top of them."""

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        *,
        key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        ordering: str | None = None,
        table_type: str = "cow",
        buckets: int = 2,
        options: Mapping[str, object] | None = None,
        store: Store | None = None,
    ) -> None:
        self.store = store or open_store(uri, create=True)
        number = BucketSpec(0, tuple(key), buckets)
        arrow = Schema.create(schema)
        self.spec = TableSpec(arrow, TableLayout(tuple(partition_by), number, ordering, table_type))
        self.options = Options.of(options or {})
        self.files = LIVE.empty_table()
        self.version = 0
        self.announced: list[Partition] = []

    def snapshot(self) -> Snapshot:
        return Snapshot(self.version, self.spec, {0: self.spec.schema}, self.files)

    def plan(self, operation: str, *, where: str | None = None, **kind: Any) -> WritePlan:
        predicate = None
        if where is not None:
            predicate = to_json(parse_where(where, self.spec.schema.arrow))
            kind.setdefault("overwrite", "predicate")
        instant = Instant.at(1_000 + self.version, f"{self.version:016x}")
        parts = {name: kind.pop(name) for name in ("step", "claims", "digests") if name in kind}
        request = WriteRequest(Operation(operation), predicate=predicate, **kind)
        return WritePlan(request, self.store.address, instant, self.spec, self.options, **parts)

    def staging(self, operation: str, *, task: Task | None = None, **kind: object) -> ArrowStaging:
        plan = self.plan(operation, **kind)
        return ArrowStaging(plan, self.announced.extend, task=task, store=self.store)

    def write(self, operation: str, *data: object, **kind: object) -> WriteStatus:
        """Write all data in one operation and apply it."""
        staging = self.staging(operation, **kind)
        try:
            for rows in data:
                staging.write(rows)
            status = staging.stage(self.snapshot(), None)
        finally:
            staging.close()
        self.apply(status.changes)
        return status

    def change(self, *came: tuple[bool, object]) -> WriteStatus:
        """Upsert rows and remove keys, which the flag tells, in this order."""
        staging = self.staging("upsert", claims=True)
        try:
            for removes, data in came:
                (staging.remove if removes else staging.write)(data)
            status = staging.stage(self.snapshot(), None)
        finally:
            staging.close()
        self.apply(status.changes)
        return status

    def apply(self, changes: Changes) -> None:
        """Do to the live files what a decision with these changes does."""
        self.version += 1
        rows = {row["path"]: row for row in self.files.to_pylist()}
        for path in changes.removed["path"].to_pylist():
            del rows[path]
        for row in changes.added.to_pylist():
            assert row["path"] not in rows
            rows[row["path"]] = {**row, "version": self.version, **_NO_MASK}
        for mask in changes.masked.to_pylist():
            vector = {name: mask[name] for name in _NO_MASK if name != "masked"}
            rows[mask["path"]].update(masked=mask["rows"], **vector)
        self.files = pa.Table.from_pylist(list(rows.values()), schema=LIVE)

    def rows(self) -> list[dict[str, object]]:
        """Every live row, in the order of the files."""
        reader = SliceReader.of(self.store, self.snapshot())
        batches = [batch for file in live_files(self.files) for batch in reader.rows(file)]
        return [row for batch in batches for row in batch.to_pylist()]

    def buckets(self) -> set[BucketId]:
        return {(file.partition, file.bucket) for file in live_files(self.files)}
