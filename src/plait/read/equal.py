"""Compare two columns value by value, of any type that a table holds."""

from __future__ import annotations

import functools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Flags: TypeAlias = npt.NDArray[np.bool_]
_T = pa.types


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
        found = functools.reduce(
            np.logical_and, (same_values(a, b) for a, b in pairs), np.ones(len(one), np.bool_)
        )
    elif _T.is_list(one.type) or _T.is_map(one.type):
        found = _same_lists(one, other)
    else:
        found = _flags(pc.equal(_bits(one), _bits(other)))
    answer: Flags = (valid & also & found) | ~(valid | also)
    return answer


def _bits(array: pa.Array) -> pa.Array:
    if _T.is_float32(array.type):
        return array.view(pa.int32())
    return array.view(pa.int64()) if _T.is_float64(array.type) else array


def _same_lists(one: pa.Array, other: pa.Array) -> Flags:
    """Compare lists of equal length element by element."""
    lengths, others = _lengths(one), _lengths(other)
    found: Flags = lengths == others
    chosen = np.flatnonzero(found & (lengths > 0))
    if len(chosen):
        counts = lengths[chosen]
        same = same_values(_elements(one, chosen), _elements(other, chosen))
        starts = np.cumsum(counts) - counts
        found[chosen] = np.logical_and.reduceat(same, starts)
    return found


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
    found: Flags = array.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return found
