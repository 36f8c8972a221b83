"""Tell whether rows are the same: value by value, or, where none has a key, by 128 bits of hash."""

from __future__ import annotations

import functools
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.digest import bits, row_hashes
from plait.files.keys import Indices

Flags: TypeAlias = npt.NDArray[np.bool_]
Prints: TypeAlias = npt.NDArray[np.uint64]
"""Two columns, a row for each row."""
NO_PRINTS: Final[Prints] = np.zeros((0, 2), dtype=np.uint64)
_T = pa.types


def fingerprints(rows: pa.RecordBatch) -> Prints:
    """Return 128 bits for each row, which tell it from rows with other values."""
    return np.stack([row_hashes(rows, seed=seed, exact=True) for seed in (0, 1)], axis=1)


def unmatched(before: Prints, after: Prints) -> tuple[Indices, Indices]:
    """Return the places of rows on one side that have no equal on the other.

    Equal rows are matched one to one, whichever; places come in order.
    """
    codes = _codes(np.concatenate([before, after]))
    old, new = codes[: len(before)], codes[len(before) :]
    olds, news = (np.bincount(each, minlength=len(codes)) for each in (old, new))
    return _surplus(old, olds - news), _surplus(new, news - olds)


def among(some: Prints, others: Prints) -> Flags:
    """Tell for each row whether any of the others is its equal."""
    codes = _codes(np.concatenate([some, others]))
    flags: Flags = np.isin(codes[: len(some)], codes[len(some) :])
    return flags


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


def same_rows(one: pa.Table, other: pa.Table) -> Flags:
    """Tell for each place whether two tables of one schema have the same row there."""
    columns = (
        same_values(a.combine_chunks(), b.combine_chunks())
        for a, b in zip(one.columns, other.columns, strict=True)
    )
    return functools.reduce(np.logical_and, columns, np.ones(one.num_rows, dtype=np.bool_))


def same_values(one: pa.Array, other: pa.Array) -> Flags:
    """Tell for each place whether two arrays of one type have the same value there.

    Nulls are the same, and floating point numbers whose bits are: NaN as itself, 0.0 not as -0.0.

    >>> same_values(pa.array([1.5, float("nan"), None]), pa.array([1.5, float("nan"), 0.0]))
    array([ True,  True, False])
    """
    if not _T.is_floating(one.type) and one.equals(other):
        return np.ones(len(one), dtype=np.bool_)
    valid, also = _valid(one), _valid(other)
    if _T.is_struct(one.type):
        pairs = zip(one.flatten(), other.flatten(), strict=True)
        same = functools.reduce(
            np.logical_and, (same_values(a, b) for a, b in pairs), np.ones(len(one), np.bool_)
        )
    elif _T.is_list(one.type) or _T.is_map(one.type):
        same = _same_lists(one, other)
    else:
        plain = (bits(each) if _T.is_floating(each.type) else each for each in (one, other))
        same = _flags(pc.equal(*plain))
    answer: Flags = (valid & also & same) | ~(valid | also)
    return answer


def _same_lists(one: pa.Array, other: pa.Array) -> Flags:
    """Compare lists of equal length element by element."""
    lengths, others = _lengths(one), _lengths(other)
    same_list: Flags = lengths == others
    chosen = np.flatnonzero(same_list & (lengths > 0))
    if len(chosen):
        counts = lengths[chosen]
        same = same_values(_elements(one, chosen), _elements(other, chosen))
        starts = np.cumsum(counts) - counts
        same_list[chosen] = np.logical_and.reduceat(same, starts)
    return same_list


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the length of each list, 0 for null."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    lengths: npt.NDArray[np.int64] = np.where(_valid(array), np.diff(offsets), 0)
    return lengths


def _elements(array: pa.Array, chosen: npt.NDArray[np.int64]) -> pa.Array:
    """Return the elements of some lists, one list after the other; those of a map are structs."""
    starts = array.offsets.to_numpy().astype(np.int64)[chosen]
    counts = _lengths(array)[chosen]
    first = np.cumsum(counts) - counts
    places = np.arange(int(counts.sum())) + np.repeat(starts - first, counts)
    if _T.is_map(array.type):
        names = ["key", "value"]
        whole = pa.StructArray.from_arrays([array.keys, array.items], names=names)
        return whole.take(pa.array(places))
    return array.values.take(pa.array(places))


def _valid(array: pa.Array) -> Flags:
    return _flags(array.is_valid())


def _flags(array: pa.Array) -> Flags:
    plain: Flags = array.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return plain
