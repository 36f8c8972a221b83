"""Divide rows by partition and bucket, and sort each part: no Python object a row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.files.hash import bucket_of, key_hashes
from plait.model.bucket import UNKEYED, Partition
from plait.model.plan import TableSpec
from plait.model.value import texts_of
from plait.write import keys
from plait.write.blocks import taken

Group: TypeAlias = tuple[Partition | None, int]
"""A partition and a bucket; None where rows only name a key, which any partition may hold."""

Codes: TypeAlias = npt.NDArray[np.int64]

_NARROW = 1 << 16


@dataclass(slots=True)
class Chunk:
    """Rows in the order of their groups, the largest first, and which stretch is whose.

    Each stretch is sorted by record key; rows with one key, or without one, stay in the order in
    which they came.
    """

    rows: pa.RecordBatch
    spans: dict[Group, tuple[int, int]]


def split(batch: pa.RecordBatch, spec: TableSpec) -> Chunk:
    """Order rows by group, and by key within a group."""
    partitions, codes = _partition_codes(batch, spec)
    if spec.keyed:
        count = spec.buckets.count
        buckets = bucket_of(key_hashes(batch, spec.key), count).astype(np.int64)
        codes = buckets if codes is None else codes * count + buckets
    elif codes is None:
        return Chunk(batch, {(partitions[0], UNKEYED): (0, batch.num_rows)})
    present, codes = _dense(codes)
    present, codes, counts = _largest_first(present, codes)
    groups = [_group(number, partitions, spec) for number in present]
    order = keys.sort_order(keys.encode(batch, spec.key)) if spec.keyed else None
    if len(groups) > 1:
        by_group = np.argsort(codes if order is None else codes[order], kind="stable")
        order = by_group if order is None else order[by_group]
    if order is not None:
        batch = taken(batch, order)
    edges = np.concatenate([[0], np.cumsum(counts)])
    spans = dict(zip(groups, itertools.pairwise(edges.tolist()), strict=True))
    return Chunk(batch, spans)


def _partition_codes(
    batch: pa.RecordBatch, spec: TableSpec
) -> tuple[list[Partition | None], Codes | None]:
    """Number the partitions of a batch and give each row its number; None if there is one."""
    if not spec.partition_by:
        return [()], None
    if not set(spec.partition_by) <= set(batch.schema.names):
        return [None], None
    texts: list[list[str | None]] = []
    codes: Codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in spec.partition_by:
        coded = batch.column(name).dictionary_encode(null_encoding="encode")
        texts.append(texts_of(coded.dictionary))
        codes = codes * max(1, len(coded.dictionary)) + coded.indices.to_numpy()
    present, codes = _dense(codes)
    partitions: list[Partition | None] = []
    for number in present:
        values: list[str | None] = []
        rest = number
        for column in reversed(texts):
            rest, at = divmod(rest, max(1, len(column)))
            values.append(column[at])
        partitions.append(tuple(reversed(values)))
    return partitions, codes if len(partitions) > 1 else None


def _dense(codes: Codes) -> tuple[list[int], npt.NDArray[np.integer]]:
    """Give the numbers that occur, and for each row which of them it has."""
    top = int(codes.max(initial=0)) + 1
    if top > max(_NARROW, 4 * len(codes)):
        found, inverse = np.unique(codes, return_inverse=True)
        return found.tolist(), inverse.reshape(-1)
    found = np.flatnonzero(np.bincount(codes, minlength=top))
    lookup = np.zeros(top, dtype=np.uint16 if len(found) <= _NARROW else np.int64)
    lookup[found] = np.arange(len(found))
    return found.tolist(), lookup[codes]


def _largest_first(
    present: list[int], codes: npt.NDArray[np.integer]
) -> tuple[list[int], npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    """Number groups by their size, so that the small ones are neighbours."""
    counts = np.bincount(codes, minlength=len(present))
    by_size = np.argsort(-counts, kind="stable")
    rank = np.empty(len(present), dtype=codes.dtype)
    rank[by_size] = np.arange(len(present))
    return [present[at] for at in by_size], rank[codes], counts[by_size]


def _group(number: int, partitions: Sequence[Partition | None], spec: TableSpec) -> Group:
    if not spec.keyed:
        return partitions[number], UNKEYED
    # Without codes of their own all rows are in the only partition.
    at, bucket = divmod(number, spec.buckets.count)
    return partitions[at], bucket
