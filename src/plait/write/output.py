"""The files that one writer leaves on storage: their names, and which there are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from plait.files.data import GROUP_ROWS, DataFileWriter, Place
from plait.files.names import KEYS, MASK, data_path
from plait.model.bucket import UNKEYED, BucketId, Partition
from plait.model.plan import TableSpec, WritePlan
from plait.storage.port import Store
from plait.write.encoding import repeating_columns
from plait.write.limits import Limits

Announce = Callable[[Iterable[Partition]], None]


@dataclass(slots=True)
class Output:
    """Opens files under final, unique names. Used by one thread at a time."""

    store: Store
    plan: WritePlan
    limits: Limits
    task: str
    """Tells the writers of one instant apart."""
    announce_new: Announce
    written: set[str] = field(default_factory=set)
    """Every file opened so far, whether or not it is of use in the end."""
    _announced: set[Partition] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def spec(self) -> TableSpec:
        """How the table's rows are laid out."""
        return self.plan.spec

    def announce(self, partitions: Iterable[Partition]) -> None:
        """Make sure that recovery knows of these partitions before a file appears in them."""
        fresh = [p for p in dict.fromkeys(partitions) if p not in self._announced]
        if fresh:
            self.announce_new(fresh)
            self._announced.update(fresh)

    def open(
        self, bucket: BucketId, kind: str, first: pa.Table, *, sorted_by_key: bool
    ) -> DataFileWriter:
        """Open a data file.

        The first rows decide how many make a row group, and which columns get a dictionary.
        """
        place = Place(self.name(bucket, kind), *bucket, kind)
        width = max(1, first.nbytes // max(1, first.num_rows))
        rows = min(GROUP_ROWS, max(1, self.limits.group // width))
        return DataFileWriter(
            self.store,
            place,
            self.spec,
            sorted_by_key=sorted_by_key,
            group_rows=rows,
            dictionary=repeating_columns(first),
        )

    def write(
        self, bucket: BucketId, kind: str, blocks: Iterable[pa.Table], *, sorted_by_key: bool
    ) -> pa.Table | None:
        """Write a data file and give its record (ADDED, one row); None if there are no rows."""
        rest = (block for block in blocks if block.num_rows)
        first = next(rest, None)
        if first is None:
            return None
        with self.open(bucket, kind, first, sorted_by_key=sorted_by_key) as writer:
            writer.write(first)
            del first
            for block in rest:
                writer.write(block)
            return writer.close()

    def mask_name(self, partition: Partition) -> str:
        """Name a file of deletion vectors; it is not written unless a vector is large."""
        path = self.name((partition, UNKEYED), MASK)
        self.written.discard(path)
        return path

    def keys_name(self, bucket: BucketId) -> str:
        """Name a sidecar of key hashes."""
        return self.name(bucket, KEYS)

    def name(self, bucket: BucketId, kind: str) -> str:
        """Give a name that no other file has, and count it as written."""
        partition, number = bucket
        self.announce([partition])
        attempt = f"{self.plan.label(self.task)}-{next(self._numbers):04d}"
        path = data_path(partition, number, self.plan.instant, attempt, kind)
        self.written.add(path)
        return path
