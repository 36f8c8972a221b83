"""Many dead writers cost one decision, and calls in proportion to their number (INV-03, INV-06)."""

from __future__ import annotations

from collections import Counter

import pytest

from plait.errors import RolledBackError
from plait.files.data_file import data_path
from plait.model.bucket import UNKEYED
from plait.model.instant import Instant, Operation, Outcome, State
from plait.services.maintenance.clean import clean
from plait.services.verify.checks import verify
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import CountingStore, SimClock
from plait.timeline import paths
from plait.timeline.codec import SLOT_BYTES_MAX
from plait.timeline.pending import PendingInstant, write_inflight, write_requested
from plait.txn.heartbeat import Heartbeat
from plait.txn.recovery import roll_back, roll_back_failed
from plait.txn.rollback import BATCH_MAX, find_outcome
from tests.support.protocol import Work, client, create, memory, upsert

DAY_S = 24 * 3600


def leave_dead(store: Store, count: int, *, files: bool = True) -> list[Instant]:
    """Leave what so many killed writers leave."""
    instants = [Instant.at(1_600_000_000_000 + n, f"d{n:015x}") for n in range(count)]
    for instant in instants:
        pending = PendingInstant(
            instant,
            State.REQUESTED,
            Operation.APPEND,
            0,
            (),
            host="h",
            pid=1,
            started_ms=1,
            timeout_s=60,
        )
        write_requested(store, pending)
        write_inflight(store, instant, [()], attempt="d1")
        if files:
            store.put(data_path((), UNKEYED, instant, "0-0001", "base"), b"staged")
    return instants


def calls(count: int) -> tuple[Counter[str], int]:
    """Clean a table with so many dead, and count the calls and decisions."""
    clock = SimClock()
    inner = memory(clock)
    create(inner)
    upsert(client(inner, clock))
    leave_dead(inner, count)
    clock.advance(DAY_S)
    store = CountingStore(inner)
    handle = client(store, clock)
    before = handle.cache.refresh().version
    store.reset()
    report = clean(handle)
    assert len(report.rollback.ended) == count
    assert sum(entry.files_deleted for entry in report.rollback.ended) == count
    decisions = handle.cache.refresh().version - before
    return Counter(store.counts()), decisions


def test_a_thousand_dead_cost_one_decision_and_calls_in_proportion() -> None:
    few, one = calls(100)
    many, still_one = calls(1_000)
    assert (one, still_one) == (1, 1)
    assert many["put_if_absent"] == few["put_if_absent"] == 1
    assert many["list"] == few["list"] <= 17
    for name in ("find", "delete"):
        assert many[name] <= 10 * few[name]
    assert many["find"] <= 2 * 2 * 1_000 + 20  # each record, for the dead and for the needed
    assert many["delete"] == 3 * 1_000  # two records and a file each


def test_more_than_a_decision_holds_take_several(store: MemoryStore, clock: SimClock) -> None:
    instants = leave_dead(store, 2 * BATCH_MAX + 1, files=False)
    clock.advance(DAY_S)
    handle = client(store, clock)
    report = roll_back_failed(handle, reason="dead")
    state = handle.cache.refresh()
    assert state.version == 3
    assert {entry.outcome for entry in report.ended} == {"rolled_back"}
    for instant in (instants[0], instants[-1]):
        assert find_outcome(handle, state, instant, -1) is Outcome.ROLLED_BACK
    assert list(store.list(paths.PENDING)) == []
    assert verify(handle, data=False).problems == ()


@pytest.mark.slow
def test_dead_with_many_partitions_take_several_decisions(
    store: MemoryStore, clock: SimClock
) -> None:
    """One decision of them all is larger than what anybody reads, and was refused for ever."""
    names = [f"{'p' * 200}{number:06d}" for number in range(200)]
    instants = leave_dead(store, 120, files=False)
    for number, instant in enumerate(instants):
        places = [(f"{name}{number}",) for name in names]
        write_inflight(store, instant, places, attempt="d2")
    clock.advance(DAY_S)
    handle = client(store, clock)
    report = roll_back_failed(handle, reason="dead")
    assert {entry.instant for entry in report.ended} == set(instants)
    sizes = [info.size for info in store.list(paths.slot(1).rsplit("/", 1)[0])]
    assert len(sizes) == 3, "the table, and two decisions"
    assert max(sizes) < SLOT_BYTES_MAX / 8
    assert list(store.list(paths.PENDING)) == []


def test_each_of_a_batch_is_ended_once_and_who_committed_is_left_out(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-03, INV-10: a writer in the middle of the list hears of it, and cannot commit."""
    result = upsert(client(store))
    write_requested(store, PendingInstant(result.instant, State.REQUESTED, Operation.APPEND, 0, ()))
    work = Work.begin(client(store, clock))
    dead = leave_dead(store, 3)
    clock.advance(DAY_S)
    handle = client(store, clock)
    report = roll_back_failed(handle, reason="test", everything=True)
    outcomes = {entry.instant: entry.outcome for entry in report.ended}
    gone = [*dead, work.txn.instant]
    assert outcomes == {result.instant: "committed", **dict.fromkeys(gone, "rolled_back")}
    heartbeat = Heartbeat(work.txn.handle, work.txn.instant, interval_s=1, since=work.txn.v0)
    heartbeat._beat()
    assert heartbeat.watch.ended_by is not None
    with pytest.raises(RolledBackError):
        work.commit()
    for instant in gone:
        again = roll_back(client(store, clock), instant, reason="again").ended
        assert [entry.outcome for entry in again] == ["rolled_back"]
    assert handle.cache.refresh().version == 2
    assert verify(client(store), data=False).problems == ()
