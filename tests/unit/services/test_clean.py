"""Clean: what no readable version needs goes, once nobody may need it (INV-05, INV-06)."""

from __future__ import annotations

import pytest

from plait.model.decision import ReadSet
from plait.model.instant import Instant, Operation
from plait.model.request import WriteRequest
from plait.services.clean import clean, plan_clean
from plait.services.verify import verify
from plait.state.checkpoint import list_checkpoints
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import SimClock
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.definition import set_properties
from plait.txn.read_pin import TTL_S, ReadPin
from plait.txn.recovery import roll_back, roll_back_failed
from plait.txn.transaction import OptimisticTransaction
from tests.support.protocol import (
    Phases,
    Work,
    client,
    create,
    listed,
    live_marks,
    memory,
    upsert,
)

LITTLE: dict[str, object] = {
    "clean.retain.time": "0s",
    "clean.grace": "0s",
    "clean.retain.versions": "1",
}


@pytest.fixture
def store(clock: SimClock) -> MemoryStore:
    """Give a table of one bucket, written four times: three files are of the past."""
    made = memory(clock)
    create(made, properties=LITTLE)
    for number in range(4):
        upsert(client(made, clock), mark=str(number))
    clock.advance(1)
    return made


def files(store: Store) -> list[str]:
    return listed(store, "data")


def sound(store: Store) -> None:
    report = verify(client(store), data=False)
    assert report.problems == ()


def test_files_of_the_past_are_condemned_and_deleted(store: MemoryStore, clock: SimClock) -> None:
    """INV-05."""
    report = clean(client(store, clock))
    assert (report.version, len(report.deleted), report.spared) == (5, 3, ())
    assert len(files(store)) == 1
    assert live_marks(store) == ["0", "1", "2", "3"]
    assert client(store).cache.refresh().horizon == 4
    assert set(report.to_dict()) >= {"deleted", "spared", "late", "plan"}
    sound(store)


def test_nothing_is_deleted_before_its_decision(store: MemoryStore, clock: SimClock) -> None:
    """INV-05: the phase `delete` comes after the decision and before the first deletion."""
    seen: list[tuple[int, int]] = []

    def look() -> None:
        seen.append((client(store).cache.refresh().horizon, len(files(store))))

    clean(client(store, clock, observer=Phases(on={"delete": look})))
    assert seen == [(4, 4)]
    assert len(files(store)) == 1


def test_a_clean_with_nothing_to_do_decides_nothing(store: MemoryStore, clock: SimClock) -> None:
    for _ in range(3):
        report = clean(client(store, clock))
    assert report.version is None
    assert client(store).cache.refresh().version == 6  # the second recorded what the first deleted
    sound(store)


def test_a_plan_is_what_is_executed(store: MemoryStore, clock: SimClock) -> None:
    """INV-05: nothing is condemned that the plan does not name."""
    plan = plan_clean(client(store, clock))
    before = listed(store)
    assert len(plan.condemned) == 3
    assert listed(store) == before
    upsert(client(store, clock), mark="later")
    clock.advance(1)
    report = clean(client(store, clock), plan)
    assert sorted(report.deleted) == [path for path, _ in plan.condemned]
    assert len(files(store)) == 2
    assert plan.to_dict()["condemn"] == [path for path, _ in plan.condemned]
    sound(store)


