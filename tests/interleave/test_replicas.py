"""A sink that comes into the definition, or leaves it, beside writers; and a rule left out.

D4 of RFC 0022: where the definition of a version names a sink, the sink has the rows of the next
commit before the table has them. What a refused writer sent there is told by its attempt record.
"""

from __future__ import annotations

import pytest

from tests.interleave.sinking import LONG, sinking, without_the_definition_of_the_head
from tests.scheduler import explore, explore_all, replay
from tests.support.effort import MORE


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


def test_a_writer_that_believes_the_definition_it_began_with_is_found() -> None:
    with without_the_definition_of_the_head():
        failure = explore_all(sinking("ar"), switches=1).failure
    assert failure is not None, "the scheduler does not see it"
    assert any("D4" in problem.found for problem in failure.problems), str(failure)
    assert replay(sinking("ar"), failure.schedule) is None
