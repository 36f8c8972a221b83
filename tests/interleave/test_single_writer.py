"""A table for one writer, in every order of the calls of those who begin on it.

Whoever is let in works alone: no commit lies between the base of another and its version. That
holds after crashes too, and where a writer that was only asleep is taken for dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from plait.errors import SingleWriterError
from plait.testing import SimClock
from tests.interleave.actors import LITTLE, WRITES, Check, Writer, oracle, recover_dead
from tests.interleave.scenarios import SILENCE_S
from tests.scheduler import (
    CALL_EVENTS,
    Act,
    End,
    Report,
    Scenario,
    Start,
    each_schedule,
    explore,
)
from tests.support.effort import MORE
from tests.support.protocol import client, create, memory

FAILED = ("lazy", "eager")
SEEDS = 10_000 if MORE else 100


def single(failed_writes: str) -> Start:
    clock = SimClock()
    store = memory(clock)
    create(store, concurrency="single_writer", failed_writes=failed_writes, properties=LITTLE)
    return replace(Start.of(store), states=(client(store, clock).cache.refresh(),))


@dataclass(frozen=True)
class Alone:
    """Nobody committed beside another, and what was committed is there."""

    content: Check

    def __call__(self, end: End) -> None:
        self.content(end)
        handle = end.handle()
        head = handle.cache.refresh().version
        written = 0
        for decision in handle.cache.timeline.load_after(0, limit=head):
            if decision.operation.value in WRITES:
                began = int(str(decision.client["began"]))
                assert began >= written, f"{decision.version} began at {began}, beside {written}"
                written = decision.version


def scenario(acts: Mapping[str, Act], failed_writes: str) -> Scenario:
    made = oracle()
    return Scenario(
        f"{', '.join(acts)}, {failed_writes}",
        single(failed_writes),
        acts,
        check=Alone(Check(acts, 0)),
        oracle=replace(made, natural=(*made.natural, SingleWriterError)),
    )


@pytest.mark.long(1)
@pytest.mark.parametrize("failed_writes", FAILED)
def test_of_two_that_begin_at_once_both_are_never_let_in(failed_writes: str) -> None:
    """INV-07: in every order. Both are refused where one sleeps for longer than the other waits."""
    acts = {"a": Writer("a", (0,)), "b": Writer("b", (1,))}
    made = scenario(acts, failed_writes)
    report = Report(made.name)
    ends = list(each_schedule(made, report, switches=2 + MORE))
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert all(end.results or set(end.errors) == set(acts) for end in ends)
    assert any(len(end.results) == 2 for end in ends)
    for name in acts:
        assert any(name in end.errors for end in ends)


@pytest.mark.parametrize("failed_writes", FAILED)
def test_crashes_and_sleep_let_nobody_work_beside_another(failed_writes: str) -> None:
    """INV-03: who was only asleep wakes to find itself ended."""
    acts = {
        "a": Writer("a", (0,)),
        "b": Writer("b", (1,)),
        "c": Writer("c", (2,)),
        "d": recover_dead,
    }
    made = replace(
        scenario(acts, failed_writes), events=CALL_EVENTS, events_max=3, jumps=(SILENCE_S,), beats=1
    )
    report = explore(made, range(SEEDS))
    assert report.failure is None, str(report.failure)
