"""What one writer leaves on storage: its files, and what they did to each bucket.

The work is kept bucket by bucket, so that single buckets can be done again.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.ingest import Group
from plait.arrow.memory import MemoryLimits
from plait.errors import InvariantError
from plait.files.data_file import KEYS, MASK, LiveFile, Place, data_path
from plait.files.footer import leaf_types
from plait.files.hash import (
    INLINE_KEYS_MAX,
    Hashes,
    encode_hashes,
    key_hashes,
    sorted_once,
    write_sidecar,
)
from plait.files.roaring import Positions
from plait.files.writer import GROUP_ROWS, ORDERED_GROUP_ROWS, DataFileWriter
from plait.model.bucket import UNKEYED, BucketId, Partition, partition_text
from plait.model.changes import (
    ADDED,
    KEYS_ALL,
    KEYS_INLINE,
    KEYS_SIDECAR,
    LOOKUPS,
    MASKED,
    PATHS,
    TOUCHED,
    Changes,
    WriteStats,
    no_rows,
)
from plait.model.order import KEY_ORDER
from plait.model.plan import TableSpec
from plait.model.request import WritePlan
from plait.storage.port import Store

_SAMPLE_ROWS_MIN: Final = 1024
_SAMPLE_ROWS: Final = 8192
_SAMPLE_SHARE: Final = 3
"""One row in so many is looked at: in a small file a dictionary matters less than the look."""
_DISTINCT_MAX: Final = 0.5
_KEYS_MIN: Final = 1 << 16
_BUFFER_A_HASH: Final = 16 * 8
"""Bytes of the buffer for each hash of 8 bytes: hashes take a sixteenth of it."""
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
        for path in leaf_types(field)
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
    spill: str | None = None
    """Where to make temporary directories; None: where the system keeps temporary files."""
    written: set[str] = field(default_factory=set)
    """Every file opened so far, whether or not it is of use in the end."""
    named: bool = False
    """Whether a file was ever named: from then on one may be on the store."""
    spec: TableSpec = field(init=False)
    """The plan's spec: each bucket asks for it."""
    _announced: set[Partition] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        """Take the spec out of the plan."""
        self.spec = self.plan.spec

    @property
    def keys_max(self) -> int:
        """How many keys of a bucket are held at most; with more it counts as touched whole."""
        return max(_KEYS_MIN, self.limits.buffer // _BUFFER_A_HASH)

    @property
    def names_keys(self) -> bool:
        """Whether the decision must name every key: it is one part of a transaction.

        A later part may take its files away, and the keys that they tell with them.
        """
        return self.plan.step > 0

    def records_keys(self, count: int) -> bool:
        """Tell whether so many keys of a bucket stand in the decision, though files tell them too.

        Those who look keys up in the table's index then need not read the files.
        """
        if self.names_keys:
            return count <= self.keys_max
        return self.plan.indexed and count <= INLINE_KEYS_MAX

    def announce(self, partitions: Iterable[Partition]) -> None:
        """Make sure that recovery knows of these partitions before a file appears in them.

        Raises:
            RolledBackError: our instant was ended, so that all further work is for nothing.
        """
        fresh = list(itertools.filterfalse(self._announced.__contains__, dict.fromkeys(partitions)))
        self.announce_new(fresh)
        self._announced.update(fresh)

    def check_alive(self) -> None:
        """Raise RolledBackError if our instant was ended; for any thread."""
        self.announce_new(())

    def open(self, bucket: BucketId, kind: str, first: pa.Table, *, order: int) -> DataFileWriter:
        """Open a data file.

        The first rows decide how many make a row group, and which columns get a dictionary.
        """
        written = first.num_columns > len(self.spec.schema.names)
        place = Place(self.name(bucket, kind), *bucket, kind, with_row_version=written)
        width = max(1, first.nbytes // max(1, first.num_rows))
        most = ORDERED_GROUP_ROWS if order > KEY_ORDER and self.spec.keyed else GROUP_ROWS
        rows = min(most, max(1, self.limits.group // width))
        return DataFileWriter(
            self.store,
            place,
            self.spec,
            order=order,
            group_rows=rows,
            dictionary=repeating_columns(first),
        )

    def write(
        self, bucket: BucketId, kind: str, blocks: Iterable[pa.Table], *, order: int
    ) -> pa.Table | None:
        """Write a data file and return its record (ADDED, one row); None if there are no rows."""
        rest = filter(len, blocks)
        first = next(rest, None)
        if first is None:
            return None
        with self.open(bucket, kind, first, order=order) as writer:
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


def bucket_id(group: Group) -> BucketId:
    """Return the group as the bucket that it is; its partition must be known."""
    partition, number = group
    if partition is None:
        raise InvariantError(f"cannot write rows of bucket {number} without a partition")
    return partition, number


@dataclass(slots=True)
class Staged:
    """The work on one bucket."""

    added: list[pa.Table] = field(default_factory=list)
    """One row of ADDED each."""
    removed: list[LiveFile] = field(default_factory=list)
    hidden: dict[str, Positions] = field(default_factory=dict)
    """By path: every row to be masked from now on. Empty once the masks are written."""
    masked: list[pa.Table] = field(default_factory=list)
    """One row of MASKED each."""
    touched: pa.Table | None = None
    """One row of TOUCHED; None where the bucket stays as it is."""
    lookups: pa.Table | None = None
    """One row of LOOKUPS, where the plan claims keys that changed nothing."""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    """Keys that came in and changed nothing."""

    @property
    def empty(self) -> bool:
        """Whether the bucket stays as it is."""
        return not (self.added or self.removed or self.hidden or self.masked)

    @property
    def counted(self) -> bool:
        """Whether a row was inserted, updated or deleted."""
        return bool(self.inserted or self.updated or self.deleted)


_ADDED, _MASKED = operator.attrgetter("added"), operator.attrgetter("masked")


def changes_of(works: Collection[Staged], written: Iterable[str]) -> Changes:
    """Put the work on all buckets together; files that none of it names are garbage."""
    added = _concat(itertools.chain.from_iterable(map(_ADDED, works)), ADDED)
    masked = _concat(itertools.chain.from_iterable(map(_MASKED, works)), MASKED)
    touched = _concat([w.touched for w in works if w.touched is not None], TOUCHED)
    lookups = _concat([w.lookups for w in works if w.lookups is not None], LOOKUPS)
    removed = [file.path for work in works for file in work.removed]
    used = {
        *added["path"].to_pylist(),
        *masked["dv_path"].to_pylist(),
        *touched["key_path"].to_pylist(),
        *lookups["key_path"].to_pylist(),
    }
    garbage = sorted(set(written) - used)
    return Changes(
        added=added,
        masked=masked,
        touched=touched,
        lookups=lookups,
        removed=pa.table({"path": removed}, schema=PATHS),
        garbage=pa.table({"path": garbage}, schema=PATHS),
    )


def stats_of(works: Collection[Staged], changes: Changes, base: WriteStats) -> WriteStats:
    """Count what was done; ``base`` has the counts that do not hang on buckets."""
    inserted = updated = deleted = unchanged = 0
    for work in works:
        inserted += work.inserted
        updated += work.updated
        deleted += work.deleted
        unchanged += work.unchanged
    return base + WriteStats(
        rows_inserted=inserted,
        rows_updated=updated,
        rows_deleted=deleted,
        keys_unchanged=unchanged,
        files_added=changes.added.num_rows,
        files_removed=changes.removed.num_rows,
        bytes_written=sum(changes.added["bytes"].to_pylist()),
    )


def _concat(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([no_rows(schema), *tables]).combine_chunks()


def touched_row(bucket: BucketId, keys: str, count: int, **place: object) -> pa.Table:
    """Return one row of TOUCHED."""
    row = {
        "partition": partition_text(bucket[0]),
        "bucket": bucket[1],
        "keys": keys,
        "key_count": count,
        **place,
    }
    return pa.Table.from_pylist([row], schema=TOUCHED)


@dataclass(slots=True)
class KeyDigest:
    """Collects the hashes of keys of one bucket.

    There is a limit: with more keys than fit into a small share of the buffer the bucket counts
    as touched whole, which may cost others a needless retry and nothing else.
    """

    output: Output
    _parts: list[Hashes] = field(default_factory=list)
    _count: int = 0
    _whole: bool = False

    def add(self, rows: pa.Table) -> None:
        """Take the keys of rows."""
        if not self._whole and rows.num_rows:
            self.add_hashes(key_hashes(rows, self.output.spec.key))

    def add_hashes(self, hashes: Hashes) -> None:
        """Take hashes of keys."""
        if self.takes(len(hashes)):
            self._count += len(hashes)
            self._parts.append(hashes)

    def takes(self, count: int) -> bool:
        """Tell whether so many more keys fit; if not, the bucket counts as touched whole."""
        if self._count + count > self.output.keys_max:
            self.give_up()
        return not self._whole

    def give_up(self) -> None:
        """Count the bucket as touched whole."""
        self._whole = True
        self._parts.clear()

    def merge(self, other: KeyDigest) -> None:
        """Take what another one collected."""
        if other._whole:
            self.give_up()
        for part in other._parts:
            self.add_hashes(part)

    @property
    def empty(self) -> bool:
        """Whether no key came."""
        return not (self._whole or self._parts)

    def row(self, bucket: BucketId) -> pa.Table:
        """Return the row of TOUCHED; many keys go into a file."""
        if self._whole or not self._parts:
            return touched_row(bucket, KEYS_ALL, 0)
        hashes = sorted_once(np.concatenate(self._parts))
        if len(hashes) <= INLINE_KEYS_MAX:
            body = encode_hashes(hashes)
            return touched_row(bucket, KEYS_INLINE, len(hashes), key_inline=body)
        path = self.output.keys_name(bucket)
        count = write_sidecar(self.output.store, path, hashes)
        return touched_row(bucket, KEYS_SIDECAR, count, key_path=path)


@dataclass(slots=True)
class Lookups:
    """Counts the keys of a bucket that came in and changed nothing; collects them if they count.

    A key without a row is read as well: whoever writes it later would have changed what we did.
    """

    output: Output
    digest: KeyDigest
    count: int = 0

    @classmethod
    def of(cls, output: Output) -> Self:
        """Begin for one bucket."""
        return cls(output, KeyDigest(output))

    def add(self, rows: pa.Table) -> None:
        """Take the keys of rows, each key once."""
        self.count += rows.num_rows
        if self.output.plan.claims:
            self.digest.add(rows)

    def into(self, staged: Staged, bucket: BucketId) -> Staged:
        """Note in a bucket's work what was found there."""
        staged.unchanged = self.count
        if self.count and self.output.plan.claims:
            staged.lookups = self.digest.row(bucket).cast(LOOKUPS)
        return staged

    def anywhere(self, number: int) -> Staged:
        """Return the claim on keys that were looked for in every partition, under one number.

        A file of many keys lies in the place of unpartitioned files.
        """
        staged = self.into(Staged(), ((), number))
        if staged.lookups is not None:
            nowhere = pa.nulls(1, pa.string())
            staged.lookups = staged.lookups.set_column(0, LOOKUPS.field("partition"), nowhere)
        return staged
