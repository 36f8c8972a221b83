"""Where flushed buckets go as files of the table: log files, or appended files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from plait.arrow.buffer import FlushBatch
from plait.arrow.ingest import Group
from plait.arrow.merge import DuplicateRule, Merge
from plait.arrow.output import Output, bucket_id, touched_row
from plait.arrow.runs import Run, RunSink, hull, key_range, merged_order
from plait.files.footer import Range
from plait.files.hash import Hashes, encode_hashes, key_hashes
from plait.files.writer import DataFileWriter
from plait.model.bucket import BucketId
from plait.model.changes import BASE, KEYS_FILES, KEYS_INLINE, LOG
from plait.model.order import KEY_ORDER, NO_ORDER

OPEN_MAX: Final = 4
"""Files that an append keeps open, to go on with them at the next flush."""


@dataclass(frozen=True, slots=True)
class Log:
    """A file of one flush."""

    record: pa.Table
    """One row of ADDED."""
    range: Range
    hashes: Hashes | None = None
    """Hashes of its keys, if the decision has to list them."""


@dataclass(slots=True)
class FewKeys:
    """The key hashes of rows that pass by, as long as they are few; see ``Output.records_keys``."""

    output: Output
    hashes: Hashes | None = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Hashes of the keys; None if they are too many."""

    def passing(self, blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Pass rows on."""
        for block in blocks:
            held = self.hashes
            if held is not None:
                fits = self.output.records_keys(len(held) + block.num_rows)
                fresh = key_hashes(block, self.output.spec.key) if fits else None
                self.hashes = None if fresh is None else np.concatenate([held, fresh])
            yield block


@dataclass(slots=True)
class ShownKeys:
    """The keys of the files that a bucket gets, for its row of TOUCHED."""

    output: Output
    _rows: int = 0
    _parts: list[Hashes] | None = field(default_factory=list)

    def add(self, log: Log, *, lost: int) -> None:
        """Take a file, of which so many rows are hidden."""
        self._rows += int(log.record["rows"][0].as_py())
        if log.hashes is None or lost or not self.output.records_keys(self._rows):
            self._parts = None
        elif self._parts is not None:
            self._parts.append(log.hashes)

    def row(self, bucket: BucketId) -> pa.Table:
        """Return the row of TOUCHED."""
        if not self._parts:
            return touched_row(bucket, KEYS_FILES, self._rows)
        body = encode_hashes(np.concatenate(self._parts))
        return touched_row(bucket, KEYS_INLINE, len(body) // 8, key_inline=body)


@dataclass(slots=True)
class LogSink:
    """Merge on read: each flush of a bucket is a file of its own, sorted by key.

    Keys that were removed are in no file: they are spilled, to be masked when the bucket is staged.
    """

    output: Output
    rule: DuplicateRule
    """What becomes of a key that comes in twice."""
    spill: RunSink
    logs: dict[BucketId, list[Log]] = field(default_factory=dict)
    """The files of each bucket, oldest first."""
    removals: dict[BucketId, list[tuple[int, Run]]] = field(default_factory=dict)
    """What was removed from each bucket, and how many of its ``logs`` came before."""
    empty: Collection[Group] = ()
    """Buckets known to have no base file: the first file there is one."""

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        """Write each bucket's rows, one row a key."""
        for order, run in self.spill.spill_removals(orders):
            bucket = bucket_id(order.group)
            before = len(self.logs.setdefault(bucket, []))
            self.removals.setdefault(bucket, []).append((before, run))
        orders = [order for order in orders if order.batches]
        self.output.announce(bucket_id(order.group)[0] for order in orders)
        limits, spec = self.output.limits, self.output.spec
        merge = Merge(spec.key, spec.layout.ordering, self.rule)
        for order in orders:
            bucket = bucket_id(order.group)
            logs = self.logs.setdefault(bucket, [])
            kind = LOG if logs or bucket not in self.empty else BASE
            keys_within = key_range(order.batches, spec.key[0])
            recorded = FewKeys(self.output)
            blocks = recorded.passing(merged_order(order, merge, limits, limits.slice))
            record = self.output.write(bucket, kind, blocks, order=KEY_ORDER)
            if record is not None:
                logs.append(Log(record, keys_within, recorded.hashes))
            order.done()

    def removed(self, bucket: BucketId, logs: int) -> list[Run]:
        """Return what was removed from a bucket when so many of its logs had come."""
        return [run for before, run in self.removals.get(bucket, ()) if before == logs]

    def range(self, bucket: BucketId) -> Range:
        """Return the range of the first key column of what came for a bucket."""
        runs = [run for _, run in self.removals.get(bucket, ())]
        return hull([each.range for each in (*self.logs.get(bucket, ()), *runs)])


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
            writer = self.output.open(bucket, BASE, table, order=NO_ORDER)
        # Last in the order of use.
        self._open[bucket] = writer
        writer.write(batch)
        if writer.written_bytes >= self.target_bytes:
            self._close(bucket)

    def _close(self, bucket: BucketId) -> None:
        writer = self._open.pop(bucket)
        self.records.setdefault(bucket, []).append(writer.close())
