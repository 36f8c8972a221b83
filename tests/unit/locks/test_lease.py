"""The lease: what is judged by whose clock, and what crashes and lost replies leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from plait.errors import LockTimeoutError, LockUnavailableError, OptionError
from plait.locks import lease, open_lock, resolve_lock
from plait.locks.lease import CLAIM_S, DRIFT, PATH, LeaseLock
from plait.locks.port import Held
from plait.locks.record import Claimant, LeaseRecord
from plait.model.store_address import StoreAddress
from plait.storage import open_store
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.table import Table
from plait.testing import (
    CountingStore,
    Fault,
    FaultStore,
    ManualBackground,
    SeqIds,
    SimClock,
    SimulatedCrashError,
    sim_ports,
)
from tests.support.memory import forget

URI = "memory://lease"
TTL_S = 10.0
TEXT = "lease:10s"


class Machine:
    """A machine with its own store client, ids, background and wall clock; time is one."""

    def __init__(self, clock: SimClock, name: str, store: Store | None = None) -> None:
        self.clock, self.background = clock, ManualBackground()
        self.store = store or MemoryStore(f"{URI}/{name}", clock=clock)
        ports = sim_ports(clock=clock, ids=SeqIds(name), background=self.background)
        self.lock = LeaseLock(TEXT, self.store, ports)


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def store(clock: SimClock) -> Iterator[Store]:
    yield MemoryStore(URI, clock=clock)
    _KEPT.clear()  # now they let go
    forget(URI)


class Elsewhere(CountingStore):
    """The same store from another process: under a URI of its own, nothing is queued in memory."""

    def __init__(self, inner: Store, name: str) -> None:
        super().__init__(inner)
        self._name = name

    @property
    def address(self) -> StoreAddress:
        return StoreAddress(f"{URI}/{self._name}")


def machine(clock: SimClock, store: Store, name: str) -> Machine:
    return Machine(clock, name, Elsewhere(store, name))


def dead_holder(clock: SimClock, store: Store, name: str = "d") -> Machine:
    """Take the lease and never renew it."""
    dead = machine(clock, store, name)
    keep(dead.lock.acquire(wait_s=0, owner="the dead"))
    return dead


_KEPT: list[object] = []


def keep(lock: AbstractContextManager[Held]) -> Held:
    """Take a lock for good: nobody ever lets go of it."""
    _KEPT.append(lock)
    return lock.__enter__()


def record_in(store: Store) -> LeaseRecord:
    body = store.find(PATH)
    assert body is not None
    return LeaseRecord.decode(body, ttl_s=TTL_S, now_ms=0)


def test_a_silent_holder_gives_up_before_anybody_takes_over(clock: SimClock, store: Store) -> None:
    silent = keep(machine(clock, store, "a").lock.acquire(wait_s=0, owner="silent"))
    assert silent.lost is None
    began = clock.monotonic()
    with machine(clock, store, "b").lock.acquire(wait_s=60, owner="heir") as heir:
        assert clock.monotonic() - began > TTL_S * DRIFT
        assert silent.lost is not None
        assert heir.lost is None
        assert (heir.token or 0) > (silent.token or 0)
    clock.advance(-(clock.monotonic() - began) + TTL_S - 0.01)
    assert silent.lost is None
    clock.advance(0.02)
    assert silent.lost is not None


def test_a_holder_whose_machine_slept_knows_that_others_may_have_it(
    clock: SimClock, store: Store
) -> None:
    """Its monotonic clock stood still; that of the observers did not."""
    holder = machine(clock, store, "a")
    with holder.lock.acquire(wait_s=0, owner="a") as held:
        clock.suspend(TTL_S - 1)
        assert held.lost is None
        clock.suspend(2)
        assert held.lost is not None
        holder.background.run()
        assert held.lost is None


def test_renewal_keeps_it_for_ever_and_waiting_does_not_count_against_it(
    clock: SimClock, store: Store
) -> None:
    one, two = machine(clock, store, "a"), machine(clock, store, "b")
    with one.lock.acquire(wait_s=0, owner="the first") as held:
        for _ in range(20):
            with pytest.raises(LockTimeoutError), two.lock.acquire(wait_s=3, owner="late"):
                pass
            one.background.run()
        assert clock.monotonic() > 5 * TTL_S
        assert held.lost is None
    with two.lock.acquire(wait_s=0, owner="the next"):
        pass


def test_those_who_queue_up_do_not_prolong_a_dead_holders_time(
    clock: SimClock, store: Store
) -> None:
    """Their writes change the object too."""
    dead_holder(clock, store)
    began = clock.monotonic()
    early = machine(clock, store, "e")
    with pytest.raises(LockTimeoutError), early.lock.acquire(wait_s=TTL_S, owner="early"):
        pass
    heir = Machine(clock, "h", Noisy(store, "h", clock))
    with heir.lock.acquire(wait_s=60, owner="heir"):
        assert clock.monotonic() - began < TTL_S + TTL_S * DRIFT + 2 * CLAIM_S


class Noisy(Elsewhere):
    """At each look somebody else has queued up a moment ago."""

    def __init__(self, inner: Store, name: str, clock: SimClock) -> None:
        super().__init__(inner, name)
        self._mark, self._clock = 0, clock

    def find(self, path: str, *, size_max: int = 1 << 20) -> bytes | None:
        body = self.inner.find(path, size_max=size_max)
        if body is None or self._mark > 40:
            return body
        self._mark += 1
        record = record_in(self.inner).joined(Claimant(f"noise {self._mark}", "noise"))
        self.inner.put(path, record.encode(f"noise {self._mark}"))
        return self.inner.find(path, size_max=size_max)


@pytest.mark.parametrize("skew_ms", [-86_400_000, 86_400_000])
def test_clocks_that_are_wrong_by_a_day_change_nothing(skew_ms: int, store: Store) -> None:
    clock = SimClock()
    skewed = SimClock(skew_ms=skew_ms)
    holder = machine(clock, store, "a")
    with holder.lock.acquire(wait_s=0, owner="the first") as held:
        other = machine(skewed, store, "b")
        for _ in range(4):
            late = other.lock.acquire(wait_s=TTL_S * 0.9, owner="late")
            with pytest.raises(LockTimeoutError), late:
                pass
            holder.background.run()
        assert held.lost is None


def test_a_waiter_that_died_at_the_front_holds_the_next_one_up_only_for_its_claim(
    clock: SimClock, store: Store
) -> None:
    with machine(clock, store, "a").lock.acquire(wait_s=0, owner="the first"):
        body = store.find(PATH)
        assert body is not None
        queued = record_in(store).joined(Claimant("dead", "the dead"))
        assert store.replace(PATH, queued.encode("by hand"), expected=body)
    began = clock.monotonic()
    with machine(clock, store, "b").lock.acquire(wait_s=30, owner="the next"):
        assert CLAIM_S < clock.monotonic() - began < 2 * CLAIM_S
        assert record_in(store).waiters == ()


def test_giving_up_leaves_no_place_in_the_queue(clock: SimClock, store: Store) -> None:
    with machine(clock, store, "a").lock.acquire(wait_s=0, owner="the first"):
        late = machine(clock, store, "b").lock.acquire(wait_s=1, owner="late")
        with pytest.raises(LockTimeoutError), late:
            pass
        assert record_in(store).waiters == ()
        assert record_in(store).holder is not None


def test_a_lease_that_was_taken_away_is_told_at_the_next_renewal(
    clock: SimClock, store: Store
) -> None:
    one = machine(clock, store, "a")
    with one.lock.acquire(wait_s=0, owner="the first") as held:
        body = store.find(PATH)
        assert body is not None
        stolen = record_in(store).taken(Claimant("thief", "thief"), ttl_s=TTL_S)
        assert store.replace(PATH, stolen.encode("by hand"), expected=body)
        one.background.run()
        assert "another client" in str(held.lost)
        clock.advance(-1)
        assert held.lost is not None
    assert record_in(store).held_by("thief"), "letting go late must not free another's lease"


def test_its_bytes_never_come_again(clock: SimClock, store: Store) -> None:
    """Or a swap that was paused could take the old for the new (ABA)."""
    seen = []

    class Watched(Elsewhere):
        def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
            seen.append(body)
            return super().replace(path, body, expected=expected)

    watched = Machine(clock, "a", Watched(store, "a"))
    late = Machine(clock, "b", Watched(store, "b"))
    for _ in range(5):
        with watched.lock.acquire(wait_s=0, owner="me"):
            for _ in range(2):  # who comes and goes leaves all as it was
                with pytest.raises(LockTimeoutError), late.lock.acquire(wait_s=1, owner="late"):
                    pass
            watched.background.run()
    assert len(seen) == len(set(seen)) == 14 + 5 * 2 * 2


@pytest.mark.parametrize("damage", [b"", b"{", b'{"token": 1}', b"\xff" * 100, b"9" * 100_000])
def test_a_damaged_object_costs_a_lease_time_and_the_token_still_grows(
    damage: bytes, clock: SimClock, store: Store
) -> None:
    """INV-11."""
    with machine(clock, store, "a").lock.acquire(wait_s=0, owner="the first") as first:
        pass
    store.put(PATH, damage)
    other = machine(clock, store, "b")
    if len(damage) > 65536:
        with pytest.raises(LockUnavailableError), other.lock.acquire(wait_s=60, owner="next"):
            pass
        return
    with other.lock.acquire(wait_s=60, owner="the next") as held:
        assert (held.token or 0) > (first.token or 0)


@pytest.mark.parametrize("operation", ["put_if_absent", "replace"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_lost_reply_neither_doubles_nor_loses_the_lease(
    operation: str, nth: int, clock: SimClock, store: Store
) -> None:
    """INV-10 of the small: taking, queueing, renewing and letting go are read back."""
    faults = FaultStore(Elsewhere(store, "f"), [Fault("lost_reply", operation, PATH, nth=nth)])
    one = Machine(clock, "f", faults)
    for _ in range(3):
        with one.lock.acquire(wait_s=5, owner="me") as held:
            assert held.lost is None
            record = record_in(store)
            assert record.holder is not None
            assert record.token == held.token
        if record_in(store).holder is not None:  # letting go got lost before it was done
            clock.advance(TTL_S)
    with machine(clock, store, "z").lock.acquire(wait_s=2 * TTL_S, owner="other"):
        pass


@pytest.mark.parametrize("operation", ["*", "replace"])
@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
def test_whatever_call_a_crash_hits_the_next_gets_the_lease_in_bounded_time(
    kind: str, operation: str, clock: SimClock
) -> None:
    """With ``replace`` alone: of one that queues up, takes, renews and lets go."""
    survived = 0
    for nth in range(1, 12):
        name = f"{kind}{nth}"
        store = MemoryStore(f"{URI}/{kind}/{nth}", clock=clock)
        if operation == "replace":
            dead_holder(clock, store, f"d{name}")
        faults = FaultStore(Elsewhere(store, f"x{name}"), [Fault(kind, operation, nth=nth)])
        doomed = Machine(clock, "x", faults)
        try:
            with doomed.lock.acquire(wait_s=60, owner="doomed"):
                doomed.background.run()
            survived += 1
        except SimulatedCrashError:
            pass
        began = clock.monotonic()
        with machine(clock, store, f"y{name}").lock.acquire(wait_s=60, owner="next"):
            assert clock.monotonic() - began <= TTL_S * DRIFT + 2 * CLAIM_S
        _KEPT.clear()
        forget(store.address.uri)
    assert 0 < survived < 9, "the script must reach every call, and no further"


def test_a_store_that_fails_is_told_and_the_commit_can_go_on(clock: SimClock, store: Store) -> None:
    faults = FaultStore(Elsewhere(store, "f"), [Fault("error", "find", PATH, times=99)])
    broken = Machine(clock, "f", faults)
    with pytest.raises(LockUnavailableError), broken.lock.acquire(wait_s=60, owner="me"):
        pass
    assert clock.monotonic() < 5


def test_a_renewal_that_fails_is_made_good_by_the_next(clock: SimClock, store: Store) -> None:
    faults = FaultStore(Elsewhere(store, "f"), [Fault("error", "replace", PATH, nth=1)])
    one = Machine(clock, "f", faults)
    with one.lock.acquire(wait_s=0, owner="me") as held:
        clock.advance(TTL_S + 1)
        with pytest.raises(OSError):
            one.background.run()
        assert held.lost is not None
        one.background.run()
        assert held.lost is None, "nobody took it meanwhile"


def test_a_renewal_counts_from_before_it_was_written(clock: SimClock, store: Store) -> None:
    """An observer may have seen it as soon as that."""
    slow = Fault("delay", "replace", PATH, nth=1, delay_s=4)
    one = Machine(clock, "f", FaultStore(Elsewhere(store, "f"), [slow], clock=clock))
    with one.lock.acquire(wait_s=0, owner="me") as held:
        clock.advance(5)
        one.background.run()
        clock.advance(TTL_S - 4 - 0.1)
        assert held.lost is None
        clock.advance(0.2)
        assert held.lost is not None


def test_people_are_told_who_has_it_and_that_its_time_is_over(
    clock: SimClock, store: Store
) -> None:
    looker = machine(clock, store, "l").lock
    assert looker.holder() is None
    dead_holder(clock, store)
    holder = looker.holder()
    assert holder is not None
    assert "the dead" in holder.owner
    assert holder.since_ms == SimClock.START_MS
    assert holder.lost is None
    clock.advance(2 * TTL_S)
    holder = looker.holder()
    assert holder is not None
    assert "not renewed for 20 s" in str(holder.lost)


def test_who_gets_it_at_once_asks_the_store_little(clock: SimClock, store: Store) -> None:
    one = machine(clock, store, "a")
    with one.lock.acquire(wait_s=0, owner="me"):
        pass
    counting = one.store
    assert isinstance(counting, CountingStore)
    counting.reset()
    with one.lock.acquire(wait_s=0, owner="me"):
        pass
    assert counting.counts() == {"find": 2, "replace": 2}


@pytest.mark.parametrize("text", ["lease:", "lease:soon", "lease:0.1s", "lease:2h", "leases"])
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        open_lock(text, open_store(URI), sim_ports())


def test_a_store_without_a_swap_is_refused_before_anything_is_written(tmp_path) -> None:
    uri = f"local://{tmp_path}/table"
    with pytest.raises(OptionError) as caught:
        Table.create(uri, "id bigint", lock="lease")
    assert caught.value.key == "lock"
    assert list(tmp_path.iterdir()) == []
    assert resolve_lock("lease", open_store(URI)) == "lease"


def test_a_table_commits_under_a_lease(store: Store) -> None:
    table = Table.create(f"{URI}/table", "id bigint", lock="lease:5s")
    assert table.inspect.describe()["contract"]["lock"] == "lease:5s"
    assert lease.PATH not in [info.path for info in table._handle.store.list(".meta/locks")]
    forget(f"{URI}/table")
