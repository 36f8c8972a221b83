"""Where flushed buckets go when their rows need no merging: straight into data files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from plait.errors import InvariantError
from plait.files.data import DataFileWriter
from plait.model.bucket import BucketId
from plait.model.changes import BASE, LOG
from plait.write.buffer import Order
from plait.write.merge import Merge, Rule
from plait.write.output import Output
from plait.write.ranges import KeyRange
from plait.write.spill import key_range, merged_order
from plait.write.split import Group

OPEN_MAX = 4
"""Files that an append keeps open, to go on with them at the next flush."""


def bucket_id(group: Group) -> BucketId:
    """Give the group as the bucket that it is; its partition must be known."""
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
    logs: dict[BucketId, list[Log]] = field(default_factory=dict)
    """The files of each bucket, oldest first."""
    empty: Collection[Group] = ()
    """Buckets known to have no base file: the first file there is one."""

    def flush(self, orders: Sequence[Order]) -> None:
        """Write each bucket's rows, one row a key."""
        self.output.announce(bucket_id(order.group)[0] for order in orders)
        limits, spec = self.output.limits, self.output.spec
        merge = Merge(spec.key, spec.ordering, Rule.REPLACE)
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

    def flush(self, orders: Sequence[Order]) -> None:
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
