"""A repush beside writers and a cleaner, in many orders; a rule that is left out is found."""

from __future__ import annotations

import pytest

from tests.interleave.repushing import BROKEN, repushing
from tests.scheduler import explore, explore_all


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_repush_beside_writers_and_a_cleaner_loses_nothing_in_random_orders(
    table_type: str,
) -> None:
    """INV-04, INV-05, INV-07, INV-15."""
    report = explore(repushing(table_type), range(8))
    assert report.failure is None, str(report.failure)


@pytest.mark.long(1)
@pytest.mark.parametrize("actors", ["ap", "cp"])
def test_a_repush_beside_another_client_loses_nothing_in_every_short_order(actors: str) -> None:
    """INV-04, INV-05, INV-07, INV-15."""
    report = explore_all(repushing("cow", actors), switches=1)
    assert report.failure is None, str(report.failure)
    assert report.complete


@pytest.mark.parametrize("actors", ["apq", "apx"])
def test_two_repushes_or_a_cancel_lose_nothing_in_random_orders(actors: str) -> None:
    report = explore(repushing("cow", actors), range(8))
    assert report.failure is None, str(report.failure)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_left_out_is_found(rule: str) -> None:
    left_out, actors = BROKEN[rule]
    with left_out():
        scenario = repushing("cow", actors)
        short = len(actors) == 2
        report = explore_all(scenario, switches=1) if short else explore(scenario, range(40))
    assert report.failure is not None, "the scheduler does not see it"
