"""Where rows stand in an order of several columns: sorted, or along a space-filling curve.

Rows that are near in every column stay near on the curve, so that the bounds of a few files or row
groups say in which of them a box of values can lie.

Source: J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707, 2004; G. M.
Morton, 1966, for the Z-order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.keys import Indices

Axes = list[npt.NDArray[np.uint64]]
_BITS_MAX = 63
_BITS = 16
"""So fine is a column divided: 65,536 equal shares of the rows."""


def places_in_order(rows: pa.Table, kind: str) -> Indices:
    """Return for each row its place in the order, from 0 on; equal rows keep theirs.

    Args:
        rows: the columns of the order, the most important first.
        kind: ``sort``, ``zorder`` or ``hilbert``.

    >>> places_in_order(pa.table({"a": [3, 1, None, 2]}), "sort").tolist()
    [2, 0, 3, 1]
    """
    if kind == "sort" or rows.num_columns == 1:
        keys = [(name, "ascending") for name in rows.schema.names]
        order: Indices = pc.sort_indices(rows, sort_keys=keys).to_numpy().astype(np.int64)
    else:
        bits = min(_BITS, _BITS_MAX // rows.num_columns)
        axes = [_axis(rows.column(name), bits) for name in rows.schema.names]
        curve = morton(axes, bits) if kind == "zorder" else hilbert(axes, bits)
        order = np.argsort(curve, kind="stable")
    return _inverse(order)


def _axis(column: pa.ChunkedArray, bits: int) -> npt.NDArray[np.uint64]:
    """Return the share of the rows in which each value lies; equal values lie in one."""
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min").to_numpy()
    shares: npt.NDArray[np.uint64] = ((ranks - 1) << bits).astype(np.uint64)
    return shares // np.uint64(max(1, len(ranks)))


def _inverse(order: Indices) -> Indices:
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def morton(axes: Sequence[npt.NDArray[np.uint64]], bits: int) -> npt.NDArray[np.uint64]:
    """Return the places of points on the Z-order curve: their bits in turn.

    >>> one, two = (np.array(each, dtype=np.uint64) for each in ([0, 1, 0, 1], [0, 0, 1, 1]))
    >>> morton([one, two], 1).tolist()
    [0, 2, 1, 3]
    """
    place = np.zeros(len(axes[0]), dtype=np.uint64)
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            place = (place << one) | ((axis >> np.uint64(bit)) & one)
    return place


def hilbert(axes: Sequence[npt.NDArray[np.uint64]], bits: int) -> npt.NDArray[np.uint64]:
    """Return the places of points on the Hilbert curve; neighbours on it are neighbours in space.

    >>> one, two = (np.array(each, dtype=np.uint64) for each in ([0, 1, 0, 1], [0, 0, 1, 1]))
    >>> hilbert([one, two], 1).tolist()
    [0, 3, 1, 2]
    """
    turned: Axes = [axis.copy() for axis in axes]
    for power in range(bits - 1, 0, -1):
        _turn(turned, np.uint64(1 << power))
    for at in range(1, len(turned)):
        turned[at] ^= turned[at - 1]
    last = np.zeros(len(turned[0]), dtype=np.uint64)
    for power in range(bits - 1, 0, -1):
        bit = np.uint64(1 << power)
        last ^= np.where(turned[-1] & bit, bit - np.uint64(1), np.uint64(0))
    return morton([axis ^ last for axis in turned], bits)


def _turn(axes: Axes, bit: np.uint64) -> None:
    """Undo the rotation of one level of the curve."""
    low = bit - np.uint64(1)
    first = axes[0]
    for at, axis in enumerate(axes):
        inverted = (axis & bit) != 0
        swapped = np.where(inverted, np.uint64(0), (first ^ axis) & low)
        first ^= np.where(inverted, low, swapped)
        if at:
            axes[at] ^= swapped
