"""Writers, recoverers, cleaners and readers, in every order of their calls to the store.

After each schedule: verify finds nothing (INV-01 to INV-07), what is visible is exactly what was
reported committed (INV-10), and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from plait.errors import ConflictError, RolledBackError
from plait.model.bucket import UNKEYED, BucketId
from plait.model.decision import CommitResult
from plait.model.instant import Operation
from plait.services.clean import clean
from plait.services.rollback import roll_back_failed
from plait.services.verify import verify
from plait.state.state import State
from plait.storage.port import Store
from plait.testing import SimClock
from plait.timeline.pending import load_pending
from plait.txn.lease import Lease
from plait.txn.site import Site
from tests.interleave.schedules import Actor, Outcome, every_schedule
from tests.support.protocol import Work, client, create, listed, live_marks, memory, upsert

LITTLE = {"clean.retain.time": "0s", "clean.retain.versions": "1"}
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


def recover(site: Site) -> object:
    """Take everybody for dead."""
    return roll_back_failed(site, reason="taken for dead", everything=True)


def read(site: Site) -> None:
    """Read as a scan does: lease, head, files."""
    lease = Lease(site, site.cache.known().version)
    try:
        paths = site.cache.snapshot().files["path"].to_pylist()
        assert [path for path in paths if site.store.find(path) is None] == []
    finally:
        lease.release()


@dataclass(frozen=True)
class Prepared:
    """A table that is made once and copied for each schedule."""

    files: Mapping[str, bytes]
    states: list[State]
    """What a client knows that saw this version last."""
    now_ms: int
    marks: list[str]

    @classmethod
    def make(cls, writes: int, *, keyed: bool) -> Prepared:
        clock = SimClock()
        store = memory(clock)
        create(store, keyed=keyed, properties=LITTLE)
        site = client(store, clock, nonces="8")
        states = [site.cache.refresh()]
        marks = [f"old{number}" for number in range(writes)]
        for mark in marks:
            upsert(site, 0, mark=mark)
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
    assert report.notes == (), where
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
) -> list[Outcome]:
    """Run every order; actors know the newest version, or an older one."""
    prepared = Prepared.make(writes, keyed=keyed)
    outcomes = []
    for store, outcome in every_schedule(lambda: prepared.copy(acts, known), switches=switches):
        check(store, outcome, acts, prepared.marks)
        outcomes.append(outcome)
    return outcomes


def refused(outcomes: list[Outcome], name: str) -> int:
    return sum(name in outcome.errors for outcome in outcomes)


def test_two_writers_of_one_bucket_in_every_order() -> None:
    """INV-07: one commits; the other is refused exactly when they overlapped."""
    outcomes = run({"a": Writer("a"), "b": Writer("b")}, switches=99)
    assert len(outcomes) > 100
    assert all(len(outcome.results) >= 1 for outcome in outcomes)
    assert refused(outcomes, "a") and refused(outcomes, "b")
    assert any(len(outcome.results) == 2 for outcome in outcomes)


def test_two_writers_of_one_bucket_that_retry_both_commit() -> None:
    """INV-07, INV-10: no update is lost."""
    actors = {"a": Writer("a", on_conflict="retry"), "b": Writer("b", on_conflict="retry")}
    outcomes = run(actors, switches=3, writes=1)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_two_writers_of_different_buckets_both_commit() -> None:
    """INV-07."""
    outcomes = run({"a": Writer("a", (0, 1)), "b": Writer("b", (2, 3))}, switches=3)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_three_writers_that_overlap_in_part() -> None:
    """INV-07."""
    actors = {
        "a": Writer("a", (0, 1), "retry"),
        "b": Writer("b", (1,), "retry"),
        "c": Writer("c", (2,), "raise"),
    }
    outcomes = run(actors, switches=1)
    assert all(len(outcome.results) == 3 for outcome in outcomes)


def test_two_appends_both_commit() -> None:
    actors = {"a": Writer("a", (UNKEYED,)), "b": Writer("b", (UNKEYED,))}
    outcomes = run(actors, switches=3, keyed=False)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_a_writer_that_is_taken_for_dead_commits_or_is_ended_never_both() -> None:
    """INV-03, INV-06, INV-10."""
    outcomes = run({"a": Writer("a"), "d": recover}, switches=99)
    assert all("d" in outcome.results for outcome in outcomes)
    assert refused(outcomes, "a")
    assert any("a" in outcome.results for outcome in outcomes)


def test_two_recoverers_and_a_writer() -> None:
    """INV-03: the instant is decided once."""
    outcomes = run({"a": Writer("a"), "d": recover, "e": recover}, switches=2)
    assert refused(outcomes, "a")


def test_two_writers_and_a_recoverer() -> None:
    """INV-03, INV-07."""
    actors = {"a": Writer("a", on_conflict="retry"), "b": Writer("b"), "d": recover}
    outcomes = run(actors, switches=1, writes=1)
    assert refused(outcomes, "a") and refused(outcomes, "b")


def test_a_cleaner_never_takes_what_a_writer_needs() -> None:
    """INV-05: the writer reads the files of its base; retention is one version."""
    actors = {"a": Writer("a", on_conflict="retry"), "c": clean}
    outcomes = run(actors, switches=3, writes=2)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_a_cleaner_beside_two_writers() -> None:
    """INV-05, INV-07."""
    actors = {
        "a": Writer("a", on_conflict="retry"),
        "b": Writer("b", on_conflict="retry"),
        "c": clean,
    }
    outcomes = run(actors, switches=1, writes=2)
    assert all(len(outcome.results) == 3 for outcome in outcomes)


def test_a_cleaner_never_takes_what_a_reader_needs() -> None:
    """INV-05: a writer makes the files of the reader's version old meanwhile."""
    actors = {"f": read, "a": Writer("a", on_conflict="retry"), "c": clean}
    outcomes = run(actors, switches=2, writes=1)
    assert all(len(outcome.results) == 3 for outcome in outcomes)


@pytest.mark.parametrize("writes", [2, 3])
def test_two_cleaners_at_once(writes: int) -> None:
    """INV-05: what both condemn is condemned once, and deleted once or twice."""
    outcomes = run({"c": clean, "e": clean}, switches=2, writes=writes)
    assert all(len(outcome.results) == 2 for outcome in outcomes)
