"""Sinks beside writers: one that comes into the definition or leaves it, and one in step.

D4 of RFC 0022: where the definition of a version names a sink, the sink has the rows of the next
commit before the table has them. What a refused writer sent there is told by its attempt record.
"""

from __future__ import annotations

import itertools

import pytest

from tests.interleave.sending import ACTORS, sending
from tests.interleave.sinking import sinking
from tests.scheduler import explore_all
from tests.support.effort import MORE

PAIRS = tuple(itertools.combinations_with_replacement(ACTORS, 2))


@pytest.mark.parametrize("actors", ["ar", "br", "axr", "acr"] if MORE else ["ar", "br"])
def test_no_row_is_in_the_table_that_a_sink_lacks_in_every_short_order(actors: str) -> None:
    """INV-07, INV-10. With letters for a, c: upserts; b: a delete; r: add; x: remove the sink."""
    report = explore_all(sinking(actors), switches=1)
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert len(report.traces) > 5


@pytest.mark.long(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "plain"])
def test_a_sink_in_step_is_equal_in_every_short_order_of_two(kind: str, ordered: bool) -> None:
    """INV-07, D5: keys that the table lacks, rows that lose, and a repair beside them."""
    pairs = PAIRS if MORE else PAIRS[(kind == "mor") + 2 * ordered :: 4]
    for one, other in pairs:
        report = explore_all(sending(one, other, kind=kind, ordered=ordered), switches=1)
        assert report.failure is None, f"{one} beside {other}: {report.failure}"
        assert report.complete
