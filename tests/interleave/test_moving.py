"""Clients that bring one key into different partitions, in every short order of their calls."""

from __future__ import annotations

import pytest

from tests.interleave.moving import BROKEN, moving
from tests.scheduler import explore, explore_all


@pytest.mark.long(2)
@pytest.mark.parametrize(
    ("actors", "table_type", "policy"),
    [
        ("ab", "cow", "key"),
        ("ij", "mor", "key"),
        ("aj", "mor", "file_group"),
        ("ab", "mor", "merge"),
        ("ae", "mor", "key"),
        ("ak", "cow", "key"),
    ],
)
def test_a_key_lives_once_whoever_brings_it_where_in_every_short_order(
    actors: str, table_type: str, policy: str
) -> None:
    """INV-07, INV-08, INV-10."""
    report = explore_all(moving(actors, table_type, policy), switches=1)
    assert report.failure is None, str(report.failure)
    assert report.complete


@pytest.mark.parametrize(
    ("actors", "table_type", "policy"), [("abijke", "mor", "key"), ("abijd", "cow", "merge")]
)
def test_a_key_lives_once_whoever_brings_it_where_in_random_orders(
    actors: str, table_type: str, policy: str
) -> None:
    """INV-07, INV-08, INV-10, INV-15."""
    report = explore(moving(actors, table_type, policy), range(8))
    assert report.failure is None, str(report.failure)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_left_out_is_found(rule: str) -> None:
    with BROKEN[rule]():
        report = explore_all(moving("ij", "mor"), switches=1)
    assert report.failure is not None, "the scheduler does not see it"
