"""Writers, recoverers, cleaners and readers, in every order of their calls to the store.

After each schedule: verify finds nothing (INV-01 to INV-07), what is visible is exactly what was
reported committed (INV-10), and nothing is left behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from plait.errors import ConflictError, InstantExpiredError, RolledBackError
from plait.model.bucket import UNKEYED, BucketId
from plait.model.decision import CommitResult
from plait.model.instant import Operation
from plait.services.clean import clean
from plait.services.rollback import roll_back_failed
from plait.services.upkeep import after_commit
from plait.services.verify import verify
from plait.state.cache import StateCache
from plait.state.state import State
from plait.storage.port import Store
from plait.testing import SimClock
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.lease import Lease
from plait.txn.site import Site
from tests.interleave.schedules import Actor, Outcome, every_schedule
from tests.support.protocol import Work, client, create, listed, live_marks, memory, upsert

LITTLE = {"clean.retain.time": "0s", "clean.retain.versions": "1"}
MORE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 0
"""Switches more than usual: minutes instead of seconds."""
Act = Callable[[Site], object]
"""What an actor does as a client that has the table open already."""


@dataclass(frozen=True)
class Writer:
    """Writes into some buckets."""

    mark: str
    buckets: tuple[int, ...] = (0,)
    on_conflict: str = "raise"

    def __call__(self, site: Site) -> CommitResult:
        unkeyed = self.buckets == (UNKEYED,)
        places: list[BucketId] = [((), number) for number in self.buckets]
        return Work.begin(
            site,
            places,
            mark=self.mark,
            on_conflict=self.on_conflict,
            operation=Operation.APPEND if unkeyed else Operation.UPSERT,
        ).commit()


class Keeper(Writer):
    """Writes, then does what comes along with writing: a checkpoint each time."""

    def __call__(self, site: Site) -> CommitResult:
        result = super().__call__(site)
        after_commit(site)
        return result


def recover(site: Site) -> object:
    """Take everybody for dead."""
    return roll_back_failed(site, reason="taken for dead", everything=True)


def fresh(site: Site) -> None:
    """Open the table as a new client, and read it."""
    read(replace(site, cache=StateCache(site.store, site.ports)))


def read(site: Site) -> None:
    """Read as a scan does: lease, head, files."""
    lease = Lease(site, site.cache.known().version)
    try:
        needed = site.cache.snapshot().files["path"].to_pylist()
        assert [path for path in needed if site.store.find(path) is None] == []
    finally:
        lease.release()


def travel(site: Site) -> str:
    """Read the version that is known, however old; that it was cleaned is an answer."""
    version = site.cache.known().version
    lease = Lease(site, version)
    try:
        needed = site.cache.snapshot(version=version).files["path"].to_pylist()
        assert [path for path in needed if site.store.find(path) is None] == []
    except InstantExpiredError:
        return "expired"
    finally:
        lease.release()
    return "read"


@dataclass(frozen=True)
class Prepared:
    """A table that is made once and copied for each schedule."""

    files: Mapping[str, bytes]
    states: list[State]
    """What a client knows that saw this version last."""
    now_ms: int
    marks: list[str]

    @classmethod
    def make(cls, writes: int, *, keyed: bool, interval: int) -> Prepared:
        clock = SimClock()
        store = memory(clock)
        create(store, keyed=keyed, properties={**LITTLE, "checkpoint.interval": str(interval)})
        site = client(store, clock, nonces="8")
        states = [site.cache.refresh()]
        marks = [f"old{number}" for number in range(writes)]
        for mark in marks:
            upsert(site, 0, mark=mark)
            after_commit(site)
            states.append(site.cache.known())
        files = {path: store.find(path) or b"" for path in listed(store)}
        return cls(files, states, clock.now_ms(), marks)

    def copy(self, acts: Mapping[str, Act], known: int) -> tuple[Store, dict[str, Actor]]:
        clock = SimClock(self.now_ms + 1_000)
        store = memory(clock)
        for path, body in self.files.items():
            store.put(path, body)
        return store, {name: self._actor(name, act, clock, known) for name, act in acts.items()}

    def _actor(self, name: str, act: Act, clock: SimClock, known: int) -> Actor:
        def run(store: Store) -> object:
            site = client(store, clock, nonces=name)
            site.cache.offer(self.states[known])
            return act(site)

        return run


def check(store: Store, outcome: Outcome, acts: Mapping[str, Act], old: list[str]) -> None:
    where = " ".join(outcome.order)
    for error in outcome.errors.values():
        assert isinstance(error, (ConflictError, RolledBackError)), (where, error)
    report = verify(client(store), data=False)
    assert report.problems == (), where
    unnamed = [n for n in report.notes if not n.path.startswith(paths.CHECKPOINTS)]
    assert unnamed == [], where
    assert load_pending(store) == [], where
    committed = [acts[name] for name in acts if name in outcome.results]
    writers = [act for act in committed if isinstance(act, Writer)]
    expected = [mark for writer in writers for mark in [writer.mark] * len(writer.buckets)]
    assert live_marks(store) == sorted([*old, *expected]), where


def run(
    acts: Mapping[str, Act],
    *,
    switches: int,
    writes: int = 0,
    known: int = -1,
    keyed: bool = True,
    interval: int = 50,
) -> list[Outcome]:
    """Run every order; actors know the newest version, or an older one."""
    prepared = Prepared.make(writes, keyed=keyed, interval=interval)
    outcomes = []
    for store, outcome in every_schedule(lambda: prepared.copy(acts, known), switches=switches):
        check(store, outcome, acts, prepared.marks)
        outcomes.append(outcome)
    return outcomes


def refused(outcomes: list[Outcome], name: str) -> int:
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
    outcomes = run(acts, switches=MORE, writes=1)
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


def look(site: Site) -> None:
    """Verify beside the others: what they are doing is no damage."""
    report = verify(site, data=False)
    assert report.problems == ()


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
    alone = len(others) == 1
    outcomes = run({"f": look, **others}, switches=alone + MORE, writes=writes)
    assert all("f" in outcome.results for outcome in outcomes)


@pytest.mark.parametrize("others", [["a"], ["f"]], ids=["writer", "newcomer"])
def test_checkpoints_are_written_and_read_while_others_are_collected(others: list[str]) -> None:
    """INV-11: whoever opens the table meanwhile sees all of it."""
    acts = {"a": Keeper("a", on_conflict="retry"), "c": clean, "f": fresh}
    chosen = acts if MORE else {name: acts[name] for name in [*others, "c"]}
    outcomes = run(chosen, switches=1, writes=4, known=1, interval=1)
    assert all(len(outcome.results) == len(chosen) for outcome in outcomes)


def test_two_writers_of_one_checkpoint() -> None:
    """INV-11."""
    acts = {"a": Keeper("a", (0,)), "b": Keeper("b", (1,))}
    outcomes = run(acts, switches=1 + MORE, writes=1, interval=1)
    assert all(len(outcome.results) == 2 for outcome in outcomes)
