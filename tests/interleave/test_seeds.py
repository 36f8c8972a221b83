"""Many schedules with everything that may happen: thousands each time, hours of them on request.

INV-01 to INV-07, INV-10, INV-11 and that the table goes on, after each of them. ``make soak`` draws
three times as many, and the long run is ``make schedules MINUTES=60``; a failure prints how to
replay it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from plait.errors import CommitOutcomeUnknownError
from tests.interleave.scenarios import feature_scenarios, scenarios, short_scenarios
from tests.interleave.streaming import stream_scenarios
from tests.scheduler import End, Report, each_schedule, explore, explore_all
from tests.scheduler.memo import Memo
from tests.support.effort import MORE

SEEDS = 300 if MORE else 100
FEWER = {
    "checkpoints and a newcomer": 75 if MORE else 40,
    "two writers, a recoverer, a cleaner, an archive": 75 if MORE else 40,
    "a stale writer, a recoverer, two archives": 75 if MORE else 40,
    "real cow writers": 75 if MORE else 40,
    "real mor writers": 75 if MORE else 40,
    "compactions beside writers": 75 if MORE else 40,
    "restores beside writers and a compaction": 75 if MORE else 40,
    "rebuilds beside cow writers": 30 if MORE else 20,
    "rebuilds beside mor writers": 30 if MORE else 20,
    **{each.name: 25 for each in stream_scenarios()},
    **{each.name: 150 if MORE else 5 for each in feature_scenarios()},
}
"""Real Parquet takes its time, and so does a stream: every message is a step."""
SHORT = {
    "two writers": (1, 1),
    "a writer and a recoverer": (1 + MORE, 1),
    "a writer that falls silent": (1, 2),
    "a stale writer and a recoverer": (1, 1),
    "a reader of an old version and a cleaner": (1, 1),
    "two appends": (1 + MORE, 1),
    "a writer and a cleaner": (1, 1),
    "a cleaner and an undo": (1, 1),
    "a writer and a remover of foreign files": (1, 1),
    "a writer that changes nothing": (2, 1),
    "a lock that is lost": (3, 1),
    "a writer and a compaction": (2, 0),
    "a writer and a restorer": (1, 1),
    "a cleaner and a savepoint": (1, 1),
}
"""How many switches and how many events; test_commits.py runs two switches without events."""


@pytest.mark.long(16)
@pytest.mark.parametrize("name", scenarios().keys())
def test_every_promise_holds_in_schedules_drawn_from_seeds(name: str) -> None:
    seeds = FEWER.get(name, SEEDS)
    report = explore(scenarios()[name], range(seeds))
    assert report.failure is None, str(report.failure)
    assert report.schedules == seeds
    assert len(report.traces) > seeds / 4, "the seeds draw the same schedules"


@pytest.mark.long(5)
@pytest.mark.parametrize("name", SHORT.keys())
def test_every_promise_holds_in_every_short_schedule(name: str) -> None:
    switches, events = SHORT[name]
    report = explore_all(short_scenarios()[name], switches=switches, events=events)
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert report.schedules > 150


def test_every_order_of_two_writers_is_covered_without_a_bound() -> None:
    """Only one of those that differ in nothing is run; none is left out."""
    report = explore_all(short_scenarios()["two writers"])
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert report.cut > 0


def test_a_commit_whose_answer_never_comes_is_told_as_unknown() -> None:
    """INV-10: the store is out of reach from the publish on; it landed, or it did not."""
    made = replace(
        short_scenarios()["two writers"], events=("cut_before", "cut_after"), memo=Memo()
    )
    report = Report(made.name)
    told: Counter[bool] = Counter()
    for end in each_schedule(made, report, switches=1, events=1):
        for name, error in end.errors.items():
            if isinstance(error, CommitOutcomeUnknownError):
                told[any(f.startswith(end.outcomes[name].nonces) for f in committed(end))] += 1
    assert report.failure is None, str(report.failure)
    assert told[True]
    assert told[False]


def committed(end: End) -> list[str]:
    rows = end.handle().cache.refresh().commits(end.store).to_pylist()
    return [row["instant"].split("-")[1] for row in rows if row["operation"] == "upsert"]
