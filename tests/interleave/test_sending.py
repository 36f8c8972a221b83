"""A sink that is called in step is equal to the table, whatever writers send (RFC 0022, D5)."""

from __future__ import annotations

import itertools

import pytest

from tests.interleave.sending import ACTORS, LONG, sending
from tests.scheduler import explore, explore_all
from tests.support.effort import MORE

PAIRS = tuple(itertools.combinations_with_replacement(ACTORS, 2))


@pytest.mark.long(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "plain"])
def test_a_sink_in_step_is_equal_in_every_short_order_of_two(kind: str, ordered: bool) -> None:
    """INV-07. Keys that the table does not have, rows that lose, and a repair beside them."""
    pairs = PAIRS if MORE else PAIRS[(kind == "mor") + 2 * ordered :: 4]
    for one, other in pairs:
        report = explore_all(sending(one, other, kind=kind, ordered=ordered), switches=1)
        assert report.failure is None, f"{one} beside {other}: {report.failure}"
        assert report.complete


@pytest.mark.parametrize("actors", LONG, ids=" ".join)
def test_a_sink_in_step_is_equal_in_random_orders_with_crashes(actors: tuple[str, ...]) -> None:
    report = explore(sending(*actors, events=True), range(150 if MORE else 4))
    assert report.failure is None, str(report.failure)
