"""Which record keys decisions wrote, as 64-bit hashes, bucket by bucket; loaded when asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.data_file import LiveFile, live_files, unmasked, with_masks
from plait.files.hash import Hashes, decode_hashes, in_both, key_hashes, load_sidecar, sorted_once
from plait.files.reader import Schemas
from plait.model.bucket import BucketId, partition_parse, partition_text
from plait.model.changes import KEYS_FILES, KEYS_INLINE, KEYS_NONE, KEYS_SIDECAR, Changes
from plait.model.plan import TableSpec
from plait.model.schema import Schema
from plait.read.condition import Condition
from plait.read.slices import SliceReader
from plait.storage.port import Store

_NO_KEYS: Hashes = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class KeyOverlap:
    """Which keys of ours others wrote in a bucket."""

    known: bool
    """Whether both sides list their keys; if not, they may share any."""
    hashes: Hashes
    only_looked_up: bool = False
    """Whether we only looked these keys up."""
    in_other_partition: bool = False
    """Whether they wrote these keys in a partition other than ours."""
    matches_predicate: bool = False
    """Whether they wrote rows for which our predicate holds."""

    @property
    def disjoint(self) -> bool:
        """Whether they certainly share none."""
        return self.known and not len(self.hashes)


UNKNOWN = KeyOverlap(known=False, hashes=_NO_KEYS)
"""The overlap of two commits whose keys are not both known."""
DISJOINT = KeyOverlap(known=True, hashes=_NO_KEYS)
"""The two sides share no key."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Which keys are compared in a table whose keys are unique across partitions."""

    removals_count: bool = False
    """Whether keys that they removed count too; if they do not list them, any key may."""
    ours_must_list: bool = False
    """Whether our files do not show every key that came in: a later operation removed some."""
    theirs_must_list: bool = False
    """Whether the same is true of their files."""


