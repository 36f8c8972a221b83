"""Recovery: the dead are ended once, the living spared, the committed believed (INV-03, INV-06)."""

from __future__ import annotations

import pytest

from plait.errors import IllegalTransitionError, InstantNotFoundError
from plait.model.instant import Instant
from plait.services.verify.checks import verify
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import (
    CountingStore,
    Fault,
    FaultStore,
    ManualBackground,
    SimClock,
    SimulatedCrashError,
)
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.recovery import list_pending, roll_back, roll_back_failed
from tests.support.protocol import Work, client, create, listed, live_marks, memory, upsert

DEAD_S = 121.0


def dead(store: Store, clock: SimClock, *faults: Fault) -> Work:
    """Give a writer that died with files staged, long ago."""
    work = Work.begin(client(store, clock), mark="dead")
    clock.advance(DEAD_S)
    return work


def unfinished(store: Store, clock: SimClock) -> Work:
    """Give a writer that died between its slot and the end."""
    faults = FaultStore(store)
    work = Work.begin(client(faults, clock), mark="unfinished")
    faults._script.append(Fault("crash_after", "put_if_absent", "*timeline*"))
    with pytest.raises(SimulatedCrashError):
        work.commit()
    return work


def over(store: Store) -> None:
    report = verify(client(store), data=False)
    assert report.problems == ()
    assert report.notes == ()
    assert load_pending(store) == []


def test_a_dead_writer_is_rolled_back_and_its_files_go(store: MemoryStore, clock: SimClock) -> None:
    """INV-03, INV-06: and no others, although many committed since."""
    work = dead(store, clock)
    for _ in range(3):
        upsert(client(store), 0, mark="alive")
    alive = Work.begin(client(store, clock), mark="alive")
    store.put("data/stray.parquet", b"?")
    kept = {*listed(store, "data")} - {*work.hand.written}
    report = roll_back_failed(client(store, clock), reason="test")
    (ended,) = report.ended
    assert ended.instant == work.txn.instant
    told = {"instant": str(ended.instant), "outcome": "rolled_back", "files_deleted": 1}
    assert report.to_dict() == {"ended": [told], "spared": [str(alive.txn.instant)]}
    assert {*listed(store, "data")} == kept
    assert live_marks(store) == ["alive"] * 3
    assert client(store).cache.refresh().version == 4
    store.delete(["data/stray.parquet"])
    alive.txn.abort("test")
    over(store)


def test_a_living_writer_is_spared(store: MemoryStore, clock: SimClock) -> None:
    """INV-06: and longer than the time-out if its heartbeat goes on."""
    background = ManualBackground()
    work = Work.begin(client(store, clock, background=background))
    for _ in range(3):
        clock.advance(119)
        report = roll_back_failed(client(store, clock), reason="test")
        assert (report.ended, report.spared) == ((), (work.txn.instant,))
        background.run()
    work.commit()
    over(store)


def test_each_writer_is_judged_by_its_own_timeout(clock: SimClock) -> None:
    """INV-06: the option may have changed since it began."""
    store = memory(clock)
    create(store, properties={"heartbeat.timeout": "1000s"})
    work = Work.begin(client(store, clock))
    clock.advance(900)
    (entry,) = list_pending(client(store, clock))
    assert entry.alive
    assert (entry.silent_ms, entry.operation, entry.v0) == (900_000, "upsert", 0)
    assert entry.to_dict()["instant"] == str(work.txn.instant)


