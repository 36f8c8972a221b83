"""Scenarios with events: long ones to draw schedules of from seeds, short ones to go through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plait.model.bucket import UNKEYED
from plait.services.maintenance.clean import clean
from plait.txn.read_pin import TTL_S
from tests.interleave.actors import (
    DAY_MS,
    ArchiveCheck,
    Check,
    RestoreCheck,
    Writer,
    change_nothing,
    fresh,
    oracle,
    put_away,
    read,
    recover,
    recover_dead,
    retrying,
    save,
    start,
    sweep,
    take_back,
    travel,
    undo,
)
from tests.interleave.altering import altering_scenarios
from tests.interleave.publishing import publishing_scenarios
from tests.interleave.real import compacting, compacting_one, real, undoing
from tests.interleave.rebuilding import rebuilding
from tests.interleave.sending import sending_scenarios
from tests.interleave.sinking import sinking_scenarios
from tests.interleave.sourcing import sourcing_scenarios
from tests.interleave.streaming import stream_scenarios
from tests.scheduler import CALL_EVENTS, Act, Scenario
from tests.support.effort import MORE

VERIFIED = MORE
SILENCE_S = 121.0
"""Longer than a heartbeat may be silent."""


def scenario(
    name: str,
    acts: Mapping[str, Act],
    *,
    writes: int = 1,
    keyed: bool = True,
    interval: int = 50,
    grace_s: int = 0,
) -> Scenario:
    """Make a scenario in which everything may happen."""
    return Scenario(
        name,
        start(writes, keyed=keyed, interval=interval, grace_s=grace_s),
        acts,
        check=Check(acts, writes, verified=VERIFIED),
        events=CALL_EVENTS,
        events_max=3,
        jumps=(SILENCE_S,),
        beats=1,
        lock_lost=True,
        oracle=oracle(keyed=keyed),
    )


def restoring(name: str, acts: Mapping[str, Act]) -> Scenario:
    """Make a scenario in which commits are undone."""
    made = scenario(name, acts, writes=3)
    return replace(made, check=RestoreCheck(acts, 3, verified=VERIFIED))


def archiving(name: str, acts: Mapping[str, Act], *, stale: bool = False) -> Scenario:
    """Make a scenario in which decisions leave their slots; a stale writer knows version 0."""
    made = scenario(name, acts, writes=3, interval=1)
    return replace(
        made,
        check=ArchiveCheck(Check(acts, 3, verified=VERIFIED)),
        oracle=replace(made.oracle, archived=True),
        knows={"a": 0} if stale else {},
    )


def plain(made: Scenario) -> Scenario:
    """Leave calls and what may happen to them."""
    return replace(made, beats=0, jumps=(), lock_lost=False)


def scenarios() -> dict[str, Scenario]:
    """Make the long ones anew, by name."""
    every = (
        scenario(
            "three writers",
            {"a": retrying("a", 0, 1), "b": retrying("b", 1), "c": Writer("c", (0, 2))},
        ),
        scenario(
            "writers and a recoverer",
            {"a": retrying("a"), "b": Writer("b"), "d": recover_dead},
        ),
        scenario("a writer taken for dead twice", {"a": retrying("a"), "d": recover, "e": recover}),
        replace(
            scenario(
                "a stale writer, a recoverer, a cleaner",
                {"a": retrying("a"), "d": recover_dead, "c": clean},
                writes=3,
            ),
            knows={"a": 0, "d": 1},
        ),
        scenario(
            "two writers and two cleaners",
            {"a": retrying("a"), "b": retrying("b"), "c": clean, "e": clean},
            writes=2,
        ),
        replace(
            scenario(
                "readers, a writer, a cleaner",
                {"a": retrying("a"), "c": clean, "f": read, "g": travel},
                writes=2,
            ),
            knows={"f": 1, "g": 1},
            jumps=(SILENCE_S, TTL_S + 1),
        ),
        replace(
            scenario(
                "checkpoints and a newcomer",
                {"a": Writer("a", (0,), "retry"), "c": clean, "f": fresh},
                writes=3,
                interval=1,
            ),
            jumps=(),
        ),
        scenario(
            "appends",
            {name: Writer(name, (UNKEYED,)) for name in "abc"},
            writes=0,
            keyed=False,
        ),
        replace(
            scenario(
                "clocks a day apart",
                {"a": retrying("a"), "b": retrying("b"), "d": recover_dead, "c": clean},
            ),
            store_skew_ms={"a": DAY_MS, "d": -DAY_MS},
            skew_ms={"b": -DAY_MS, "c": DAY_MS},
        ),
        scenario(
            "writers that change nothing and a recoverer",
            {"a": change_nothing, "e": change_nothing, "b": retrying("b"), "d": recover_dead},
        ),
        scenario(
            "two recoverers and two writers",
            {"a": retrying("a"), "b": retrying("b"), "d": recover, "e": recover_dead},
        ),
        scenario(
            "two writers, a recoverer, a cleaner, an undo",
            {"a": retrying("a"), "b": retrying("b"), "d": recover_dead, "c": clean, "u": undo},
            writes=3,
            grace_s=3_600,
        ),
        replace(
            scenario(
                "two cleaners, an undo, a reader of an old version",
                {"c": clean, "e": clean, "u": undo, "f": travel},
                writes=3,
                interval=1,
                grace_s=3_600,
            ),
            knows={"f": 2},
        ),
        scenario(
            "two writers, a recoverer, a remover of foreign files",
            {"a": retrying("a"), "b": Writer("b"), "d": recover_dead, "g": sweep},
        ),
        restoring(
            "two writers, a recoverer, a restorer",
            {"a": retrying("a"), "b": Writer("b"), "d": recover_dead, "r": take_back},
        ),
        restoring(
            "a writer, a cleaner, a savepoint, two restorers",
            {"a": retrying("a"), "c": clean, "s": save, "r": take_back, "t": take_back},
        ),
        archiving(
            "two writers, a recoverer, a cleaner, an archive",
            {"a": retrying("a"), "b": Writer("b"), "d": recover, "c": clean, "h": put_away},
        ),
        archiving(
            "a stale writer, a recoverer, two archives",
            {"a": retrying("a"), "d": recover_dead, "h": put_away, "i": put_away},
            stale=True,
        ),
        real("cow"),
        real("mor"),
        compacting(),
        undoing(),
        rebuilding("cow"),
        rebuilding("mor"),
        *stream_scenarios(),
        *feature_scenarios(),
    )
    return {each.name: each for each in every}


def feature_scenarios() -> tuple[Scenario, ...]:
    """Make those of changes of columns, repushes, sinks and publications anew."""
    return (
        *altering_scenarios(),
        *sourcing_scenarios(),
        *sinking_scenarios(),
        *sending_scenarios(),
        *publishing_scenarios(),
    )


def short_scenarios() -> dict[str, Scenario]:
    """Make the short ones anew, by name."""
    every = (
        plain(scenario("two writers", {"a": retrying("a"), "b": Writer("b")})),
        plain(scenario("a writer and a recoverer", {"a": Writer("a"), "d": recover})),
        replace(
            scenario("a writer that falls silent", {"a": Writer("a"), "d": recover_dead}),
            events=(),
            lock_lost=False,
        ),
        replace(
            scenario(
                "a stale writer and a recoverer", {"a": retrying("a"), "d": recover}, writes=2
            ),
            knows={"a": 0},
            jumps=(),
            lock_lost=False,
        ),
        replace(
            plain(
                scenario(
                    "a reader of an old version and a cleaner",
                    {"f": travel, "c": clean},
                    writes=2,
                )
            ),
            knows={"f": 1},
        ),
        plain(
            scenario(
                "two appends",
                {name: Writer(name, (UNKEYED,)) for name in "ab"},
                writes=0,
                keyed=False,
            )
        ),
        plain(
            scenario(
                "a writer that changes nothing",
                {"a": change_nothing, "d": recover},
            )
        ),
        plain(scenario("a cleaner and an undo", {"c": clean, "u": undo}, writes=2, grace_s=3_600)),
        plain(scenario("a writer and a remover of foreign files", {"a": Writer("a"), "g": sweep})),
        plain(scenario("a writer and a cleaner", {"a": retrying("a"), "c": clean}, writes=2)),
        compacting_one(),
        plain(restoring("a writer and a restorer", {"a": retrying("a"), "r": take_back})),
        plain(restoring("a cleaner and a savepoint", {"c": clean, "s": save})),
        replace(
            scenario("a lock that is lost", {"a": retrying("a"), "b": retrying("b")}),
            events=(),
            beats=0,
            jumps=(),
        ),
    )
    return {each.name: each for each in every}