@dataclass(slots=True)
class Keys:
    """The keys of write sets of one table."""

    store: Store
    spec: TableSpec
    schemas: Mapping[int, Schema]
    _loaded: dict[tuple[int, BucketId, bool], Hashes | None] = field(default_factory=dict)
    _arrived_keys: dict[tuple[int, BucketId], Hashes] = field(default_factory=dict)
    _alive: list[Changes] = field(default_factory=list)
    """Keeps alive the objects whose ``id`` is a key of the cache."""

    def overlap(self, ours: Changes, theirs: Changes, bucket: BucketId) -> KeyOverlap:
        """Compare the keys that we wrote or looked up in a bucket with those that others wrote.

        Raises:
            CorruptMetadataError: a file that says it is gone or damaged.
            StorageError: the store failed.
        """
        written = _overlap_of(self.of(ours, bucket), others := self.of(theirs, bucket))
        if not written.disjoint:
            return written
        return replace(
            _overlap_of(self.of(ours, bucket, lookups=True), others), only_looked_up=True
        )

    def overlap_elsewhere(
        self, ours: Changes, theirs: Changes, bucket: BucketId, asked: Arrivals
    ) -> KeyOverlap:
        """Compare keys that we wrote under a bucket's number, in any partition, with theirs in it.

        Raises:
            CorruptMetadataError, StorageError: as ``overlap``.
        """
        others = self.keys_arrived(
            theirs, bucket, must_list=asked.removals_count or asked.theirs_must_list
        )
        parts = [_NO_KEYS]
        for each in _numbered(ours, bucket[1]) if others is None or len(others) else ():
            mine = self.keys_arrived(ours, each, must_list=asked.ours_must_list)
            if mine is None:
                return replace(UNKNOWN, in_other_partition=True)
            parts.append(mine)
        if others is None:
            return replace(UNKNOWN, in_other_partition=True)
        shared = in_both(sorted_once(np.concatenate(parts)), others)
        return KeyOverlap(known=True, hashes=shared, in_other_partition=True)

    def keys_arrived(self, changes: Changes, bucket: BucketId, *, must_list: bool) -> Hashes | None:
        """Load the keys that a bucket may have rows of since some changes, and no others.

        Where changes do not say which keys they touched, those of the files that they added, or
        None (any key) if they ``must_list`` them.
        """
        known = self.of(changes, bucket)
        if known is not None or must_list:
            return known
        place = id(changes), bucket
        if place not in self._arrived_keys:
            added = _of_bucket(changes.added, bucket)
            self._arrived_keys[place] = sorted_once(self._of_files(added, changes.masked))
        return self._arrived_keys[place]

    def keys_added(
        self, theirs: Changes, bucket: BucketId, where: Condition | None
    ) -> Hashes | None:
        """Return the keys of rows that they wrote in a bucket, and for which a condition holds.

        None: without keys nobody can tell which rows they wrote, and some row is there.

        Raises:
            CorruptMetadataError, StorageError: as ``overlap``.
        """
        added = live_files(
            with_masks(unmasked(_of_bucket(theirs.added, bucket), version=-1), theirs.masked)
        )
        return self._chosen(theirs, bucket, added, where)

    def keys_removed(
        self, theirs: Changes, bucket: BucketId, where: Condition | None, files: pa.Table
    ) -> Hashes | None:
        """Return the keys that they wrote of rows for which a condition held before, in files.

        Args:
            theirs: what they changed.
            bucket: theirs.
            where: the condition; None: it holds for every row.
            files: those that the table had before (LIVE), of any bucket.

        Raises:
            CorruptMetadataError, StorageError: as ``overlap``.
        """
        return self._chosen(theirs, bucket, live_files(_of_bucket(files, bucket)), where)

    def _chosen(
        self, theirs: Changes, bucket: BucketId, files: Iterable[LiveFile], where: Condition | None
    ) -> Hashes | None:
        written = self.of(theirs, bucket) if self.spec.keyed else None
        parts = [_NO_KEYS]
        for file in files:
            for rows in self._reader().rows(file, columns=self.spec.key, where=where):
                if written is None and rows.num_rows:
                    return None
                if written is not None:
                    found = sorted_once(key_hashes(rows, self.spec.key))
                    parts.append(in_both(found, written))
        return sorted_once(np.concatenate(parts))

    def of(self, changes: Changes, bucket: BucketId, *, lookups: bool = False) -> Hashes | None:
        """Load the keys that changes wrote in a bucket, or looked up there.

        Sorted and unique; None: any key.
        """
        place = (id(changes), bucket, lookups)
        if place not in self._loaded:
            self._alive.append(changes)
            rows = _looked_in if lookups else _of_bucket
            table = changes.lookups if lookups else changes.touched
            self._loaded[place] = self._load(changes, bucket, rows(table, bucket))
        return self._loaded[place]

    def rows(
        self, changes: Changes, bucket: BucketId, hashes: Collection[int]
    ) -> list[dict[str, object]]:
        """Find the keys with these hashes in the files that changes added to a bucket."""
        wanted = np.array(sorted(hashes), dtype=np.uint64)
        rows = []
        for batch in self._key_columns(_of_bucket(changes.added, bucket), changes.masked):
            hit = np.isin(key_hashes(batch, self.spec.key), wanted)
            rows += batch.filter(pa.array(hit)).to_pylist()
        return rows

    def _load(self, changes: Changes, bucket: BucketId, named: pa.Table) -> Hashes | None:
        parts: list[Hashes] = []
        for row in named.to_pylist():
            kind = row["keys"]
            if kind == KEYS_INLINE:
                parts.append(decode_hashes(row["key_inline"]))
            elif kind == KEYS_SIDECAR:
                sidecar = load_sidecar(self.store, row["key_path"], count=row["key_count"])
                parts.append(sidecar)
            elif kind == KEYS_FILES:
                parts.append(self._of_files(_of_bucket(changes.added, bucket), changes.masked))
            elif kind != KEYS_NONE:
                return None
        return sorted_once(np.concatenate(parts)) if parts else _NO_KEYS

    def _of_files(self, added: pa.Table, masked: pa.Table) -> Hashes:
        """Return the keys of the rows that the commit shows: those that lost are masked."""
        parts = [key_hashes(batch, self.spec.key) for batch in self._key_columns(added, masked)]
        return np.concatenate([_NO_KEYS, *parts])

    def _key_columns(self, added: pa.Table, masked: pa.Table) -> Iterator[pa.RecordBatch]:
        reader = self._reader()
        for file in live_files(with_masks(unmasked(added, version=-1), masked)):
            yield from reader.rows(file, columns=self.spec.key)

    def _reader(self) -> SliceReader:
        schemas = Schemas(self.spec.schema, {**self.schemas, self.spec.schema.id: self.spec.schema})
        return SliceReader(self.store, schemas)


def _overlap_of(ours: Hashes | None, theirs: Hashes | None) -> KeyOverlap:
    if ours is None or theirs is None:
        return UNKNOWN
    return KeyOverlap(known=True, hashes=in_both(ours, theirs))


def _looked_in(lookups: pa.Table, bucket: BucketId) -> pa.Table:
    place = pc.equal(lookups["partition"], partition_text(bucket[0]))
    here = pc.fill_null(place, True)  # noqa: FBT003 - arrow's fill value: in every partition
    return lookups.filter(pc.and_(here, pc.equal(lookups["bucket"], bucket[1])))


def _numbered(changes: Changes, number: int) -> set[BucketId]:
    rows = changes.touched.filter(pc.equal(changes.touched["bucket"], number))
    return {(partition_parse(text), number) for text in rows["partition"].to_pylist()}


def _of_bucket(table: pa.Table, bucket: BucketId) -> pa.Table:
    here = pc.and_(
        pc.equal(table["partition"], partition_text(bucket[0])),
        pc.equal(table["bucket"], bucket[1]),
    )
    return table.filter(here)