def test_a_store_that_cannot_tell_ages_lets_everybody_live(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: death is never guessed."""

    class Ageless(CountingStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            for info in super().list(prefix):
                yield type(info)(info.path, info.size, None)

    dead(store, clock)
    report = roll_back_failed(client(Ageless(store), clock), reason="test")
    assert report.ended == ()
    assert len(report.spared) == 1


@pytest.mark.parametrize("make", [dead, unfinished])
def test_a_recovery_that_is_killed_anywhere_is_finished_by_the_next(make: object) -> None:
    """INV-03, INV-06: before each call, which is after the one before it."""
    for nth in range(1, 40):
        clock = SimClock()
        store = memory(clock)
        create(store)
        upsert(client(store, clock), 0, mark="before")
        work = make(store, clock)  # type: ignore[operator]  # one of the two above
        clock.advance(DEAD_S)
        faults = FaultStore(store)
        recoverer = client(faults, clock)
        recoverer.cache.known()
        faults._script.append(Fault("crash_before", nth=nth))
        try:
            roll_back_failed(recoverer, reason="killed")
        except SimulatedCrashError:
            upsert(client(store, clock), 1, mark="between")
            roll_back_failed(client(store, clock), reason="next")
            over(store)
            committed = make is unfinished
            expected = ["before", "between"] + (["unfinished"] if committed else [])
            assert live_marks(store) == sorted(expected)
            ended = client(store).cache.refresh().commits(store)["ended"].to_pylist()
            assert ended.count(str(work.txn.instant)) == (0 if committed else 1)
        else:
            assert nth > 5
            return
    pytest.fail("recovery did not end")


def test_recovery_lists_only_the_partitions_that_records_name(clock: SimClock) -> None:
    """INV-06: never the table."""
    store = memory(clock)
    create(store, partition_by=("day",))
    for day in "abcdef":
        Work.begin(client(store, clock), [((day,), 0)]).commit()
    work = Work.begin(client(store, clock), [(("b",), 0)])
    clock.advance(DEAD_S)
    counting = CountingStore(store)
    recoverer = client(counting, clock)
    recoverer.cache.known()
    counting.reset()
    roll_back_failed(recoverer, reason="test")
    lists = [call.path for call in counting.calls if call.operation == "list"]
    mine = paths.manifests(work.txn.instant)
    assert {path.split("~")[0] for path in lists} == {paths.PENDING, paths.HEARTBEATS, mine, "b"}
    over(store)


def test_manifests_of_the_dead_go_too(clock: SimClock) -> None:
    """INV-06: a writer may die between its manifests and its slot."""
    store = memory(clock)
    create(store, buckets=300)
    upsert(client(store, clock), *range(300))
    faults = FaultStore(store)
    work = Work.begin(client(faults, clock), [((), number) for number in range(300)])
    faults._script.append(Fault("crash_before", "put_if_absent", "*timeline*"))
    with pytest.raises(SimulatedCrashError):
        work.commit()
    assert len(listed(store, paths.MANIFESTS)) == 5
    clock.advance(DEAD_S)
    roll_back_failed(client(store, clock), reason="test")
    assert len(listed(store, paths.MANIFESTS)) == 2
    over(store)


def test_damaged_records_end_too_and_nothing_is_deleted_in_their_name(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: no partition is known but that of every table without partitions."""
    instant = Instant.at(clock.now_ms(), "a" * 16)
    store.put(paths.requested(instant), b"rubbish")
    clock.advance(DEAD_S)
    (ended,) = roll_back_failed(client(store, clock), reason="test").ended
    assert (ended.instant, ended.outcome) == (instant, "rolled_back")
    over(store)


# --- by name ------------------------------------------------------------------------------------


def test_an_instant_named_is_rolled_back_dead_or_alive(store: MemoryStore, clock: SimClock) -> None:
    """INV-03."""
    work = Work.begin(client(store, clock))
    for files_deleted in (1, 0):
        (ended,) = roll_back(client(store, clock), work.txn.instant, reason="asked for").ended
        assert (ended.outcome, ended.files_deleted) == ("rolled_back", files_deleted)
    over(store)
    with pytest.raises(InstantNotFoundError):
        roll_back(client(store), Instant.at(1, "a" * 16), reason="asked for")


@pytest.mark.parametrize("finished", [True, False])
def test_a_committed_instant_is_not_rolled_back(
    store: MemoryStore, clock: SimClock, *, finished: bool
) -> None:
    """INV-03."""
    work = unfinished(store, clock)
    if finished:
        roll_back_failed(client(store, clock), reason="test")
    with pytest.raises(IllegalTransitionError) as caught:
        roll_back(client(store, clock), work.txn.instant, reason="asked for")
    assert caught.value.state == "committed"
    assert live_marks(store) == ["unfinished"]
