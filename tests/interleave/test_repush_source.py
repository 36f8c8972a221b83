"""Repushes, also from an older version, undos, writers and a cleaner: every short order.

INV-04, INV-05, INV-07, INV-08, INV-15: every version has the rows that its decisions come to, with
what was committed meanwhile carried over, and no writer fails.
"""

from __future__ import annotations

import pytest

from tests.interleave.sourcing import sourcing
from tests.scheduler import explore_all
from tests.support.effort import MORE

SHORT = [("ap", ""), ("au", "s"), ("kp", ""), ("au", "p"), ("as", ""), ("bs", ""), ("pu", "s")]


@pytest.mark.long(2)
@pytest.mark.parametrize(("actors", "swapped"), SHORT if MORE else SHORT[:3])
def test_no_row_is_lost_beside_a_repush_or_an_undo_in_every_short_order(
    actors: str, swapped: str
) -> None:
    """With letters for what runs.

    a, b: writers; k: a clean; p: a repush; s: one from a version; u: an undo of a swap.
    """
    report = explore_all(sourcing("cow", actors, swapped=swapped), switches=1)
    assert report.failure is None, str(report.failure)
    assert report.complete
