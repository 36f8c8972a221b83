"""Fairness: a commit that lost too often reserves its place, and is through (RFC 0004)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from plait.errors import CommitRetriesExhaustedError
from plait.model.bucket import BucketId
from plait.model.instant import Operation
from plait.storage.memory import MemoryStore
from plait.testing import CountingStore, SimClock
from plait.timeline import paths
from plait.txn.reservation import publish_reservation
from plait.txn.rollback import publish_rollback
from plait.txn.table_handle import TableHandle
from tests.support.forge import decision_at
from tests.support.protocol import Phases, Work, client, create, memory, upsert

T = TypeVar("T")
AFTER = 3
"""The default of ``commit.reserve.after``."""
PLACES: list[BucketId] = [((), number) for number in range(4)]


@pytest.fixture
def store(clock: SimClock) -> MemoryStore:
    made = memory(clock)
    create(made, policy="key", properties={"heartbeat.timeout": "120s"})
    return made


class Crowd:
    """Small writers that come in before each attempt of a large one, for ever.

    Each is a writer like any other, in a thread of its own, and nobody tells it to hold back: it
    lands, or it comes to where it waits for whoever reserved its place.
    """

    def __init__(self, handle: Callable[[Phases], TableHandle]) -> None:
        self._handle, self.landed, self.waited = handle, 0, 0
        self._through = threading.Event()
        self._writers: list[threading.Thread] = []

    def rush(self) -> None:
        """Send in one more; go on when it has landed, or when it waits."""
        seen, number = threading.Event(), len(self._writers)

        def hold() -> None:
            self.waited += 1
            seen.set()
            assert self._through.wait(300)

        def write() -> None:
            observer = Phases(on={"wait": hold})
            upsert(self._handle(observer), number % 4, mark=f"small {number}")
            self.landed += 1
            seen.set()

        self._writers.append(threading.Thread(target=write))
        self._writers[-1].start()
        assert seen.wait(300)

    def end(self) -> int:
        """Let those that wait go on; return how many came."""
        self._through.set()
        for writer in self._writers:
            writer.join()
        return len(self._writers)


def large(handle: TableHandle, mark: str = "large", on_conflict: str = "raise") -> Work:
    return Work.begin(handle, PLACES, mark=mark, on_conflict=on_conflict)


SLOW_S = 0.4


class Slow(CountingStore):
    """Takes its time for each call."""

    def __init__(self, inner: MemoryStore, clock: SimClock) -> None:
        super().__init__(inner)
        self._clock = clock

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        self._clock.sleep(SLOW_S)
        return super().call(operation, path, run)


class Rushed(Phases):
    """Lets the crowd in whenever its writer is about to stage again or to publish."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__()
        self._crowd = crowd
        self._mine: object = None

    def phase(self, name: str, **facts: object) -> None:
        super().phase(name, **facts)
        if name == "begin":
            self._mine = facts["instant"]
        if name in ("redo", "publish") and facts["instant"] == self._mine:
            self._crowd.rush()


def test_a_large_commit_is_through_after_so_many_lost_rounds(
    store: MemoryStore, clock: SimClock
) -> None:
    """Fifty small ones would come before each of its attempts, and do until it reserves."""
    crowd = Crowd(lambda observer: client(store, clock, observer=observer))
    handle = client(store, clock, observer=Rushed(crowd))
    result = large(handle).commit()
    operations = handle.cache.refresh().commits(store)["operation"].to_pylist()
    through = crowd.end()
    assert result.rebased <= 4 * AFTER
    assert decision_at(store, result.version).client["redone"] == AFTER
    assert operations.count("reserve") == 1
    assert crowd.waited, "nobody was held back: the test showed nothing"
    assert crowd.landed == through, "whoever waited is through after the large one"
    assert not handle.cache.refresh().reservations
    marks = [store.find(path) for path in handle.cache.snapshot().files["path"].to_pylist()]
    assert all(body is not None and b"large" in body for body in marks)
    lines = b"\n".join(body or b"" for body in marks).split(b"\n")
    assert all(f"small {number}".encode() in lines for number in range(through)), "INV-07"


