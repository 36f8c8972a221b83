"""The histories find every rule that is left out; the sound code passes the same ones."""

from __future__ import annotations

import pytest

from tests.differential.broken import BROKEN, Broken
from tests.differential.program import History
from tests.differential.shrink import check, differences

CALLS_MAX = 12
"""A client with one operation makes fewer calls before it publishes."""
FOUND_BY_ONE = [(each, history) for each in BROKEN for history in each.histories]


@pytest.mark.long(14)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "broken", [each for each in BROKEN if each.within], ids=lambda each: each.name
)
def test_a_rule_that_is_left_out_is_found_within_the_short_run(broken: Broken) -> None:
    begin = broken.seed if broken.within < broken.seed else 0
    for seed in (broken.seed, *range(begin, begin + broken.within)):
        found = check(seed, broken, drawing=broken.drawing)
        promises = frozenset() if found is None else {each.promise for each in found.findings}
        if found is not None and (broken.promises & promises or not broken.promises):
            break
    else:
        pytest.fail(f"{broken.name}: nothing is seen of it in {broken.within} histories")
    assert check(seed, drawing=broken.drawing) is None


@pytest.mark.parametrize(
    ("broken", "history"),
    FOUND_BY_ONE,
    ids=[f"{broken.name}-{history.shape.table_type}" for broken, history in FOUND_BY_ONE],
)
def test_a_rule_that_few_seeds_need_is_found_by_one_history_whatever_is_drawn(
    broken: Broken, history: History
) -> None:
    """INV-07, INV-08: the second client works in the middle of the first, wherever that may be."""
    found: set[str] = set()
    for call in range(1, CALLS_MAX):
        schedule = f"a:{call}>b"
        assert differences(history, schedule) == []
        found |= {each.promise for each in differences(history, schedule, broken)}
    assert broken.promises & found
