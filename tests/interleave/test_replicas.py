"""Sinks beside writers: one that comes into the definition or leaves it, and one in step.

D4 of RFC 0022: where the definition of a version names a sink, the sink has the rows of the next
commit before the table has them. What a refused writer sent there is told by its attempt record.
"""

from __future__ import annotations

import itertools

import pytest

from tests.interleave import sending as in_step
from tests.interleave.sending import ACTORS, sending
from tests.interleave.sinking import LONG, sinking
from tests.scheduler import explore, explore_all
from tests.support.effort import MORE

PAIRS = tuple(itertools.combinations_with_replacement(ACTORS, 2))


@pytest.mark.parametrize("actors", ["ar", "br", "axr", "acr"] if MORE else ["ar", "br"])
def test_no_row_is_in_the_table_that_a_sink_lacks_in_every_short_order(actors: str) -> None:
    """INV-07, INV-10. With letters for a, c: upserts; b: a delete; r: add; x: remove the sink."""
    report = explore_all(sinking(actors), switches=1)
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert len(report.traces) > 5


@pytest.mark.parametrize("actors", LONG)
def test_no_row_is_in_the_table_that_a_sink_lacks_in_random_orders_with_crashes(
    actors: str,
) -> None:
    report = explore(sinking(actors, events=True), range(150 if MORE else 4))
    assert report.failure is None, str(report.failure)


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


@pytest.mark.parametrize("actors", in_step.LONG, ids=" ".join)
def test_a_sink_in_step_is_equal_in_random_orders_with_crashes(actors: tuple[str, ...]) -> None:
    report = explore(sending(*actors, events=True), range(150 if MORE else 4))
    assert report.failure is None, str(report.failure)
