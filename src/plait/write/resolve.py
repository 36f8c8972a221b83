"""Which of several rows with one key wins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.keys import Indices

Flags = npt.NDArray[np.bool_]


def winners(order: Indices, first: Flags, ranks: pa.Array | None) -> Indices:
    """Give the position of the row that wins in each group of equal keys, in key order.

    ``order`` lists positions by key, of equal keys the newer later; ``first`` tells where a
    group begins. The row with the greatest rank (the ordering field; null is less than all)
    wins, of equal ranks the newest; without ranks the newest.

    >>> order, first = np.array([0, 2, 1]), np.array([True, False, True])
    >>> winners(order, first, None).tolist()
    [2, 1]
    >>> winners(order, first, pa.array([5, 1, 4])).tolist()
    [0, 1]
    """
    begins: Indices = np.flatnonzero(first)
    if len(begins) == len(order):
        return order
    ends = np.append(begins[1:], len(order)) - 1
    won: Indices = order[ends]
    if ranks is None:
        return won
    several = ends > begins
    group = np.cumsum(first) - 1
    inside = several[group]
    rivals, group = order[inside], group[inside]
    rank = ranks.take(pa.array(rivals))
    table = pa.table({"group": group, "known": rank.is_valid(), "rank": rank})
    # Stable: of equal ranks the newer stays behind the older.
    ascending = pc.sort_indices(table, sort_keys=[(n, "ascending") for n in table.column_names])
    ascending = ascending.to_numpy()
    grouped = group[ascending]
    last = np.append(grouped[1:] != grouped[:-1], np.ones(1, dtype=np.bool_))
    won[several] = rivals[ascending[last]]
    return won
