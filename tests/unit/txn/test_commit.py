"""Two writers, every way it can go: who commits, who is refused, and what is left behind."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from plait.errors import (
    CommitRetriesExhaustedError,
    RetryableConflictError,
    RolledBackError,
    StorageError,
)
from plait.model.bucket import UNKEYED, BucketId, partition_path
from plait.model.decision import SCOPE_PARTITIONS, SCOPE_TABLE, Scope
from plait.model.instant import Operation, Outcome
from plait.services.verify.checks import verify
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import CountingStore, Fault, FaultStore, ManualBackground, SimClock
from plait.timeline import paths
from plait.timeline.log import Timeline
from plait.timeline.pending import load_pending, write_inflight
from plait.txn.rollback import publish_rollback
from plait.txn.transaction import AlreadyCommitted
from tests.support.protocol import (
    NoLock,
    Work,
    client,
    create,
    listed,
    live_marks,
    memory,
    upsert,
)

ZERO: BucketId = ((), 0)


@pytest.fixture
def store() -> MemoryStore:
    made = memory()
    create(made)
    return made


def sound(store: Store, *, pending: int = 0) -> None:
    report = verify(client(store), data=False)
    assert report.problems == ()
    assert len(load_pending(store)) == pending
    assert pending or report.notes == ()


# --- two writers ----------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [True, False], ids=["other buckets", "appends without keys"])
def test_writers_that_do_not_meet_all_commit(*, keyed: bool) -> None:
    """INV-03, INV-07: none redoes anything; the nonce makes names unique, the slot times."""
    store = memory()
    create(store, keyed=keyed)
    clients = [client(store, SimClock()) for _ in range(4)]
    operation = Operation.UPSERT if keyed else Operation.APPEND
    works = [
        Work.begin(each, [((), n if keyed else UNKEYED)], operation=operation, mark=str(n))
        for n, each in enumerate(clients)
    ]
    assert len({work.txn.instant.time for work in works}) == 1
    results = [work.commit() for work in works]
    assert [(r.version, r.attempts, r.rebased) for r in results] == [
        (1, 1, 0),
        *((version, 2, 0) for version in (2, 3, 4)),
    ]
    assert [r.instant.nonce for r in results] == [w.txn.instant.nonce for w in works]
    assert len({r.instant.time for r in results}) == 4
    asked = [each.lock.asked for each in clients if isinstance(each.lock, NoLock)]
    assert asked == [0, 1, 1, 1], "only after a loss"
    assert live_marks(store) == ["0", "1", "2", "3"]
    sound(store)


def test_a_commit_of_several_processes_removes_the_records_of_all(store: MemoryStore) -> None:
    """The tasks of a job wrote their own; those of other instants stay."""
    work, other = Work.begin(client(store)), Work.begin(client(store), [((), 1)])
    work.txn.distributed = True
    for attempt in ("task-1", "task-2"):
        write_inflight(store, work.txn.instant, [()], attempt=attempt)
    work.commit()
    assert [pending.instant for pending in load_pending(store)] == [other.txn.instant]


def test_the_second_writer_of_a_bucket_is_refused_naming_the_winner(store: MemoryStore) -> None:
    """INV-06, INV-07: its files go by name, and only after its rollback is decided."""
    faults = FaultStore(store)
    counting = CountingStore(faults)
    one, other = Work.begin(client(store), mark="winner"), Work.begin(client(counting))
    won = one.commit()

    def decided() -> None:
        last = Timeline(store).find(2)
        assert last is not None
        assert [each.instant for each in last.rolled_back] == [other.txn.instant]

    faults._script.append(Fault("step", "delete", "data/*", run=decided))
    counting.reset()
    with pytest.raises(RetryableConflictError) as caught:
        other.commit()
    error = caught.value
    assert (error.theirs, error.version) == (str(won.instant), won.version)
    assert error.ours == str(other.txn.instant)
    assert error.file_groups == ["data/0"]
    assert (error.operation, error.verdict) == ("upsert", "retry")
    assert all(fault._seen for fault in faults._script)
    assert counting.count("list") == 0, "its partition may have very many others"
    assert live_marks(store) == ["winner"]
    assert not set(other.hand.written) & set(listed(store))
    sound(store)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("error", "put_if_absent", nth=2, times=99),
        Fault("error", "delete", "data*", times=99),
        Fault("error", "delete", f"{paths.PENDING}/*", times=99),
    ],
    ids=["decide its rollback", "delete its files", "delete its records"],
)
def test_a_loser_is_told_of_the_conflict_even_if_it_cannot(
    store: MemoryStore, fault: Fault
) -> None:
    """INV-06, INV-10: what is left goes with recovery; before the decision nothing is deleted."""
    clock = SimClock()
    faults = FaultStore(store, [replace(fault)], clock=clock)
    one, other = Work.begin(client(store)), Work.begin(client(faults, clock))
    one.commit()
    with pytest.raises(RetryableConflictError):
        other.commit()
    kept = fault.path != f"{paths.PENDING}/*"
    assert (set(other.hand.written) <= set(listed(store))) is kept
    sound(store, pending=1)


def test_retry_redoes_only_the_buckets_that_meet(store: MemoryStore) -> None:
    """INV-07: the file of the other bucket is committed as it was staged first."""
    upsert(client(store), 0, 1, 2, mark="base")
    one = Work.begin(client(store), [((), 1)], mark="one")
    other = Work.begin(client(store), [((), 0), ((), 1)], mark="other", on_conflict="retry")
    one.commit()
    result = other.commit()
    assert (result.version, result.rebased) == (3, 1)
    assert other.hand.rounds == [None, frozenset({((), 1)})]
    assert live_marks(store) == sorted(["base"] * 3 + ["one"] + ["other"] * 2)
    decision = Timeline(store).find(3)
    assert decision is not None
    assert decision.base == 2
    assert decision.client["began"] == 1
    assert decision.changes.garbage["path"].to_pylist() == [other.hand.written[1]]
    sound(store)


def test_retries_are_bounded_by_count(store: MemoryStore) -> None:
    """Everything that repeats has a limit; the last conflict is told."""
    create_again = memory()
    create(create_again, properties={"commit.retries": "2"})
    work = Work.begin(client(create_again), on_conflict="retry")
    stage = work.hand.stage

    def again(*args: object) -> object:
        upsert(client(create_again), 0)
        return stage(*args)  # type: ignore[arg-type]  # passed on

    work.hand.stage = again  # type: ignore[method-assign,assignment]  # a step between
    upsert(client(create_again), 0)
    with pytest.raises(CommitRetriesExhaustedError) as caught:
        work.commit()
    assert isinstance(caught.value.conflict, RetryableConflictError)
    assert len(work.hand.rounds) == 3
    assert caught.value.attempts == 3
    sound(create_again)


@pytest.mark.parametrize("bucket", [0, 1], ids=["its bucket", "another bucket"])
def test_who_is_overtaken_until_the_deadline_is_told_of_a_conflict_or_of_the_time(
    store: MemoryStore, bucket: int
) -> None:
    """Everything that repeats has a limit, by time too; a winner is named all the same."""
    clock = SimClock()
    faults = FaultStore(store, clock=clock)
    work = Work.begin(client(faults, clock), [((), 0)])

    def overtake() -> None:
        clock.advance(100 if bucket else 1_000)
        upsert(client(store), bucket)

    faults._script.append(Fault("step", "put_if_absent", "*timeline*", times=5, run=overtake))
    with pytest.raises(CommitRetriesExhaustedError if bucket else RetryableConflictError) as caught:
        work.commit()
    if isinstance(caught.value, CommitRetriesExhaustedError):
        assert caught.value.conflict is None
        assert caught.value.elapsed_ms > 300_000
    sound(store, pending=int(not bucket))


# --- overwrites -----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [Scope(SCOPE_TABLE), Scope(SCOPE_PARTITIONS, (("a",),))])
def test_an_overwrite_that_retries_replaces_what_came_into_its_place(scope: Scope) -> None:
    """INV-07: also in a bucket that was empty when it began."""
    store = memory()
    create(store, partition_by=("day",))
    work = Work.begin(
        client(store),
        [(("a",), 0)],
        operation=Operation.OVERWRITE,
        scope=scope,
        on_conflict="retry",
    )
    Work.begin(client(store), [(("a",), 1)]).commit()
    work.commit()
    assert work.hand.rounds[1] is not None
    assert (("a",), 1) in work.hand.rounds[1]
    sound(store)


# --- being rolled back ----------------------------------------------------------------------


def recover(store: Store, work: Work) -> Outcome:
    return publish_rollback(client(store), work.txn.instant, "test", [()], since=work.txn.v0)


@pytest.mark.parametrize("broken", [None, "list", "delete"])
def test_an_instant_rolled_back_before_it_publishes_can_never_commit(
    store: MemoryStore, broken: str | None
) -> None:
    """INV-03, INV-10: it is told so even if it cannot clean up."""
    faults = FaultStore(store)
    work = Work.begin(client(faults))
    if broken is not None:
        faults._script.append(Fault("error", broken, times=99))
    assert recover(store, work) is Outcome.ROLLED_BACK
    with pytest.raises(RolledBackError) as caught:
        work.commit()
    assert (caught.value.version, caught.value.instant) == (1, str(work.txn.instant))
    assert live_marks(store) == []
    sound(store, pending=int(broken is not None))


def test_an_instant_rolled_back_between_its_record_and_its_base_stops_at_once(
    store: MemoryStore,
) -> None:
    """INV-03: its own rollback is looked for from v0 on."""
    slow = client(store)
    slow.cache.known()
    faults = FaultStore(store)
    slow = client(faults)
    slow.cache.known()

    def strike() -> None:
        (pending,) = load_pending(store)
        publish_rollback(client(store), pending.instant, "test", [()], since=pending.v0)

    faults._script.append(Fault("step", "find", "*timeline*", run=strike))
    with pytest.raises(RolledBackError):
        Work.begin(slow)
    sound(store)


def test_a_heartbeat_that_meets_the_rollback_stops_the_writer(store: MemoryStore) -> None:
    """INV-03: it need not stage to the end."""
    background = ManualBackground()
    work = Work.begin(client(store, background=background))
    background.run()
    assert listed(store, paths.HEARTBEATS) == [paths.heartbeat(work.txn.instant)]
    recover(store, work)
    work.txn.check_alive()
    background.run()
    with pytest.raises(RolledBackError):
        work.txn.announce([("somewhere",)])
    assert background.steps == []
    assert listed(store, paths.HEARTBEATS) == []
    sound(store)


def test_an_abandoned_write_leaves_nothing(store: MemoryStore) -> None:
    """INV-06."""
    work = Work.begin(client(store), [((), 0), ((), 1)])
    work.txn.abort("test")
    work.txn.abort("test")
    assert client(store).cache.refresh().version == 1
    sound(store)


# --- times, ids, contract ---------------------------------------------------------------------


def test_completion_times_rise_though_clocks_go_back() -> None:
    """INV-03."""
    clock = SimClock()
    store = memory(clock)
    create(store)
    for seconds in (100, -3_600, 50, -7_200):
        clock.advance(seconds)
        upsert(client(store))
    decisions = list(Timeline(store).load_after(-1, limit=10))
    completed = [decision.completed_ms for decision in decisions]
    assert completed == sorted(set(completed))
    report = verify(client(store), data=False)
    assert report.problems == ()
    assert [note.path for note in report.notes] == [paths.slot(decisions[-1].version)]


def test_an_instant_that_another_process_committed_is_not_decided_again(
    store: MemoryStore,
) -> None:
    """INV-03: of two that resume it, one commits, and the other hears so."""
    work = Work.begin(client(store))
    twin = Work(client(store), work.txn, work.hand, work.scope, work.status)
    resumed = type(work.txn).resume(twin.handle, work.txn.request, work.txn.instant)
    first = work.commit()
    with pytest.raises(AlreadyCommitted) as caught:
        resumed.commit(work.status, work.scope, None)
    assert caught.value.version == first.version
    assert live_marks(store) == ["mark"]
    resumed.abort("already there")
    sound(store)


# --- finish -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["delete", "list"])
def test_nothing_after_the_slot_can_fail_the_commit(store: MemoryStore, operation: str) -> None:
    """INV-10."""
    faults = FaultStore(store)
    work = Work.begin(client(faults))
    faults._script.append(Fault("error", operation, times=99))
    assert work.commit().version == 1
    assert live_marks(store) == ["mark"]


@pytest.mark.parametrize("start", [0, 300], ids=["refused", "a slot was lost"])
def test_manifests_that_no_decision_names_are_not_left_behind(start: int) -> None:
    """INV-06."""
    store = memory()
    create(store, buckets=600)
    works = [
        Work.begin(client(store), [((), n) for n in range(first, first + 300)])
        for first in (0, start)
    ]
    works[0].commit()
    with contextlib.nullcontext() if start else pytest.raises(RetryableConflictError):
        works[1].commit()
    assert len(listed(store, paths.MANIFESTS)) == (4 if start else 2)
    sound(store)


def test_files_stay_in_the_partitions_that_records_name() -> None:
    """INV-06: recovery never lists more than these."""
    store = memory()
    create(store, partition_by=("day",))
    work = Work.begin(client(store), [(("a",), 0)])
    work.txn.announce([("b",), ("a",)])
    (pending,) = load_pending(store)
    assert set(pending.partitions) == {("a",), ("b",)}
    assert len(pending.records) == 2
    places = {path.split("/")[0] for path in work.hand.written}
    assert places <= {partition_path(p) for p in pending.partitions}


def test_a_store_that_fails_at_begin_leaves_at_most_a_record(store: MemoryStore) -> None:
    """INV-06."""
    handle = client(FaultStore(store, [Fault("error", "find", "*timeline*", nth=3)]))
    handle.cache.known()
    with pytest.raises(StorageError):
        Work.begin(handle)
    sound(store, pending=1)
