"""Writers, recoverers, cleaners and readers, in every order of their calls to the store.

After each schedule: the oracle and verify find nothing (INV-01 to INV-07), what is visible is
exactly what was reported committed (INV-10), nothing is left behind, and the table goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    start,
    travel,
)
from tests.scheduler import Act, End, Report, Scenario, each_schedule
from tests.support.effort import MORE


def run(
    acts: Mapping[str, Act],
    *,
    switches: int,
    writes: int = 0,
    known: int = -1,
    keyed: bool = True,
    interval: int = 50,
) -> list[End]:
    """Run every order; actors know the newest version, or an older one."""
    scenario = Scenario(
        ", ".join(acts),
        start(writes, keyed=keyed, interval=interval),
        acts,
        check=Check(acts, writes),
        knows=dict.fromkeys(acts, known),
        oracle=oracle(keyed=keyed),
    )
    report = Report(scenario.name)
    ends = list(each_schedule(scenario, report, switches=switches))
    assert report.failure is None, str(report.failure)
    assert report.complete
    return ends


def refused(outcomes: list[End], name: str) -> int:
    return sum(name in outcome.errors for outcome in outcomes)


def test_two_writers_of_one_bucket_commit_one_by_one_or_once() -> None:
    """INV-07: a writer is refused exactly when the two overlapped."""
    outcomes = run({"a": Writer("a"), "b": Writer("b")}, switches=2 + MORE)
    assert all(outcome.results for outcome in outcomes)
    assert refused(outcomes, "a")
    assert refused(outcomes, "b")
    assert any(len(outcome.results) == 2 for outcome in outcomes)


def test_two_writers_of_one_bucket_that_retry_both_commit() -> None:
    """INV-07, INV-10: no update is lost."""
    acts = {"a": Writer("a", on_conflict="retry"), "b": Writer("b", on_conflict="retry")}
    outcomes = run(acts, switches=2 + MORE, writes=1)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_two_writers_of_different_buckets_both_commit() -> None:
    """INV-07."""
    outcomes = run({"a": Writer("a", (0, 1)), "b": Writer("b", (2, 3))}, switches=2 + MORE)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_three_writers_that_overlap_in_part() -> None:
    """INV-07."""
    acts = {
        "a": Writer("a", (0, 1), "retry"),
        "b": Writer("b", (1,), "retry"),
        "c": Writer("c", (2,), "raise"),
    }
    outcomes = run(acts, switches=1 + MORE)
    assert all(len(outcome.results) == 3 for outcome in outcomes)


def test_appends_all_commit() -> None:
    acts = {name: Writer(name, (UNKEYED,)) for name in "ab"}
    outcomes = run(acts, switches=2 + MORE, keyed=False)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_a_writer_that_is_taken_for_dead_commits_or_is_ended_never_both() -> None:
    """INV-03, INV-06, INV-10."""
    outcomes = run({"a": Writer("a"), "d": recover}, switches=2 + MORE)
    assert all("d" in outcome.results for outcome in outcomes)
    assert refused(outcomes, "a")
    assert any("a" in outcome.results for outcome in outcomes)


def test_a_stale_writer_that_is_taken_for_dead() -> None:
    """INV-03: its own end may lie before its base."""
    outcomes = run({"a": Writer("a"), "d": recover}, switches=2 + MORE, writes=2, known=0)
    assert refused(outcomes, "a")


def test_two_recoverers_and_a_writer() -> None:
    """INV-03: the instant is decided once."""
    outcomes = run({"a": Writer("a"), "d": recover, "e": recover}, switches=1 + MORE)
    assert refused(outcomes, "a")


def test_two_writers_and_a_recoverer() -> None:
    """INV-03, INV-07."""
    acts = {"a": Writer("a", on_conflict="retry"), "b": Writer("b"), "d": recover}
    outcomes = run(acts, switches=1 + MORE, writes=1)
    assert refused(outcomes, "a")
    assert refused(outcomes, "b")


@pytest.mark.parametrize("known", [-1, 0])
def test_a_cleaner_never_takes_what_a_writer_needs(known: int) -> None:
    """INV-05: retention is one version, and the writer reads the files of its base."""
    acts = {"a": Writer("a", on_conflict="retry"), "c": clean}
    outcomes = run(acts, switches=1 + MORE, writes=2, known=known)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_a_cleaner_beside_two_writers() -> None:
    """INV-05, INV-07."""
    acts = {
        "a": Writer("a", on_conflict="retry"),
        "b": Writer("b", on_conflict="retry"),
        "c": clean,
    }
    outcomes = run(acts, switches=1 + MORE, writes=1)
    assert all(len(outcome.results) == 3 for outcome in outcomes)


def test_a_cleaner_never_takes_what_a_reader_needs() -> None:
    """INV-05: a writer makes the files of the reader's version old meanwhile."""
    acts = {"f": read, "a": Writer("a", on_conflict="retry"), "c": clean}
    outcomes = run(acts, switches=1 + MORE, writes=1)
    assert all(len(outcome.results) == 3 for outcome in outcomes)


def test_a_cleaner_never_takes_what_a_reader_of_an_old_version_was_promised() -> None:
    """INV-05: the reader finds every file, or hears that the version is cleaned."""
    outcomes = run({"f": travel, "c": clean}, switches=2 + MORE, writes=2, known=1)
    answers = {outcome.results["f"] for outcome in outcomes}
    assert answers == {"read", "expired"}


def test_two_cleaners_at_once() -> None:
    """INV-05: what both condemn is condemned once, and deleted once or twice."""
    outcomes = run({"c": clean, "e": clean}, switches=1 + MORE, writes=2)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


@pytest.mark.parametrize(
    ("others", "writes"),
    [
        ({"a": Writer("a")}, 1),
        ({"c": clean}, 2),
        ({"a": Writer("a"), "d": recover}, 0),
    ],
    ids=["writer", "cleaner", "recoverer"],
)
def test_verify_takes_nothing_for_damage_that_happens_beside_it(
    others: Mapping[str, Act], writes: int
) -> None:
    """INV-04 to INV-06."""
    outcomes = run({"f": look, **others}, switches=1 + MORE, writes=writes)
    assert all("f" in outcome.results for outcome in outcomes)


@pytest.mark.parametrize("others", [["a"], ["f"]], ids=["writer", "newcomer"])
def test_checkpoints_are_written_and_read_while_others_are_collected(others: list[str]) -> None:
    """INV-11: whoever opens the table meanwhile sees all of it."""
    acts = {"a": Writer("a", on_conflict="retry"), "c": clean, "f": fresh}
    chosen = acts if MORE else {name: acts[name] for name in [*others, "c"]}
    outcomes = run(chosen, switches=1, writes=4, known=1, interval=1)
    assert all(len(outcome.results) == len(chosen) for outcome in outcomes)


def test_two_writers_of_one_checkpoint() -> None:
    """INV-11."""
    acts = {"a": Writer("a", (0,)), "b": Writer("b", (1,))}
    outcomes = run(acts, switches=1 + MORE, writes=1, interval=1)
    assert all(len(outcome.results) == 2 for outcome in outcomes)
