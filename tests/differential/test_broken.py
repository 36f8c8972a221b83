"""The histories find every rule that is left out; the sound code passes the same ones."""

from __future__ import annotations

import pytest

from tests.differential.broken import BROKEN, Broken
from tests.differential.draw import ROUND
from tests.differential.shrink import check, differences

CALLS_MAX = 12
"""A client with one operation makes fewer calls before it publishes."""


@pytest.mark.long(9)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("broken", BROKEN, ids=[each.name for each in BROKEN])
def test_a_rule_that_is_left_out_is_found_within_the_short_run(broken: Broken) -> None:
    for seed in (broken.seed, *range(ROUND)):
        found = check(seed, broken)
        if found is not None and broken.promises & {each.promise for each in found.findings}:
            break
    else:
        pytest.fail(f"{broken.name}: nothing is seen of it in {ROUND} histories")
    assert check(seed) is None


@pytest.mark.parametrize(
    "broken", [each for each in BROKEN if each.history], ids=lambda each: each.name
)
def test_a_rule_that_few_seeds_need_is_found_by_one_history_whatever_is_drawn(
    broken: Broken,
) -> None:
    """The second client works in the middle of the first, wherever that may be."""
    assert broken.history is not None
    found: set[str] = set()
    for call in range(1, CALLS_MAX):
        schedule = f"a:{call}>b"
        assert differences(broken.history, schedule) == []
        found |= {each.promise for each in differences(broken.history, schedule, broken)}
    assert broken.promises & found
