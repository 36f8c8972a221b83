"""A deterministic scheduler: the real code of several clients, one storage call at a time.

Actors run on one simulated store and clock. Before each call the schedule says who goes on and
what happens: a switch, a crash, a lost reply, a write that lands later, a listing that is older
than its answer, a leap of time. After each schedule an oracle judges what is left and what each
actor was told. A failure is shrunk, and prints as a program that replays.

>>> from plait import Table
>>> from plait.storage import open_store
>>> table = Table.create("memory://scheduler-doc", "id bigint", lock="none")
>>> def turn(handle):
...     return Table(handle).alter.set({"lock.wait": "1s"})
>>> scenario = Scenario(
...     "two who set an option",
...     Start.of(open_store("memory://scheduler-doc")),
...     {"a": turn, "b": turn},
...     events=("crash_after", "lost_reply"),
... )
>>> report = explore_all(scenario, switches=1, events=1)
>>> report.complete, report.failure
(True, None)
>>> explore(scenario, range(100)).failure is None
True
"""

from __future__ import annotations

from tests.scheduler.ending import End, Outcome, Problem
from tests.scheduler.explore import (
    Failure,
    Report,
    each_schedule,
    each_seed,
    explore,
    explore_all,
    replay,
)
from tests.scheduler.oracle import Oracle
from tests.scheduler.points import CALL_EVENTS, MESSAGE_EVENTS
from tests.scheduler.scenario import Act, Scenario, Start

__all__ = [
    "CALL_EVENTS",
    "MESSAGE_EVENTS",
    "Act",
    "End",
    "Failure",
    "Oracle",
    "Outcome",
    "Problem",
    "Report",
    "Scenario",
    "Start",
    "each_schedule",
    "each_seed",
    "explore",
    "explore_all",
    "replay",
]
