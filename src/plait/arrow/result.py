"""What a writer has staged, bucket by bucket, so that single buckets can be done again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa

from plait.arrow.merge import Positions
from plait.arrow.output import Output
from plait.files.hash import Hashes, key_hashes, sorted_once
from plait.files.live import LiveFile
from plait.files.sidecar import INLINE_KEYS_MAX, encode_hashes, write_sidecar
from plait.model.bucket import BucketId, partition_text
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
)


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


def changes_of(works: Collection[Staged], written: Iterable[str]) -> Changes:
    """Put the work on all buckets together; files that none of it names are garbage."""
    added = _concat([table for work in works for table in work.added], ADDED)
    masked = _concat([table for work in works for table in work.masked], MASKED)
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
    return base + WriteStats(
        rows_inserted=sum(work.inserted for work in works),
        rows_updated=sum(work.updated for work in works),
        rows_deleted=sum(work.deleted for work in works),
        keys_unchanged=sum(work.unchanged for work in works),
        files_added=changes.added.num_rows,
        files_removed=changes.removed.num_rows,
        bytes_written=sum(changes.added["bytes"].to_pylist()),
    )


def _concat(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()


_COUNT_MIN = 1 << 16
_HASH_BYTES = 8


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

    key: Sequence[str]
    limit_bytes: int
    _parts: list[Hashes] = field(default_factory=list)
    _count: int = 0
    _whole: bool = False

    def add(self, rows: pa.Table) -> None:
        """Take the keys of rows."""
        if self._whole or not rows.num_rows:
            return
        self._count += rows.num_rows
        if self._count > max(_COUNT_MIN, self.limit_bytes // _HASH_BYTES):
            self._whole = True
            self._parts.clear()
        else:
            self._parts.append(key_hashes(rows, self.key))

    def row(self, bucket: BucketId, output: Output) -> pa.Table:
        """Return the row of TOUCHED; many keys go into a file."""
        if self._whole or not self._parts:
            return touched_row(bucket, KEYS_ALL, 0)
        hashes = sorted_once(np.concatenate(self._parts))
        if len(hashes) <= INLINE_KEYS_MAX:
            body = encode_hashes(hashes)
            return touched_row(bucket, KEYS_INLINE, len(hashes), key_inline=body)
        path = output.keys_name(bucket)
        count = write_sidecar(output.store, path, hashes)
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
        return cls(output, KeyDigest(output.spec.key, output.limits.buffer // 16))

    def add(self, rows: pa.Table) -> None:
        """Take the keys of rows, each key once."""
        self.count += rows.num_rows
        if self.output.plan.claims:
            self.digest.add(rows)

    def into(self, staged: Staged, bucket: BucketId) -> Staged:
        """Note in a bucket's work what was found there."""
        staged.unchanged = self.count
        if self.count and self.output.plan.claims:
            staged.lookups = self.digest.row(bucket, self.output).cast(LOOKUPS)
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
