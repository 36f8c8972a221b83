"""The scheduler finds what it is there for: every rule of the protocol that is left out.

The sound code passes the very schedules that break the broken one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from plait.services.maintenance.clean import clean
from plait.txn import publish as publishing
from tests.interleave.actors import (
    Check,
    Writer,
    give_up,
    recover,
    retrying,
    start,
    travel,
    undo,
    write_on,
)
from tests.interleave.broken import (
    Archiver,
    Consequences,
    FileIdHand,
    Forgetful,
    Marked,
    early_clean,
    forget,
    mark_and_delete,
    stubborn_clean,
    under_a_lock,
)
from tests.interleave.faults import FAULTS, Fault
from tests.scheduler import (
    CALL_EVENTS,
    Act,
    Oracle,
    Scenario,
    explore,
    explore_all,
    replay,
)

SOUND_MAX = 100
"""So many of the same seeds the sound code runs; test_seeds.py runs it longer."""


@dataclass(frozen=True)
class Variant:
    """A broken protocol, the sound one beside it, and how soon the difference shows."""

    broken: Mapping[str, Act]
    sound: Mapping[str, Act]
    seed: int
    """The first that breaks it, when this was written."""
    within: int
    """So many seeds are enough, also when calls come and go."""
    promises: frozenset[str]
    """What must be seen broken: not the deed, its consequence."""
    writes: int = 1
    interval: int = 50
    grace_s: int = 0
    oracle: Oracle = field(default_factory=lambda: Consequences(next_write=write_on))
    options: Mapping[str, object] = field(default_factory=dict)

    def scenario(self, acts: Mapping[str, Act]) -> Scenario:
        return Scenario(
            "broken" if acts is self.broken else "sound",
            start(self.writes, interval=self.interval, grace_s=self.grace_s),
            acts,
            check=Check(self.sound, self.writes, verified=False),
            oracle=self.oracle,
            **self.options,  # type: ignore[arg-type]  # each is given by its name
        )


def _archived(*, delete: bool) -> dict[str, Act]:
    return {"a": retrying("a"), "b": Writer("b", (0,), "retry"), "c": Archiver(delete=delete)}


VARIANTS = {
    "lock without slot": Variant(
        {name: under_a_lock(retrying(name)) for name in "ab"},
        {name: retrying(name) for name in "ab"},
        seed=470,
        within=400,
        promises=frozenset({"INV-01", "INV-02", "INV-07"}),
        options={"lock_lost": True},
    ),
    "rollback outside the slots": Variant(
        {"a": Marked("a"), "d": mark_and_delete},
        {"a": Writer("a"), "d": recover},
        seed=2,
        within=100,
        promises=frozenset({"INV-05", "liveness"}),
    ),
    "conflict by file id": Variant(
        {name: Writer(name, (1,), hand=FileIdHand) for name in "ab"},
        {name: Writer(name, (1,)) for name in "ab"},
        seed=0,
        within=100,
        promises=frozenset({"INV-07"}),
    ),
    "a slot name that goes away": Variant(
        _archived(delete=True),
        _archived(delete=False),
        seed=10,
        within=200,
        promises=frozenset({"INV-01", "INV-02"}),  # published again: in the schedule, or after it
        writes=2,
        interval=1,
        oracle=Oracle(next_write=write_on, archived=True),
    ),
    "own rollback not looked for from v0 on": Variant(
        {"a": Writer("a", kind=Forgetful), "d": recover},
        {"a": Writer("a"), "d": recover},
        seed=39,
        within=400,
        promises=frozenset({"INV-03"}),
        writes=2,
        options={"knows": {"a": 0}},
    ),
    "an instant with a file is forgotten": Variant(
        {"a": forget, "d": recover},
        {"a": give_up, "d": recover},
        seed=0,
        within=100,
        promises=frozenset({"nothing left behind"}),
        oracle=Oracle(next_write=write_on),
    ),
    "leases listed too early": Variant(
        {"f": travel, "c": early_clean},
        {"f": travel, "c": clean},
        seed=997,
        within=3000,
        promises=frozenset({"no surprise"}),
        writes=2,
        options={"knows": {"f": 1}},
    ),
    "a clean does not plan again after an undo": Variant(
        {"c": stubborn_clean, "u": undo},
        {"c": clean, "u": undo},
        seed=0,
        within=400,
        promises=frozenset({"check"}),
        writes=2,
        grace_s=3_600,
    ),
}


@pytest.mark.long(3)
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_rule_left_out_is_found_and_the_sound_code_passes_the_same(variant: Variant) -> None:
    broken, sound = variant.scenario(variant.broken), variant.scenario(variant.sound)
    seeds = range(variant.seed, variant.seed + variant.within)
    report = explore(broken, seeds)
    failure = report.failure
    assert failure is not None, f"nothing in {report.schedules} schedules"
    print(failure)  # noqa: T201 - the seed, for whoever asks pytest for it
    assert variant.promises & {problem.promise for problem in failure.problems}, str(failure)
    assert failure.seed is not None
    assert replay(broken, failure.seed) is not None
    assert replay(broken, failure.schedule) is not None
    assert replay(sound, failure.seed) is None
    assert replay(sound, failure.schedule) is None
    tried = explore(sound, seeds[:SOUND_MAX])
    assert tried.failure is None, str(tried.failure)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_rule_left_out_is_found_by_going_through_all_with_two_switches(variant: Variant) -> None:
    lossy = 1 if variant.options.get("lock_lost") else 0
    report = explore_all(variant.scenario(variant.broken), switches=2, events=lossy)
    assert report.failure is not None
    print(report.schedules, report.failure)  # noqa: T201 - the same


@pytest.mark.long(4)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_rule_of_a_service_left_out_is_found_and_the_sound_code_passes_the_same(
    fault: Fault,
) -> None:
    with fault.put_in():
        broken = fault.made()
        seeds = range(fault.within)
        report = explore(broken, seeds) if fault.within else explore_all(broken, switches=2)
        failure = report.failure
    assert failure is not None, f"nothing in {report.schedules} schedules"
    print(report.schedules, failure)  # noqa: T201 - for whoever asks pytest for it
    assert fault.promises & {problem.promise for problem in failure.problems}, str(failure)
    sound = fault.made()
    assert replay(sound, failure.schedule) is None
    if failure.seed is not None:
        assert replay(sound, failure.seed) is None


def test_a_lock_that_is_never_lost_hides_that_there_is_no_slot() -> None:
    """INV-11: the broken variant is right until the lock is lost."""
    variant = VARIANTS["lock without slot"]
    kept = Scenario(
        "kept",
        start(1),
        variant.broken,
        check=Check(variant.sound, 1, verified=False),
        oracle=variant.oracle,
        events=CALL_EVENTS[:0],
    )
    report = explore_all(kept, switches=3)
    assert report.complete
    assert report.failure is None, str(report.failure)


def test_decisions_completed_by_a_clock_alone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose idea of the store's clock lies a day behind (RFC 0013)."""
    scenario = Scenario(
        "completed by a clock alone",
        start(1),
        {"a": Writer("a", (0,)), "b": Writer("b", (1,))},
        store_skew_ms={"a": -86_400_000},
    )
    assert explore(scenario, range(5)).failure is None
    monkeypatch.setattr(publishing, "after", lambda now_ms, before_ms, where: now_ms)
    failure = explore(scenario, range(5)).failure
    assert failure is not None
    assert {problem.promise for problem in failure.problems} == {"bounds stay true"}
