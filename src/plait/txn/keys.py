"""Which record keys decisions wrote, as 64-bit hashes, bucket by bucket; loaded when asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.data_file import live_files, unmasked, with_masks
from plait.files.hash import Hashes, in_both, key_hashes, sorted_once
from plait.files.reader import Schemas
from plait.files.sidecar import decode_hashes, load_sidecar
from plait.model.bucket import BucketId, partition_parse, partition_text
from plait.model.changes import KEYS_FILES, KEYS_INLINE, KEYS_NONE, KEYS_SIDECAR, Changes
from plait.model.plan import TableSpec
from plait.model.schema import Schema
from plait.read.slices import SliceReader
from plait.storage.port import Store

_NOBODY: Hashes = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class KeyOverlap:
    """Which keys of ours others wrote in a bucket."""

    known: bool
    """Whether both say which keys they mean; if not, they may share any."""
    hashes: Hashes
    looked: bool = False
    """Whether we only looked these keys up."""
    elsewhere: bool = False
    """Whether they wrote these keys in another partition than we."""

    @property
    def apart(self) -> bool:
        """Whether they certainly share none."""
        return self.known and not len(self.hashes)


UNKNOWN = KeyOverlap(known=False, hashes=_NOBODY)
"""Nobody can tell."""
APART = KeyOverlap(known=True, hashes=_NOBODY)
"""They share none."""


@dataclass(slots=True)
class Keys:
    """The keys of write sets of one table."""

    store: Store
    spec: TableSpec
    schemas: Mapping[int, Schema]
    _loaded: dict[tuple[int, BucketId, bool], Hashes | None] = field(default_factory=dict)
    _arrived: dict[tuple[int, BucketId], Hashes] = field(default_factory=dict)
    _alive: list[Changes] = field(default_factory=list)
    """What the cache knows by ``id``."""

    def met(self, ours: Changes, theirs: Changes, bucket: BucketId) -> KeyOverlap:
        """Compare the keys that we wrote or looked up in a bucket with those that others wrote.

        Raises:
            CorruptMetadataError: a file that says it is gone or damaged.
            StorageError: the store failed.
        """
        written = _meet(self.of(ours, bucket), others := self.of(theirs, bucket))
        if not written.apart:
            return written
        return replace(_meet(self.of(ours, bucket, lookups=True), others), looked=True)

    def met_elsewhere(
        self, ours: Changes, theirs: Changes, bucket: BucketId, *, gone: bool = False
    ) -> KeyOverlap:
        """Compare keys that we wrote under a bucket's number, in any partition, with theirs in it.

        Args:
            ours: what we changed.
            theirs: what they changed.
            bucket: theirs.
            gone: whether keys that they took away count too; where they do not say which, any may.

        Raises:
            CorruptMetadataError, StorageError: as ``met``.
        """
        others = self.of(theirs, bucket) if gone else self.arrived(theirs, bucket)
        if others is None:
            return replace(UNKNOWN, elsewhere=True)
        parts = [_NOBODY]
        if len(others):
            parts += [self.arrived(ours, each) for each in _numbered(ours, bucket[1])]
        shared = in_both(sorted_once(np.concatenate(parts)), others)
        return KeyOverlap(known=True, hashes=shared, elsewhere=True)

    def arrived(self, changes: Changes, bucket: BucketId) -> Hashes:
        """Load the keys that a bucket may have rows of since some changes, and no others.

        Where changes do not say which keys they touched, those of the files that they added.
        """
        place = id(changes), bucket
        if place not in self._arrived:
            known = self.of(changes, bucket)
            if known is None:
                added = _of_bucket(changes.added, bucket)
                known = sorted_once(self._of_files(added, changes.masked))
            self._arrived[place] = known
        return self._arrived[place]

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
        return sorted_once(np.concatenate(parts)) if parts else _NOBODY

    def _of_files(self, added: pa.Table, masked: pa.Table) -> Hashes:
        """Return the keys of the rows that the commit shows: those that lost are masked."""
        parts = [key_hashes(batch, self.spec.key) for batch in self._key_columns(added, masked)]
        return np.concatenate([_NOBODY, *parts])

    def _key_columns(self, added: pa.Table, masked: pa.Table) -> Iterator[pa.RecordBatch]:
        schemas = Schemas(self.spec.schema, {**self.schemas, self.spec.schema.id: self.spec.schema})
        reader = SliceReader(self.store, schemas)
        for file in live_files(with_masks(unmasked(added, version=-1), masked)):
            yield from reader.rows(file, columns=self.spec.key)


def _meet(ours: Hashes | None, theirs: Hashes | None) -> KeyOverlap:
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
