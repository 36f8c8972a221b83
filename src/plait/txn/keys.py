"""Which record keys decisions wrote, as 64-bit hashes, bucket by bucket; loaded when asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.hash import Hashes, key_hashes
from plait.files.live import live_files, unmasked
from plait.files.opened import OpenFile, Schemas
from plait.files.sidecar import decode_hashes, load_sidecar
from plait.model.bucket import BucketId, partition_text
from plait.model.changes import KEYS_FILES, KEYS_INLINE, KEYS_NONE, KEYS_SIDECAR, Changes
from plait.model.plan import TableSpec
from plait.model.schema import Schema
from plait.storage.port import Store

_NOBODY: Hashes = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Met:
    """Which keys two write sets share in a bucket."""

    known: bool
    """Whether both say which keys they wrote; if not, they may share any."""
    hashes: Hashes

    @property
    def apart(self) -> bool:
        """Whether they certainly share none."""
        return self.known and not len(self.hashes)


UNKNOWN = Met(known=False, hashes=_NOBODY)
"""Nobody can tell."""


@dataclass(slots=True)
class Keys:
    """The keys of write sets of one table."""

    store: Store
    spec: TableSpec
    schemas: Mapping[int, Schema]
    _loaded: dict[tuple[int, BucketId], Hashes | None] = field(default_factory=dict)
    _alive: list[Changes] = field(default_factory=list)
    """What the cache knows by ``id``."""

    def met(self, ours: Changes, theirs: Changes, bucket: BucketId) -> Met:
        """Compare what two write sets say of a bucket.

        Raises:
            CorruptMetadataError: a file that says it is gone or damaged.
            StorageError: the store failed.
        """
        one, other = self.of(ours, bucket), self.of(theirs, bucket)
        if one is None or other is None:
            return UNKNOWN
        return Met(known=True, hashes=np.intersect1d(one, other, assume_unique=True))

    def of(self, changes: Changes, bucket: BucketId) -> Hashes | None:
        """Load the keys that changes wrote in a bucket: sorted, unique; None: any key."""
        place = (id(changes), bucket)
        if place not in self._loaded:
            self._alive.append(changes)
            self._loaded[place] = self._load(changes, bucket)
        return self._loaded[place]

    def rows(
        self, changes: Changes, bucket: BucketId, hashes: Collection[int]
    ) -> list[dict[str, object]]:
        """Find the keys with these hashes in the files that changes added to a bucket."""
        wanted = np.array(sorted(hashes), dtype=np.uint64)
        found = []
        for batch in self._key_columns(_of_bucket(changes.added, bucket)):
            hit = np.isin(key_hashes(batch, self.spec.key), wanted)
            found += batch.filter(pa.array(hit)).to_pylist()
        return found

    def _load(self, changes: Changes, bucket: BucketId) -> Hashes | None:
        rows = _of_bucket(changes.touched, bucket).to_pylist()
        parts: list[Hashes] = []
        for row in rows:
            kind = row["keys"]
            if kind == KEYS_INLINE:
                parts.append(decode_hashes(row["key_inline"]))
            elif kind == KEYS_SIDECAR:
                found = load_sidecar(self.store, row["key_path"], count=row["key_count"])
                parts.append(found)
            elif kind == KEYS_FILES:
                parts.append(self._of_files(_of_bucket(changes.added, bucket)))
            elif kind != KEYS_NONE:
                return None
        return np.unique(np.concatenate(parts)) if parts else _NOBODY

    def _of_files(self, added: pa.Table) -> Hashes:
        parts = [key_hashes(batch, self.spec.key) for batch in self._key_columns(added)]
        return np.concatenate([_NOBODY, *parts])

    def _key_columns(self, added: pa.Table) -> Iterator[pa.RecordBatch]:
        schemas = Schemas(self.spec.schema, {**self.schemas, self.spec.schema.id: self.spec.schema})
        for file in live_files(unmasked(added, version=-1)):
            with OpenFile(self.store, file, schemas) as opened:
                for group in range(opened.group_count):
                    yield from opened.batches(group, self.spec.key)


def _of_bucket(table: pa.Table, bucket: BucketId) -> pa.Table:
    here = pc.and_(
        pc.equal(table["partition"], partition_text(bucket[0])),
        pc.equal(table["bucket"], bucket[1]),
    )
    return table.filter(here)
