"""Where flushed buckets go: sorted runs on the local disk, log files, or appended files.

Runs are merged once, when the writer stages. A run never leaves this process: it is Arrow's own
file format, uncompressed, as fast as the local disk. One file holds the runs of all buckets of one
hand-over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.buffer import Buffer, FlushBatch
from plait.arrow.ingest import Group
from plait.arrow.memory import MemoryLimits, combined, taken
from plait.arrow.merge import DuplicateRule, Merge, Round
from plait.arrow.output import Output, bucket_id
from plait.errors import StorageError
from plait.files import keys
from plait.files.footer import Range, joined
from plait.files.writer import DataFileWriter
from plait.model.bucket import BucketId
from plait.model.changes import BASE, LOG
from plait.model.order import KEY_ORDER, NO_ORDER
from plait.model.value import to_raw
from plait.read.join import SortedBatch, Source

FAN_IN: Final = 32
"""A bucket with more runs than this has them merged into one on the way."""


def merged_order(
    order: FlushBatch, merge: Merge, limits: MemoryLimits, size_bytes: int
) -> Iterator[pa.Table]:
    """Return the rows of a bucket sorted, one row a key, in blocks of about ``size_bytes``.

    Each of its batches is sorted already, so that nothing larger than a round is copied.
    """
    if order.size <= limits.round:
        whole = combined(pa.Table.from_batches(order.batches))
        order_by_key = keys.merge_order(keys.encode(whole, merge.key))
        sources = [Source(iter([SortedBatch(taken(whole, order_by_key))]), unique=False)]
    else:
        sources = pieces(order)
    for each in merge.rounds(sources, limits.round):
        yield from kept_rows(each, size_bytes)


def pieces(order: FlushBatch) -> list[Source]:
    """Return the batches of a bucket as sorted sources, the oldest first."""
    tables = (pa.Table.from_batches([batch]) for batch in order.batches)
    return [Source(iter([SortedBatch(table)]), unique=False) for table in tables]


def kept_rows(merged: Round, size_bytes: int) -> Iterator[pa.Table]:
    """Return the rows of a round that stay, in blocks; copied only where some do not stay."""
    if merged.order is None:
        yield from sliced(merged.rows, size_bytes)
        return
    rows, step = combined(merged.rows), _rows_of(merged.rows, size_bytes)
    for start in range(0, len(merged.order), step):
        yield taken(rows, merged.order[start : start + step])


def sliced(rows: pa.Table, size_bytes: int) -> Iterator[pa.Table]:
    """Return rows in slices of about ``size_bytes``, without a copy."""
    step = _rows_of(rows, size_bytes)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _rows_of(rows: pa.Table, size_bytes: int) -> int:
    count: int = rows.num_rows * size_bytes // max(1, rows.nbytes)
    return max(1, count)


def key_range(batches: Sequence[pa.RecordBatch], column: str) -> Range:
    """Return the range of a column."""
    ends = pc.min_max(pa.Table.from_batches(batches).column(column))
    return Range(to_raw(ends["min"]), to_raw(ends["max"]))


def hull(ranges: Sequence[Range]) -> Range:
    """Return the smallest range that holds all of these, as far as it is known."""
    return joined(ranges, [1] * len(ranges))


@dataclass(frozen=True, slots=True)
class Run:
    """Where one sorted run lies."""

    path: Path
    first: int
    count: int
    rows: int
    range: Range

    def blocks(self) -> Iterator[pa.Table]:
        """Read the run in order, in the blocks in which it was written."""
        with pa.OSFile(str(self.path)) as source, pa.ipc.open_file(source) as reader:
            for at in range(self.first, self.first + self.count):
                yield pa.Table.from_batches([reader.get_batch(at)])


class _RunFile:
    """A file that takes one run after another."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)
        self._count = 0

    def write(self, blocks: Iterable[pa.Table], key_range: Range) -> Run:
        first, rows = self._count, 0
        for block in blocks:
            for batch in block.to_batches():
                self._writer.write_batch(batch)
                self._count += 1
                rows += batch.num_rows
        return Run(self._path, first, self._count - first, rows, key_range)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()
        self._sink.close()


