"""Orders of rows: every place once, and on the Hilbert curve neighbours are neighbours."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.arrow.curve import hilbert, morton, places_in_order

KINDS = ("sort", "zorder", "hilbert")


@pytest.mark.parametrize(("columns", "bits"), [(2, 4), (3, 3), (4, 2)])
def test_neighbours_on_the_hilbert_curve_are_neighbours_in_space(columns: int, bits: int) -> None:
    grid = np.array(list(itertools.product(range(1 << bits), repeat=columns)), dtype=np.uint64)
    places = hilbert([grid[:, at].copy() for at in range(columns)], bits)
    assert sorted(places.tolist()) == list(range(len(grid)))
    walk = grid[np.argsort(places)].astype(np.int64)
    assert set(np.abs(np.diff(walk, axis=0)).sum(axis=1).tolist()) == {1}


def test_the_z_order_takes_bits_in_turn() -> None:
    one, two = np.array([0b101], dtype=np.uint64), np.array([0b011], dtype=np.uint64)
    assert morton([one, two], 3).tolist() == [0b100111]


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.integers(-5, 5)), st.text("ab", max_size=2))),
    st.sampled_from(KINDS),
)
def test_every_row_has_a_place_of_its_own(rows: list[tuple[int | None, str]], kind: str) -> None:
    """INV-14: nothing is lost by an order, nulls included."""
    table = pa.table(
        [pa.array([r[0] for r in rows], pa.int64()), pa.array([r[1] for r in rows], pa.string())],
        names=["a", "b"],
    )
    places = places_in_order(table, kind)
    assert sorted(places.tolist()) == list(range(len(rows)))
    if kind == "sort":
        ordered = [rows[at] for at in np.argsort(places)]
        assert ordered == sorted(rows, key=lambda row: (row[0] is None, row[0] or 0, row[1]))
