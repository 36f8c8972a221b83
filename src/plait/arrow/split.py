"""Divide rows by partition and bucket, and sort each part: no Python object a row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.memory import taken
from plait.files import keys
from plait.files.hash import bucket_of, key_hashes
from plait.model.bucket import UNKEYED, Partition
from plait.model.plan import TableSpec
from plait.model.value import texts_of

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

    @property
    def sizes(self) -> dict[Group, int]:
        """The bytes of each group: its share of the rows."""
        size, rows = self.rows.nbytes, max(1, self.rows.num_rows)
        return {group: (stop - start) * size // rows for group, (start, stop) in self.spans.items()}


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
        codes = codes if order is None else codes[order]
        by_group = np.argsort(narrow(codes, len(groups)), kind="stable")
        order = by_group if order is None else order[by_group]
    if order is not None:
        batch = taken(batch, order)
    edges = np.concatenate([[0], np.cumsum(counts)])
    spans = dict(zip(groups, itertools.pairwise(edges.tolist()), strict=True))
    return Chunk(batch, spans)


def _partition_codes(
    batch: pa.RecordBatch, spec: TableSpec
) -> tuple[list[Partition | None], Codes | None]:
    """Return the partitions of a batch and the number of each row's; None if there is one."""
    if not spec.partition_by:
        return [()], None
    if not set(spec.partition_by) <= set(batch.schema.names):
        return [None], None
    partitions: list[Partition] = [()]
    codes: Codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in spec.partition_by:
        coded = batch.column(name).dictionary_encode(null_encoding="encode")
        texts = texts_of(coded.dictionary)
        # Numbers stay below rows times values: those that do not occur are left out each time.
        present, codes = _dense(codes * len(texts) + coded.indices.to_numpy())
        pairs = [divmod(number, len(texts)) for number in present]
        partitions = [(*partitions[before], texts[at]) for before, at in pairs]
    return list(partitions), codes if len(partitions) > 1 else None


def _dense(codes: Codes) -> tuple[list[int], Codes]:
    """Return the numbers that occur, and for each row which of them it has."""
    top = int(codes.max(initial=0)) + 1
    if top > max(_NARROW, 4 * len(codes)):
        found, inverse = np.unique(codes, return_inverse=True)
        return found.tolist(), inverse.reshape(-1)
    present = np.flatnonzero(np.bincount(codes, minlength=top))
    lookup = np.zeros(top, dtype=np.int64)
    lookup[present] = np.arange(len(present))
    return present.tolist(), lookup[codes]


def _largest_first(present: list[int], codes: Codes) -> tuple[list[int], Codes, Codes]:
    """Return groups by size, so that the small ones are neighbours, with new numbers and counts."""
    counts = np.bincount(codes, minlength=len(present))
    by_size = np.argsort(-counts, kind="stable")
    rank = np.empty(len(present), dtype=np.int64)
    rank[by_size] = np.arange(len(present))
    return [present[at] for at in by_size], rank[codes], counts[by_size]


def narrow(codes: Codes, count: int) -> npt.NDArray[np.integer]:
    """Return numbers in the type that sorts fastest: by radix up to 16 bits."""
    return codes.astype(np.uint16) if count <= _NARROW else codes


def _group(number: int, partitions: Sequence[Partition | None], spec: TableSpec) -> Group:
    if not spec.keyed:
        return partitions[number], UNKEYED
    # Without codes of their own all rows are in the only partition.
    at, bucket = divmod(number, spec.buckets.count)
    return partitions[at], bucket
