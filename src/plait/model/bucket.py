"""How a table is divided: partitions by value, buckets by hash of the record key."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias

import xxhash

BUCKETS_MAX = 100_000
"""Buckets of a partition: a client has numbers in memory for each."""
UNKEYED = -1
"""The bucket number of files in a table without a record key."""

Partition: TypeAlias = tuple[str | None, ...]
"""Canonical text of each partition value, in the order of the partition columns; () if none."""

BucketId: TypeAlias = tuple[Partition, int]
"""The unit of conflicts: a partition and a bucket number in it."""

_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")
_READABLE_MAX = 40
UNPARTITIONED = "data"


@dataclass(frozen=True, slots=True)
class BucketSpec:
    """Which columns make the record key, and into how many buckets it is hashed.

    ``bucket = pmod(xxhash64(hashed columns, seed 42), count)``, as Spark SQL computes it on the
    types of the table's schema. ``key`` is empty for a table without a record key.
    """

    id: int
    key: tuple[str, ...]
    count: int
    by: tuple[str, ...] = ()
    """Columns of the key that are hashed, in its order; () for the whole key."""

    @property
    def hashed(self) -> tuple[str, ...]:
        """The columns whose hash chooses the bucket."""
        return self.by or self.key

    @property
    def keyed(self) -> bool:
        """Whether the table has a record key."""
        return bool(self.key)


def partition_text(partition: Partition) -> str:
    """Write partition values as JSON, the form that metadata tables hold.

    >>> partition_text(("a/b", None))
    '["a/b",null]'
    """
    return json.dumps(list(partition), separators=(",", ":"), ensure_ascii=False)


_TEXTS = frozenset((str, type(None)))
"""What the values of a partition are, as JSON has them."""


def partition_parse(text: str) -> Partition:
    """Read what ``partition_text`` wrote."""
    try:
        values = json.loads(text)
    except RecursionError:  # nested without end
        values = None
    if not isinstance(values, list) or not _TEXTS.issuperset(map(type, values)):
        raise ValueError(f"not partition values: {text[:80]!r}")
    return tuple(values)


def partition_path(partition: Partition) -> str:
    """Name the directory of a partition: readable, bounded, free of special characters.

    Values live in decisions; nobody reads them from the path. The hash keeps two values apart
    whatever characters they have.

    >>> partition_path(())
    'data'
    >>> partition_path(("JFK",))
    'JFK~2e796d4fdde5c9a7'
    """
    if not partition:
        return UNPARTITIONED
    readable = _UNSAFE.sub("-", "-".join("null" if v is None else v for v in partition))
    readable = readable.lstrip(".-_")[:_READABLE_MAX] or "p"
    return f"{readable}~{xxhash.xxh64_hexdigest(partition_text(partition).encode())}"
