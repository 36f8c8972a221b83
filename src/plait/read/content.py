"""Rows without a key, told apart by what they hold: 128 bits of hash each, over all columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from plait.files.hash import key_hashes
from plait.files.keys import Indices

Prints = npt.NDArray[np.uint64]
"""Two columns, a row for each row."""
NO_PRINTS: Final[Prints] = np.zeros((0, 2), dtype=np.uint64)
_FLAGS_A_WORD = 63
_T = pa.types


def fingerprints(rows: pa.RecordBatch) -> Prints:
    """Return 128 bits for each row, which tell it from rows with other values.

    Two hashes of all columns, of which one begins with a constant, so that what makes one of them
    meet does not make the other. Nulls count by where they stand.
    """
    columns = list(_words(rows))
    lead = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    hashes = []
    for every in (columns, [lead, *columns]):
        labels = [str(at) for at in range(len(every))]
        hashes.append(key_hashes(pa.RecordBatch.from_arrays(every, names=labels), labels))
    return np.stack(hashes, axis=1)


def unmatched(before: Prints, after: Prints) -> tuple[Indices, Indices]:
    """Return the places of rows on one side that have no equal on the other.

    Equal rows are matched one to one, whichever; places come in order.
    """
    codes = _codes(np.concatenate([before, after]))
    old, new = codes[: len(before)], codes[len(before) :]
    olds, news = (np.bincount(each, minlength=len(codes)) for each in (old, new))
    return _surplus(old, olds - news), _surplus(new, news - olds)


def _codes(prints: Prints) -> Indices:
    """Return a number for each row, the same for equal rows, below the number of rows."""
    order = np.lexsort((prints[:, 1], prints[:, 0]))
    ordered = prints[order]
    fresh = np.zeros(len(order), dtype=np.int64)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    codes = np.empty_like(fresh)
    codes[order] = np.cumsum(fresh)
    return codes


def _surplus(codes: Indices, more: Indices) -> Indices:
    """Return the places of the last so many of each code."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    ends = np.searchsorted(ordered, ordered, side="right")
    left = ends - np.arange(len(ordered))  # 1 for the last one of a code
    return np.sort(order[left <= more[ordered]])


def _words(rows: pa.RecordBatch) -> Iterator[pa.Array]:
    """Return columns that can be hashed and say the same, and flags of what is null."""
    leaves = [leaf for column in rows.columns for leaf in _leaves(column)]
    for start in range(0, len(leaves), _FLAGS_A_WORD):
        yield _flags(leaves[start : start + _FLAGS_A_WORD], rows.num_rows)
    yield from map(_hashable, leaves)


def _flags(leaves: Sequence[pa.Array], count: int) -> pa.Array:
    word = np.zeros(count, dtype=np.int64)
    for at, leaf in enumerate(leaves):
        if leaf.null_count:
            nulls = leaf.is_null().to_numpy(zero_copy_only=False)
            word |= nulls.astype(np.int64) << np.int64(at)
    return pa.array(word)


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    if not _T.is_struct(column.type):
        yield column
        return
    yield pc.if_else(column.is_null(), pa.scalar(None, pa.bool_()), pa.scalar(value=True))
    for child in column.flatten():
        yield from _leaves(child)


def _hashable(leaf: pa.Array) -> pa.Array:
    if _T.is_floating(leaf.type):
        return leaf.view(pa.int32() if _T.is_float32(leaf.type) else pa.int64())
    if _T.is_nested(leaf.type):  # lists and maps, one by one
        texts = (repr(value).encode() for value in leaf.to_pylist())
        return pa.array([xxhash.xxh3_128_digest(text) for text in texts], pa.binary())
    return leaf
