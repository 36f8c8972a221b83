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
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import SimClock
from plait.timeline.pending import load_pending
from plait.txn.lease import Lease
from tests.interleave.schedules import Actor, Outcome, every_schedule
from tests.support.protocol import Work, client, create, listed, live_marks, memory, upsert

LITTLE = {"clean.retain.time": "0s", "clean.retain.versions": "1"}


@dataclass(frozen=True)
class Writer:
    """Writes into some buckets; ``known`` is the version that it saw last."""

    name: str
    buckets: tuple[int, ...] = (0,)
    on_conflict: str = "raise"

    def __call__(self, store: Store) -> CommitResult:
        unkeyed = self.buckets == (UNKEYED,)
        places: list[BucketId] = [((), number) for number in self.buckets]
        return Work.begin(
            client(store, nonces=self.name),
            places,
            mark=self.name,
            on_conflict=self.on_conflict,
            operation=Operation.APPEND if unkeyed else Operation.UPSERT,
        ).commit()


def recoverer(name: str) -> Actor:
    """Takes everybody for dead."""
    return lambda store: roll_back_failed(
        client(store, nonces=name), reason="taken for dead", everything=True
    )


def cleaner(name: str) -> Actor:
    return lambda store: clean(client(store, nonces=name))


def reader(store: Store) -> list[str]:
    """Read as a scan does: lease, head, files."""
    site = client(store, nonces="9")
    lease = Lease(site, site.cache.known().version)
    try:
        paths = site.cache.snapshot().files["path"].to_pylist()
        missing = [path for path in paths if store.find(path) is None]
        assert missing == []
    finally:
        lease.release()
    return paths  # type: ignore[no-any-return]  # pyarrow


def prepared(writes: int, *, keyed: bool = True) -> Callable[[], MemoryStore]:
    """Make a table once; give a function that copies it."""
    clock = SimClock()
    original = memory(clock)
    create(original, keyed=keyed, properties=LITTLE)
    for number in range(writes):
        upsert(client(original, clock, nonces="8"), 0, mark=f"old{number}")
    files = {path: original.find(path) or b"" for path in listed(original)}

    def copy() -> MemoryStore:
        store = memory(SimClock(clock.now_ms() + 1_000))
        for path, body in files.items():
            store.put(path, body)
        return store

    return copy


def check(store: Store, outcome: Outcome, writers: Mapping[str, Writer], old: list[str]) -> None:
    where = " ".join(outcome.order)
    unexpected = {n: e for n, e in outcome.errors.items() if not isinstance(e, (ConflictError, RolledBackError))}
    assert unexpected == {}, where
    report = verify(client(store), data=False)
    assert report.problems == (), where
    assert report.notes == (), where
    assert load_pending(store) == [], where
    committed = [writers[name] for name in writers if name in outcome.results]
    expected = [mark for writer in committed for mark in [writer.name] * len(writer.buckets)]
    assert live_marks(store) == sorted([*old, *expected]), where


def run(
    actors: Mapping[str, Actor], *, switches: int, writes: int = 0, keyed: bool = True
) -> list[Outcome]:
    copy = prepared(writes, keyed=keyed)
    writers = {name: actor for name, actor in actors.items() if isinstance(actor, Writer)}
    old = [f"old{number}" for number in range(writes)]
    outcomes = []
    for store, outcome in every_schedule(lambda: (copy(), actors), switches=switches):
        check(store, outcome, writers, old)
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
    outcomes = run({"a": Writer("a"), "d": recoverer("d")}, switches=99)
    assert all("d" in outcome.results for outcome in outcomes)
    assert refused(outcomes, "a")
    assert any("a" in outcome.results for outcome in outcomes)


def test_two_recoverers_and_a_writer() -> None:
    """INV-03: the instant is decided once."""
    outcomes = run({"a": Writer("a"), "d": recoverer("d"), "e": recoverer("e")}, switches=2)
    assert refused(outcomes, "a")


def test_two_writers_and_a_recoverer() -> None:
    """INV-03, INV-07."""
    actors = {"a": Writer("a", on_conflict="retry"), "b": Writer("b"), "d": recoverer("d")}
    outcomes = run(actors, switches=1, writes=1)
    assert refused(outcomes, "a") and refused(outcomes, "b")


def test_a_cleaner_never_takes_what_a_writer_needs() -> None:
    """INV-05: the writer reads the files of its base; retention is one version."""
    actors = {"a": Writer("a", on_conflict="retry"), "c": cleaner("c")}
    outcomes = run(actors, switches=3, writes=2)
    assert all(len(outcome.results) == 2 for outcome in outcomes)


def test_a_cleaner_beside_two_writers() -> None:
    """INV-05, INV-07."""
    actors = {
        "a": Writer("a", on_conflict="retry"),
        "b": Writer("b", on_conflict="retry"),
        "c": cleaner("c"),
    }
    outcomes = run(actors, switches=1, writes=2)
    assert all(len(outcome.results) == 3 for outcome in outcomes)


def test_a_cleaner_never_takes_what_a_reader_needs() -> None:
    """INV-05: a writer makes the files of the reader's version old meanwhile."""
    actors = {"r": reader, "a": Writer("a", on_conflict="retry"), "c": cleaner("c")}
    outcomes = run(actors, switches=2, writes=1)
    assert all(len(outcome.results) == 3 for outcome in outcomes)


@pytest.mark.parametrize("writes", [2, 3])
def test_two_cleaners_at_once(writes: int) -> None:
    """INV-05: what both condemn is condemned once, and deleted once or twice."""
    outcomes = run({"c": cleaner("c"), "e": cleaner("e")}, switches=2, writes=writes)
    assert all(len(outcome.results) == 2 for outcome in outcomes)
