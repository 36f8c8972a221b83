"""Which keys of a bucket a writer touched, as conflicts are decided by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from plait.files.hash import Hashes, key_hashes
from plait.files.sidecar import INLINE_KEYS_MAX, encode_hashes, write_sidecar
from plait.model.bucket import BucketId, partition_text
from plait.model.changes import KEYS_ALL, KEYS_INLINE, KEYS_SIDECAR, TOUCHED
from plait.write.output import Output

_COUNT_MIN = 1 << 16
_HASH_BYTES = 8


def touched_row(bucket: BucketId, keys: str, count: int, **place: object) -> pa.Table:
    """Give one row of TOUCHED."""
    row = {
        "partition": partition_text(bucket[0]),
        "bucket": bucket[1],
        "keys": keys,
        "key_count": count,
        **place,
    }
    return pa.Table.from_pylist([row], schema=TOUCHED)


@dataclass(slots=True)
class Digest:
    """Collects the hashes of the keys that came in for one bucket.

    There is a limit: with more keys than fit into a small share of the buffer the bucket counts
    as touched whole, which may cost others a needless retry and nothing else.
    """

    key: Sequence[str]
    limit_bytes: int
    _parts: list[Hashes] = field(default_factory=list)
    _count: int = 0
    _whole: bool = False

    def add(self, rows: pa.Table) -> None:
        """Take the keys of rows that came in."""
        if self._whole or not rows.num_rows:
            return
        self._count += rows.num_rows
        if self._count > max(_COUNT_MIN, self.limit_bytes // _HASH_BYTES):
            self._whole = True
            self._parts.clear()
        else:
            self._parts.append(key_hashes(rows, self.key))

    def row(self, bucket: BucketId, output: Output) -> pa.Table:
        """Give the row of TOUCHED; many keys go into a file."""
        if self._whole or not self._parts:
            return touched_row(bucket, KEYS_ALL, 0)
        hashes = np.unique(np.concatenate(self._parts))
        if len(hashes) <= INLINE_KEYS_MAX:
            body = encode_hashes(hashes)
            return touched_row(bucket, KEYS_INLINE, len(hashes), key_inline=body)
        path = output.keys_name(bucket)
        count = write_sidecar(output.store, path, hashes)
        return touched_row(bucket, KEYS_SIDECAR, count, key_path=path)
