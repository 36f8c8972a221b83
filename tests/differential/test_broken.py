"""The histories find every rule that is left out; the sound code passes the same ones."""

from __future__ import annotations

import pytest

from tests.differential.broken import BROKEN, Broken
from tests.differential.draw import ROUND
from tests.differential.shrink import check


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
