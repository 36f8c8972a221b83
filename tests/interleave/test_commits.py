"""Writers, recoverers, cleaners and readers, in every order of their calls to the store.

After each schedule: the oracle and verify find nothing (INV-01 to INV-07), what is visible is
exactly what was reported committed (INV-10), nothing is left behind, and the table goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from plait.model.bucket import UNKEYED
from plait.services.maintenance.clean import clean
from tests.interleave.actors import (
    Check,
    Writer,
    fresh,
    look,
    oracle,
    read,
    recover,
    retrying,
    start,
    travel,
)
from tests.scheduler import Act, End, Report, Scenario, each_schedule
from tests.support.effort import MORE


@dataclass(frozen=True)
class Orders:
    """Actors, the table they begin with, and who of them is refused in some orders."""

    acts: Mapping[str, Act]
    switches: int = 1
    refused: str = ""
    """Each of these in some orders; nobody else in any, and in some order nobody at all."""
    writes: int = 0
    known: int = -1
    """The version that all know; by default the newest."""
    keyed: bool = True
    interval: int = 50

    def run(self) -> list[End]:
        """Run every order."""
        scenario = Scenario(
            ", ".join(self.acts),
            start(self.writes, keyed=self.keyed, interval=self.interval),
            self.acts,
            check=Check(self.acts, self.writes),
            knows=dict.fromkeys(self.acts, self.known),
            oracle=oracle(keyed=self.keyed),
        )
        report = Report(scenario.name)
        ends = list(each_schedule(scenario, report, switches=self.switches + MORE))
        assert report.failure is None, str(report.failure)
        assert report.complete
        return ends


def three(*names: str) -> Orders:
    """Return actors beside checkpoints that are written and collected all the time."""
    acts: dict[str, Act] = {"a": retrying("a"), "c": clean, "f": fresh}
    chosen = acts if MORE else {name: acts[name] for name in names}
    return Orders(chosen, 1 - MORE, writes=4, known=1, interval=1)


ORDERS = {
    "INV-07: of two writers of one bucket one is refused where they overlapped": Orders(
        {"a": Writer("a"), "b": Writer("b")}, 2, "ab"
    ),
    "INV-07, INV-10: two that retry both commit": Orders(
        {"a": retrying("a"), "b": retrying("b")}, 2, writes=1
    ),
    "INV-07: two writers of different buckets both commit": Orders(
        {"a": Writer("a", (0, 1)), "b": Writer("b", (2, 3))}, 2
    ),
    "INV-07: three that overlap in part all commit": Orders(
        {"a": retrying("a", 0, 1), "b": retrying("b", 1), "c": Writer("c", (2,))}
    ),
    "appends all commit": Orders({n: Writer(n, (UNKEYED,)) for n in "ab"}, 2, keyed=False),
    "INV-03, INV-06, INV-10: who is taken for dead commits or is ended": Orders(
        {"a": Writer("a"), "d": recover}, 2, "a"
    ),
    "INV-03: the end of a stale writer may lie before its base": Orders(
        {"a": Writer("a"), "d": recover}, 2, "a", writes=2, known=0
    ),
    "INV-03: two recoverers decide an instant once": Orders(
        {"a": Writer("a"), "d": recover, "e": recover}, refused="a"
    ),
    "INV-03, INV-07: two writers and a recoverer": Orders(
        {"a": retrying("a"), "b": Writer("b"), "d": recover}, refused="ab", writes=1
    ),
    "INV-05: a clean leaves what a writer needs": Orders(
        {"a": retrying("a"), "c": clean}, writes=2
    ),
    "INV-05: a clean leaves what a stale writer needs": Orders(
        {"a": retrying("a"), "c": clean}, writes=2, known=0
    ),
    "INV-05, INV-07: a clean beside two writers": Orders(
        {"a": retrying("a"), "b": retrying("b"), "c": clean}, writes=1
    ),
    "INV-05: a clean leaves what a reader needs while its files become old": Orders(
        {"f": read, "a": retrying("a"), "c": clean}, writes=1
    ),
    "INV-05: two cleans at once": Orders({"c": clean, "e": clean}, writes=2),
    "INV-04 to INV-06: no damage is told beside a writer": Orders(
        {"f": look, "a": Writer("a")}, writes=1
    ),
    "INV-04 to INV-06: no damage is told beside a clean": Orders({"f": look, "c": clean}, writes=2),
    "INV-04 to INV-06: no damage is told beside a recoverer": Orders(
        {"f": look, "a": Writer("a"), "d": recover}, refused="a"
    ),
    "INV-11: checkpoints are collected beside a writer": three("a", "c"),
    "INV-11: checkpoints are collected beside a newcomer": three("c", "f"),
    "INV-11: two writers of one checkpoint": Orders(
        {"a": Writer("a", (0,)), "b": Writer("b", (1,))}, writes=1, interval=1
    ),
}


@pytest.mark.parametrize("orders", ORDERS.values(), ids=ORDERS.keys())
def test_every_order_of_calls_keeps_every_promise(orders: Orders) -> None:
    """INV-01 to INV-07, INV-10, INV-11: nobody else is refused, and nobody without need."""
    ends = orders.run()
    assert {name for end in ends for name in end.errors} == set(orders.refused)
    assert any(not end.errors for end in ends)
    assert all(end.results for end in ends)


def test_a_reader_of_an_old_version_finds_every_file_or_hears_that_it_was_cleaned() -> None:
    """INV-05."""
    ends = Orders({"f": travel, "c": clean}, 2, writes=2, known=1).run()
    assert {end.results["f"] for end in ends} == {"read", "expired"}
