"""A small table of real files, made without the writer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from plait.files.data_file import MASK, LiveFile, Place, data_path, live_files
from plait.files.deletion import MaskWriter
from plait.files.hash import bucket_of, key_hashes
from plait.files.writer import DataFileWriter
from plait.model.bucket import UNKEYED, BucketSpec, Partition
from plait.model.changes import BASE
from plait.model.instant import Instant
from plait.model.plan import COW, LIVE, Snapshot, TableLayout, TableSpec
from plait.model.schema import Schema
from plait.model.value import texts_of
from plait.read.scan import Scan
from plait.read.slices import SliceReader
from plait.storage.local import LocalStore
from plait.storage.port import Store

INSTANT = Instant.at(0, "0" * 16)


@dataclass
class Built:
    """Files of a table, and the snapshot that shows them."""

    store: Store
    spec: TableSpec
    group_rows: int = 1000
    rows: list[dict[str, object]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, rows: pa.Table, masked: Sequence[int] = ()) -> None:
        """Add rows as one file a partition and bucket; ``masked`` are hidden in each."""
        table = rows.cast(self.spec.schema.arrow)
        buckets = np.full(table.num_rows, UNKEYED)
        if self.spec.keyed:
            buckets = bucket_of(key_hashes(table, self.spec.key), self.spec.layout.buckets.count)
        parts = list(
            zip(*(texts_of(table[name]) for name in self.spec.layout.partition_by), strict=True)
        )
        partitions = parts or [()] * table.num_rows
        places = list(zip(partitions, buckets.tolist(), strict=True))
        for place in sorted(set(places), key=str):
            flags = [other == place for other in places]
            self.add_file(table.filter(pa.array(flags)), place[0], place[1], masked)

    def add_file(
        self, rows: pa.Table, partition: Partition, bucket: int, masked: Sequence[int] = ()
    ) -> None:
        """Add one file."""
        number = f"0-{next(self.numbers):04d}"
        place = Place(data_path(partition, bucket, INSTANT, number, BASE), partition, bucket, BASE)
        with DataFileWriter(self.store, place, self.spec, group_rows=self.group_rows) as writer:
            writer.write(rows)
            row = writer.close().to_pylist()[0]
        row |= {"version": 1, "masked": 0}
        if len(masked):
            masks = MaskWriter(self.store, data_path(partition, bucket, INSTANT, number, MASK))
            masks.add(place.path, np.array(masked, dtype=np.uint64))
            entry = masks.close().to_pylist()[0]
            row |= {**entry, "rows": row["rows"], "masked": entry["rows"]}
        self.rows.append(row)

    @property
    def snapshot(self) -> Snapshot:
        """Give all files so far."""
        files = pa.Table.from_pylist(self.rows, schema=LIVE)
        return Snapshot(7, self.spec, {self.spec.schema.id: self.spec.schema}, files)

    @property
    def files(self) -> list[LiveFile]:
        """Give all files as values."""
        return list(live_files(self.snapshot.files))

    @property
    def reader(self) -> SliceReader:
        """Give a reader of slices."""
        return SliceReader.of(self.store, self.snapshot)

    def scan(self, where: object = None, columns: Sequence[str] | None = None) -> Scan:
        """Scan all files so far."""
        return Scan(self.store, self.snapshot, columns=columns, where=where)  # type: ignore[arg-type]


Build = Callable[..., Built]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Give a maker of tables: ``build(schema, key=..., partition_by=..., buckets=...)``."""

    def make(
        schema: pa.Schema,
        *,
        key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        buckets: int = 1,
        group_rows: int = 1000,
    ) -> Built:
        layout = BucketSpec(0, tuple(key), buckets)
        spec = TableSpec(Schema.create(schema), TableLayout(tuple(partition_by), layout, None, COW))
        return Built(LocalStore(str(tmp_path)), spec, group_rows)

    return make
