"""Repushes from an older version and undos beside writers: random orders, rules left out.

INV-04, INV-07, INV-08, INV-15: every version has the rows that its decisions come to, with what was
committed meanwhile carried over, and no writer fails.
"""

from __future__ import annotations

import pytest

from tests.interleave.sourcing import BROKEN, LONG, sourcing
from tests.scheduler import explore, explore_all, replay
from tests.support.effort import MORE

SHORT = [("au", "s"), ("au", "p"), ("as", ""), ("bs", ""), ("pu", "s"), ("st", "")]


@pytest.mark.long(2)
@pytest.mark.parametrize(("table_type", "actors", "swapped"), LONG)
def test_no_row_is_lost_beside_a_repush_from_a_version_or_an_undo_in_random_orders(
    table_type: str, actors: str, swapped: str
) -> None:
    """With letters for a, b, c: writers; s: such a repush; t: an undo of a commit; u: of a swap."""
    made = sourcing(table_type, actors, swapped=swapped, events=True)
    report = explore(made, range(150 if MORE else 4))
    assert report.failure is None, str(report.failure)


@pytest.mark.parametrize(("actors", "swapped"), SHORT if MORE else SHORT[:1])
def test_no_row_is_lost_beside_a_repush_from_a_version_or_an_undo_in_every_short_order(
    actors: str, swapped: str
) -> None:
    report = explore_all(sourcing("cow", actors, swapped=swapped), switches=1)
    assert report.failure is None, str(report.failure)
    assert report.complete


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_left_out_is_found_and_the_sound_code_passes_the_same(rule: str) -> None:
    left_out, actors, swapped = BROKEN[rule]
    with left_out():
        failure = explore_all(sourcing("cow", actors, swapped=swapped), switches=1).failure
    assert failure is not None, "the scheduler does not see it"
    assert replay(sourcing("cow", actors, swapped=swapped), failure.schedule) is None
