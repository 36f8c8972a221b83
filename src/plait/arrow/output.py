"""The files that one writer leaves on storage: their names, and which there are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.buffer import FlushBatch
from plait.arrow.memory import MemoryLimits
from plait.arrow.merge import DuplicateRule, Merge
from plait.arrow.spill import KeyRange, key_range, merged_order
from plait.arrow.split import Group
from plait.errors import InvariantError
from plait.files.data import GROUP_ROWS, DataFileWriter, Place
from plait.files.names import KEYS, MASK, data_path
from plait.files.stats import leaf_paths
from plait.model.bucket import UNKEYED, BucketId, Partition
from plait.model.changes import BASE, LOG
from plait.model.plan import TableSpec, WritePlan
from plait.storage.port import Store

_SAMPLE_ROWS_MIN: Final = 1024
_SAMPLE_ROWS: Final = 8192
_SAMPLE_SHARE: Final = 3
"""One row in so many is looked at: in a small file a dictionary matters less than the look."""
_DISTINCT_MAX: Final = 0.5
_T = pa.types


def repeating_columns(rows: pa.Table) -> list[str]:
    """Return the Parquet paths of the leaf columns in which values repeat, judged by first rows.

    >>> repeating_columns(pa.table({"a": [1, 1, 1, 1], "b": [1, 2, 3, 4]}))
    ['a']
    """
    most = max(_SAMPLE_ROWS_MIN, rows.num_rows // _SAMPLE_SHARE)
    sample = rows.slice(0, min(most, _SAMPLE_ROWS))
    return [
        path
        for field, column in zip(rows.schema, sample.columns, strict=True)
        if _T.is_nested(field.type) or _repeats(column)
        for path, _ in leaf_paths(field.name, field.type)
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(column).as_py() <= len(column) * _DISTINCT_MAX)


Announce = Callable[[Iterable[Partition]], None]


@dataclass(slots=True)
class Output:
    """Opens files under final, unique names. Used by one thread at a time."""

    store: Store
    plan: WritePlan
    limits: MemoryLimits
    task: str
    """Tells the writers of one instant apart."""
    announce_new: Announce
    written: set[str] = field(default_factory=set)
    """Every file opened so far, whether or not it is of use in the end."""
    named: bool = False
    """Whether a file was ever named: from then on one may be on the store."""
    _announced: set[Partition] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def spec(self) -> TableSpec:
        """How the table's rows are laid out."""
        return self.plan.spec

    def announce(self, partitions: Iterable[Partition]) -> None:
        """Make sure that recovery knows of these partitions before a file appears in them.

        Raises:
            RolledBackError: our instant was ended, so that all further work is for nothing.
        """
        fresh = [p for p in dict.fromkeys(partitions) if p not in self._announced]
        self.announce_new(fresh)
        self._announced.update(fresh)

    def check_alive(self) -> None:
        """Raise RolledBackError if our instant was ended; for any thread."""
        self.announce_new(())

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
        """Write a data file and return its record (ADDED, one row); None if there are no rows."""
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
        """Return a name that no other file has, and count it as written."""
        partition, number = bucket
        self.named = True
        self.announce([partition])
        attempt = f"{self.plan.label(self.task)}-{next(self._numbers):04d}"
        path = data_path(partition, number, self.plan.instant, attempt, kind)
        self.written.add(path)
        return path


OPEN_MAX = 4
"""Files that an append keeps open, to go on with them at the next flush."""


def bucket_id(group: Group) -> BucketId:
    """Return the group as the bucket that it is; its partition must be known."""
    partition, number = group
    if partition is None:
        message = f"rows of bucket {number} without a partition cannot be written"
        raise InvariantError(message)
    return partition, number


@dataclass(frozen=True, slots=True)
class Log:
    """A file of one flush."""

    record: pa.Table
    """One row of ADDED."""
    range: KeyRange | None


@dataclass(slots=True)
class LogSink:
    """Merge on read: each flush of a bucket is a file of its own, sorted by key."""

    output: Output
    rule: DuplicateRule
    """What becomes of a key that comes in twice."""
    logs: dict[BucketId, list[Log]] = field(default_factory=dict)
    """The files of each bucket, oldest first."""
    empty: Collection[Group] = ()
    """Buckets known to have no base file: the first file there is one."""

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        """Write each bucket's rows, one row a key."""
        self.output.announce(bucket_id(order.group)[0] for order in orders)
        limits, spec = self.output.limits, self.output.spec
        merge = Merge(spec.key, spec.ordering, self.rule)
        for order in orders:
            bucket = bucket_id(order.group)
            logs = self.logs.setdefault(bucket, [])
            kind = LOG if logs or bucket not in self.empty else BASE
            found = key_range(order.batches, spec.key[0])
            blocks = merged_order(order, merge, limits, limits.slice)
            record = self.output.write(bucket, kind, blocks, sorted_by_key=True)
            if record is not None:
                logs.append(Log(record, found))
            order.done()


@dataclass(slots=True)
class AppendSink:
    """Tables without a key: rows go into files of about ``file.size.target``, as they came."""

    output: Output
    target_bytes: int
    records: dict[BucketId, list[pa.Table]] = field(default_factory=dict)
    _open: dict[BucketId, DataFileWriter] = field(default_factory=dict)

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        """Go on with each partition's file, or begin one."""
        self.output.announce(bucket_id(order.group)[0] for order in orders)
        for order in orders:
            bucket = bucket_id(order.group)
            for batch in order.batches:
                self._write(bucket, batch)
            order.done()

    def finish(self) -> None:
        """Close every file that is still open."""
        for bucket in list(self._open):
            self._close(bucket)

    def close(self) -> None:
        """Give up the files that are still open."""
        for writer in self._open.values():
            writer.abandon()
        self._open.clear()

    def _write(self, bucket: BucketId, batch: pa.RecordBatch) -> None:
        writer = self._open.pop(bucket, None)
        if writer is None:
            if len(self._open) >= OPEN_MAX:
                self._close(next(iter(self._open)))
            table = pa.Table.from_batches([batch])
            writer = self.output.open(bucket, BASE, table, sorted_by_key=False)
        # Last in the order of use.
        self._open[bucket] = writer
        writer.write(batch)
        if writer.written_bytes >= self.target_bytes:
            self._close(bucket)

    def _close(self, bucket: BucketId) -> None:
        writer = self._open.pop(bucket)
        self.records.setdefault(bucket, []).append(writer.close())