def test_whoever_meets_a_reservation_waits_for_its_holder(
    store: MemoryStore, clock: SimClock
) -> None:
    """The small one does its bucket again after the large one, and both stand."""
    holder = client(store, clock)
    work = large(holder)
    reserve(holder, work)

    observer = Phases()
    observer.on["wait"] = work.commit
    other = client(store, clock, observer=observer)
    result = upsert(other, 2, mark="small")
    assert result.rebased == 1
    assert observer.heard.count("wait") == 1
    assert store.find(newest(other, 2)) == b"large\nsmall"


def test_dead_holders_cost_a_client_one_time_out_and_nothing_else(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-11: all are watched at once, though until they are rolled back they stand before us."""
    reserved(store, clock, 4)
    other, before = client(store, clock), clock.monotonic()
    upsert(other, 2, mark="small")
    assert 30 <= clock.monotonic() - before < 35
    assert store.find(newest(other, 2)) == b"small"
    before = clock.monotonic()
    for number in range(5):
        upsert(other, number % 4, mark=f"another {number}")
    assert clock.monotonic() - before < 1


def test_holders_that_die_while_they_are_waited_for_are_given_up_together(
    store: MemoryStore, clock: SimClock
) -> None:
    """Each gave a sign after the first look, and then no more."""
    works = reserved(store, clock, 6)
    began, sleep = clock.monotonic(), clock.sleep

    def dying(seconds: float) -> None:
        sleep(seconds)
        if 15 <= clock.monotonic() - began < 20:
            for work in works:
                store.put(paths.heartbeat(work.txn.instant), b"1")

    clock.sleep = dying  # type: ignore[method-assign]  # time is the test's
    upsert(client(store, clock), 2)
    assert clock.monotonic() - began < 80


def test_who_is_next_looks_less_often_the_longer_the_last_holder_takes(
    store: MemoryStore, clock: SimClock
) -> None:
    first, second = client(store, clock), client(store, clock)
    one, two = large(first, "one"), large(second, "two")
    reserve(first, one)
    reserve(second, two)
    began, sleep = clock.monotonic(), clock.sleep

    def living(seconds: float) -> None:
        sleep(seconds)
        passed = clock.monotonic() - began
        if passed > 0.5 and one.txn.open:
            one.commit()
        store.put(paths.heartbeat(two.txn.instant), str(passed).encode())
        if passed > 100 and two.txn.open:
            two.commit()

    counting = CountingStore(store)
    clock.sleep = living  # type: ignore[method-assign]  # time is the test's
    upsert(client(counting, clock), 2)
    assert clock.monotonic() - began > 100
    looks = [call for call in counting.calls if call.operation == "find"]
    assert len(looks) < 300


def test_who_is_next_goes_on_soon_after_the_last_holder_is_through(
    store: MemoryStore, clock: SimClock
) -> None:
    handles = [client(store, clock), client(store, clock)]
    works = [large(handle, f"large {number}") for number, handle in enumerate(handles)]
    for handle, work in zip(handles, works, strict=True):
        reserve(handle, work)
    due = {10: works[0], 11: works[1]}
    began, sleep = clock.monotonic(), clock.sleep
    pauses: list[float] = []

    def living(seconds: float) -> None:
        sleep(seconds)
        pauses.append(seconds)
        for work in works:
            store.put(paths.heartbeat(work.txn.instant), str(clock.monotonic()).encode())
        for after_s in [each for each in due if clock.monotonic() - began > each]:
            due.pop(after_s).commit()

    clock.sleep = living  # type: ignore[method-assign]  # time is the test's
    upsert(client(store, clock), 2)
    assert 11 < clock.monotonic() - began < 11.2
    growth = [later / before for before, later in itertools.pairwise(pauses)]
    assert max(growth) <= 2.01, "a pause becomes longer step by step"


def test_who_waits_leaves_a_slow_store_to_the_others(store: MemoryStore, clock: SimClock) -> None:
    """Most of the time it does not look, and only the first holder is asked again and again."""
    works = reserved(store, clock, 4)
    slow = Slow(store, clock)
    upsert(client(slow, clock), 2)
    looks = [call.path for call in slow.calls if call.path.startswith(paths.HEARTBEATS)]
    asked = [looks.count(paths.heartbeat(work.txn.instant)) for work in works]
    assert asked == [4, 2, 2, 2]
    waited = [call for call in slow.calls if call.operation == "find"]
    assert len(waited) * SLOW_S < 40 / 2


def test_of_two_reservations_the_older_goes_first(store: MemoryStore, clock: SimClock) -> None:
    """Nobody waits in a circle."""
    first, second = client(store, clock), client(store, clock)
    one, two = large(first, "one"), large(second, "two")
    reserve(first, one)
    reserve(second, two)
    observer = Phases()
    observer.on["wait"] = one.commit
    object.__setattr__(second.ports, "observer", observer)
    two.commit()
    assert observer.heard.count("wait") == 1
    assert store.find(newest(second, 0)) == b"one\ntwo"
    assert not second.cache.refresh().reservations


def test_who_is_blocked_again_and_again_gets_a_place_too(
    store: MemoryStore, clock: SimClock
) -> None:
    """Each time it waited, others came between: that counts as a lost round."""
    observer = Phases()
    handle = client(store, clock, observer=observer)
    work = Work.begin(handle, [((), 2)], mark="small")
    waits = 0

    def next_large() -> None:
        """The holder gets through, and at once another holds the place."""
        nonlocal waits
        waits += 1
        holders.pop().commit()
        if waits < 10:
            hold()
            observer.on["wait"] = next_large

    def hold() -> None:
        holder = client(store, clock)
        holders.append(large(holder, f"large {waits}"))
        reserve(holder, holders[-1])

    holders: list[Work] = []
    hold()
    observer.on["wait"] = next_large
    result = work.commit()
    assert waits <= AFTER + 1
    assert result.rebased <= AFTER + 1
    assert handle.cache.refresh().commits(store)["operation"].to_pylist().count("reserve") > waits


def test_who_waits_for_one_does_not_wait_for_those_that_come_after(
    store: MemoryStore, clock: SimClock
) -> None:
    first, second = client(store, clock), client(store, clock)
    one, two = large(first, "one"), large(second, "two")
    reserve(first, one)
    observer = Phases()
    handle = client(store, clock, observer=observer)

    def through() -> None:
        reserve(second, two)
        one.commit()
        began.append(clock.monotonic())

    began: list[float] = []
    observer.on["wait"] = through
    observer.on["redo"] = lambda: waited.append(clock.monotonic() - began[0])
    waited: list[float] = []
    upsert(handle, 2, mark="small")
    assert waited[0] < 1, "it goes on when the first is through"


def test_no_more_redos_than_the_table_allows_though_others_were_waited_for(
    store: MemoryStore, clock: SimClock
) -> None:
    strict = memory(clock)
    create(strict, policy="key", properties={"commit.retries": "0"})
    holder = client(strict, clock)
    work = large(holder)
    reserve(holder, work)
    observer = Phases()
    observer.on["wait"] = work.commit
    with pytest.raises(CommitRetriesExhaustedError):
        upsert(client(strict, clock, observer=observer), 2, mark="small")
    assert "redo" not in observer.heard


def test_an_instant_that_is_over_reserves_nothing(store: MemoryStore, clock: SimClock) -> None:
    """Nobody would end it."""
    holder = client(store, clock)
    work = large(holder)
    publish_rollback(client(store, clock), work.txn.instant, "dead", [()], since=work.txn.v0)
    reserve(holder, work)
    assert not client(store, clock).cache.refresh().reservations


def reserve(handle: TableHandle, work: Work) -> None:
    """Reserve as the loop of a commit does."""
    judge = work.txn.checker.judge_of(
        work.status.changes, work.scope, handle.cache.known().table, work.txn.read_set
    )
    assert judge.operation is Operation.UPSERT
    publish_reservation(handle, judge.place_of(work.txn.instant), since=work.txn.base.version)


def reserved(store: MemoryStore, clock: SimClock, count: int) -> list[Work]:
    """Give large commits that reserved the same place one after the other."""
    works = []
    for _ in range(count):
        holder = client(store, clock)
        works.append(large(holder))
        reserve(holder, works[-1])
    return works


def newest(handle: TableHandle, bucket: int) -> str:
    """Give the file of a bucket."""
    rows = handle.cache.snapshot().files.select(["path", "bucket"]).to_pylist()
    return str(next(row["path"] for row in rows if row["bucket"] == bucket))
