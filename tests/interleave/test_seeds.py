"""Many schedules with everything that may happen: 20,000 each time, hours of them on request.

INV-01 to INV-07, INV-10, INV-11 and that the table goes on, after each of them. The long run is
``make schedules MINUTES=60``; a failure prints how to replay it.
"""

from __future__ import annotations

import pytest

from plait.testing.scheduler import explore, explore_all
from tests.interleave.scenarios import scenarios, short_scenarios

SEEDS = 600
FEWER = {
    "checkpoints and a newcomer": 150,
    "real cow writers": 150,
    "real mor writers": 150,
}
"""Real Parquet takes its time."""
SHORT = {
    "two writers": (1, 1),
    "a writer and a recoverer": (2, 1),
    "a writer that falls silent": (1, 2),
    "a stale writer and a recoverer": (1, 1),
    "a reader of an old version and a cleaner": (1, 1),
    "two appends": (2, 1),
    "a writer and a cleaner": (1, 1),
    "a lock that is lost": (3, 1),
}
"""How many switches and how many events."""


@pytest.mark.parametrize("name", scenarios().keys())
def test_every_promise_holds_in_schedules_drawn_from_seeds(name: str) -> None:
    seeds = FEWER.get(name, SEEDS)
    report = explore(scenarios()[name], range(seeds))
    assert report.failure is None, str(report.failure)
    assert report.schedules == seeds
    assert len(report.traces) > seeds / 4, "the seeds draw the same schedules"


@pytest.mark.parametrize("name", SHORT.keys())
def test_every_promise_holds_in_every_short_schedule(name: str) -> None:
    switches, events = SHORT[name]
    report = explore_all(short_scenarios()[name], switches=switches, events=events)
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert report.schedules > 400


def test_every_order_of_two_writers_is_covered_without_a_bound() -> None:
    """Only one of those that differ in nothing is run; none is left out."""
    report = explore_all(short_scenarios()["two writers"])
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert report.cut > 0