@dataclass(slots=True)
class RunSink:
    """Spills flushed buckets as sorted runs; gone with ``close``."""

    key: Sequence[str]
    ordering: str | None
    limits: MemoryLimits
    directory: str | None = None
    """Where to make the temporary directory; None: where the system keeps temporary files."""
    rule: DuplicateRule = DuplicateRule.REPLACE
    """What becomes of a key that comes in twice."""
    runs: dict[Group, list[Run]] = field(default_factory=dict)
    _place: tempfile.TemporaryDirectory[str] | None = None
    _files: int = 0

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        """Write the runs of these buckets into one file.

        Raises:
            StorageError: the local disk is full or not there.
        """
        try:
            self._write(orders)
        except OSError as error:
            message = f"cannot spill rows to a local directory: {error}"
            hint = "free space there, or set TMPDIR to a larger disk"
            raise StorageError(message, hint=hint, path=str(self._place)) from error

    def _write(self, orders: Sequence[FlushBatch]) -> None:
        schema = orders[0].batches[0].schema
        merge = Merge(self.key, self.ordering, self.rule)
        with _RunFile(self._new_path(), schema) as file:
            for order in orders:
                keys_within = key_range(order.batches, self.key[0])
                blocks = merged_order(order, merge, self.limits, self.limits.block)
                self.runs.setdefault(order.group, []).append(file.write(blocks, keys_within))
                order.done()
        for order in orders:
            if len(self.runs[order.group]) > FAN_IN:
                self._fold(order.group, schema)

    def _fold(self, group: Group, schema: pa.Schema) -> None:
        """Merge the runs of a bucket into one, so that never too many are open at once."""
        runs = self.runs[group]
        sources = [Source(SortedBatch(rows) for rows in run.blocks()) for run in runs]
        merge = Merge(self.key, self.ordering, self.rule)
        blocks = (
            block
            for each in merge.rounds(sources, self.limits.round)
            for block in kept_rows(each, self.limits.block)
        )
        with _RunFile(self._new_path(), schema) as file:
            self.runs[group] = [file.write(blocks, hull([run.range for run in runs]))]

    def _new_path(self) -> Path:
        if self._place is None:
            self._place = tempfile.TemporaryDirectory(prefix="plait-", dir=self.directory)
        self._files += 1
        return Path(self._place.name) / f"{self._files:06d}.arrow"

    def close(self) -> None:
        """Remove the directory."""
        self.runs.clear()
        if self._place is not None:
            self._place.cleanup()
            self._place = None


@dataclass(slots=True)
class Incoming:
    """Gives the rows of a bucket as sorted sources, as often as they are asked for."""

    sink: RunSink
    kept: dict[Group, FlushBatch] = field(default_factory=dict)

    def settle(self, buffer: Buffer) -> None:
        """Keep what is left in the buffer: it is sorted and can be merged where it is."""
        self.kept = {order.group: order for order in buffer.rest()}

    def groups(self) -> list[Group]:
        """Return the buckets that rows came for, in the order of their first flush."""
        return list(dict.fromkeys([*self.sink.runs, *self.kept]))

    def sources(self, group: Group) -> list[Source]:
        """Return the rows of a bucket, oldest first; none if nothing came for it."""
        runs = self.sink.runs.get(group, ())
        sources = [Source(SortedBatch(rows) for rows in run.blocks()) for run in runs]
        order = self.kept.get(group)
        return sources if order is None else sources + pieces(order)

    def range(self, group: Group) -> Range:
        """Return the range of the first key column of what came for a bucket."""
        column = self.sink.key[0]
        ranges = [run.range for run in self.sink.runs.get(group, ())]
        order = self.kept.get(group)
        if order is not None:
            ranges.append(key_range(order.batches, column))
        return hull(ranges)

    def close(self) -> None:
        """Drop everything."""
        for order in self.kept.values():
            order.done()
        self.kept.clear()
        self.sink.close()


OPEN_MAX = 4
"""Files that an append keeps open, to go on with them at the next flush."""


@dataclass(frozen=True, slots=True)
class Log:
    """A file of one flush."""

    record: pa.Table
    """One row of ADDED."""
    range: Range


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
            keys_within = key_range(order.batches, spec.key[0])
            blocks = merged_order(order, merge, limits, limits.slice)
            record = self.output.write(bucket, kind, blocks, order=KEY_ORDER)
            if record is not None:
                logs.append(Log(record, keys_within))
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
            writer = self.output.open(bucket, BASE, table, order=NO_ORDER)
        # Last in the order of use.
        self._open[bucket] = writer
        writer.write(batch)
        if writer.written_bytes >= self.target_bytes:
            self._close(bucket)

    def _close(self, bucket: BucketId) -> None:
        writer = self._open.pop(bucket)
        self.records.setdefault(bucket, []).append(writer.close())