def test_versions_and_times_that_are_retained_stay_readable(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05: whichever keeps more."""
    set_properties(client(store, clock), {"clean.retain.versions": "3"})
    clean(client(store, clock))
    assert client(store).cache.refresh().horizon == 3
    set_properties(client(store, clock), {"clean.retain.versions": "1", "clean.retain.time": "1h"})
    clock.advance(1_800)
    clean(client(store, clock))
    assert client(store).cache.refresh().horizon == 3
    clock.advance(1_801)
    clean(client(store, clock))
    assert client(store).cache.refresh().horizon > 3
    sound(store)


def test_what_a_writer_may_need_is_spared_until_it_is_done(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05."""
    slow = client(store, clock)
    slow.cache.refresh()
    work = Work.begin(slow, [((), 1)])
    upsert(client(store, clock), mark="later")
    clock.advance(1)
    report = clean(client(store, clock))
    assert len(report.spared) == 1
    assert len(report.deleted) == 3
    work.commit()
    assert set(report.spared) <= set(clean(client(store, clock)).deleted)
    sound(store)


def test_a_write_keeps_what_its_older_read_is_compared_with(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05: it names the version that was read, not only the head, before it is staged."""
    request = WriteRequest(Operation.UPSERT, read_set=ReadSet(2, (None,)))
    txn = OptimisticTransaction.begin(client(store, clock), request)
    report = clean(client(store, clock))
    assert (len(report.deleted), len(report.spared)) == (1, 2)
    txn.abort("a test", wrote=False)
    assert set(report.spared) <= set(clean(client(store, clock)).deleted)


def test_what_a_reader_may_need_is_spared_until_its_lease_ends(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05."""
    lease = ReadPin(client(store, clock), 2)
    report = clean(client(store, clock))
    assert (len(report.deleted), len(report.spared)) == (1, 2)
    lease.release()
    assert set(report.spared) <= set(clean(client(store, clock)).deleted)
    assert len(files(store)) == 1
    sound(store)


@pytest.mark.parametrize("body", [b"rubbish", b""])
def test_a_damaged_record_makes_cleaning_wait(
    store: MemoryStore, clock: SimClock, body: bytes
) -> None:
    """INV-05: it protects everything, until it is rolled back as dead."""
    work = Work.begin(client(store, clock), [((), 1)])
    store.put(paths.requested(work.txn.instant), body)
    report = clean(client(store, clock))
    assert report.deleted == ()
    assert len(report.spared) == 3
    clock.advance(130)
    report = clean(client(store, clock))
    assert len(report.rollback.ended) == 1
    assert len(report.deleted) == 3
    sound(store)


def test_a_damaged_lease_makes_cleaning_wait(store: MemoryStore, clock: SimClock) -> None:
    """INV-05."""
    store.put(f"{paths.LEASES}/{7:020d}-{'a' * 16}", b"[" * 100_000)
    assert clean(client(store, clock)).deleted == ()
    clock.advance(TTL_S + 1)
    assert len(clean(client(store, clock)).deleted) == 3


def test_unknown_files_and_those_of_the_living_stay(store: MemoryStore, clock: SimClock) -> None:
    """INV-06."""
    work = Work.begin(client(store, clock), [((), 1)])
    store.put("data/stray.parquet", b"?")
    store.put("elsewhere", b"?")
    clean(client(store, clock))
    assert {*work.hand.written, "data/stray.parquet", "elsewhere"} <= set(listed(store))


def test_late_files_of_the_rolled_back_go(store: MemoryStore, clock: SimClock) -> None:
    """INV-06: they carry the nonce of an instant that was ended."""
    work = Work.begin(client(store, clock), [((), 1)])
    roll_back(client(store, clock), work.txn.instant, reason="test")
    for path in work.hand.written:
        store.put(path, b"late")
    report = clean(client(store, clock))
    assert list(report.late) == work.hand.written
    assert not set(work.hand.written) & set(files(store))


def test_what_a_late_attempt_left_of_a_committed_instant_goes(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: its record leads to it, the decision does not name it, and nothing else goes."""
    work = Work.begin(client(store, clock), [((), 0), ((), 1)])
    body = store.find(paths.requested(work.txn.instant))
    work.commit()
    upsert(client(store, clock), 0)  # what it wrote there is kept for older versions only
    before = files(store)
    late = [path.replace(".base.", "-again.base.") for path in work.hand.written]
    foreign = late[0].replace(work.txn.instant.nonce, "e" * 16)
    for path in (*late, foreign):
        store.put(path, b"late")
    store.put(paths.requested(work.txn.instant), body or b"")  # as each task of Spark does
    report = roll_back_failed(client(store, clock), reason="test")
    assert [(each.outcome, each.files_deleted) for each in report.ended] == [("committed", 2)]
    assert files(store) == sorted([*before, foreign])
    assert load_pending(store) == []
    store.delete([foreign])
    sound(store)


def test_late_manifests_of_the_rolled_back_go(store: MemoryStore, clock: SimClock) -> None:
    """They lie in a directory of their instant; those of others stay."""
    work = Work.begin(client(store, clock))
    roll_back(client(store, clock), work.txn.instant, reason="test")
    late = paths.manifest(work.txn.instant, "a1", "added")
    other = paths.manifest(Instant.at(1, "e" * 16), "a1", "added")
    for path in (late, other):
        store.put(path, b"late")
    report = clean(client(store, clock))
    assert list(report.late) == [late]
    assert store.find(other) is not None


# --- checkpoints ------------------------------------------------------------------------------


@pytest.fixture
def many(clock: SimClock) -> MemoryStore:
    """Give a table with a checkpoint a version, 1 to 6."""
    made = memory(clock)
    create(made, properties={**LITTLE, "checkpoint.interval": "1"})
    handle = client(made, clock)
    for number in range(6):
        upsert(handle, number % 4)
    clock.advance(1)
    assert list_checkpoints(made) == [1, 2, 3, 4, 5, 6]
    return made


def test_the_two_newest_checkpoints_stay(many: MemoryStore, clock: SimClock) -> None:
    """INV-11."""
    clean(client(many, clock))
    clean(client(many, clock))
    assert list_checkpoints(many) == [5, 6]
    assert client(many).cache.snapshot().files.num_rows == 4
    sound(many)


def test_a_damaged_checkpoint_does_not_stop_cleaning(many: MemoryStore, clock: SimClock) -> None:
    """INV-11: checkpoints are collected once there are two whole ones again."""
    many.put(paths.checkpoint(6), b"rubbish")
    report = clean(client(many, clock))
    assert report.deleted
    assert set(list_checkpoints(many)) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("name", ["stray", "x/stray", "1/2/stray", "state.json"])
def test_strange_files_among_checkpoints_do_not_stop_cleaning(
    many: MemoryStore, clock: SimClock, name: str
) -> None:
    """INV-06: they stay."""
    path = f"{paths.CHECKPOINTS}/{name}"
    many.put(path, b"?")
    assert clean(client(many, clock)).deleted
    assert many.find(path) == b"?"


def test_a_clean_brings_the_dead_to_their_end_first(store: MemoryStore, clock: SimClock) -> None:
    """INV-03."""
    work = Work.begin(client(store, clock), [((), 1)])
    clock.advance(1_000)
    report = clean(client(store, clock))
    assert [entry.instant for entry in report.rollback.ended] == [work.txn.instant]
    assert load_pending(store) == []
    sound(store)
