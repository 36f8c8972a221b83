"""The one atomic step, when the store answers late, wrongly or not at all (INV-02, INV-10)."""

from __future__ import annotations

import pytest

from plait.definition.create import define_table
from plait.errors import (
    CapabilityMissingError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    Retry,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from plait.model.instant import Outcome
from plait.model.store_address import StoreAddress
from plait.services.verify.checks import verify
from plait.state.cache import StateCache
from plait.storage.memory import MemoryStore
from plait.storage.port import Capabilities, Store
from plait.testing import Fault, FaultStore, SeqIds, SimClock, SimulatedCrashError, sim_ports
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.recovery import roll_back_failed
from plait.txn.rollback import publish_rollback
from plait.txn.table_decisions import create_table, set_properties
from tests.support.protocol import (
    SCHEMA,
    Work,
    client,
    listed,
    live_marks,
    memory,
    upsert,
)

SLOTS = "*timeline*"


def begun(store: Store, clock: SimClock, *faults: Fault, mark: str = "mark") -> Work:
    """Begin a write whose store then fails as told."""
    faulty = FaultStore(store, clock=clock)
    work = Work.begin(client(faulty, clock), mark=mark)
    faulty._script.extend(faults)
    return work


@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_whose_reply_is_lost_is_known_to_have_landed(
    store: MemoryStore, clock: SimClock, times: int
) -> None:
    """INV-10."""
    work = begun(store, clock, Fault("lost_reply", "put_if_absent", SLOTS, times=times))
    assert work.commit().version == 1
    assert live_marks(store) == ["mark"]


def test_a_commit_that_failed_to_arrive_is_sent_again(store: MemoryStore, clock: SimClock) -> None:
    """INV-10: and each time later, so that a store in trouble has time to recover."""
    work = begun(store, clock, Fault("error", "put_if_absent", SLOTS, times=3))
    began = clock.monotonic()
    assert work.commit().version == 1
    assert 0.05 * 7 / 2 <= clock.monotonic() - began <= 0.05 * 7 * 2
    assert live_marks(store) == ["mark"]


def test_a_lost_reply_of_a_lost_race_is_known_as_lost(store: MemoryStore, clock: SimClock) -> None:
    """INV-10: the slot has another's attempt."""
    work = begun(
        store,
        clock,
        Fault("step", "put_if_absent", SLOTS, run=lambda: upsert(client(store), 1, mark="winner")),
        Fault("error", "put_if_absent", SLOTS),
    )
    result = work.commit()
    assert (result.version, result.attempts) == (2, 2)
    assert live_marks(store) == ["mark", "winner"]


@pytest.mark.parametrize("landed", [True, False])
def test_an_outcome_that_cannot_be_known_deletes_nothing(
    store: MemoryStore, clock: SimClock, *, landed: bool
) -> None:
    """INV-10: and recovery finds out later."""
    work = begun(
        store,
        clock,
        Fault("lost_reply" if landed else "error", "put_if_absent", SLOTS, times=99),
        Fault("error", "find", SLOTS, times=99),
    )
    before = listed(store)
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        work.commit()
    assert caught.value.retry is Retry.CHECK_FIRST
    assert caught.value.version == 1
    assert caught.value.instant == str(work.txn.instant)
    assert set(before) <= set(listed(store))
    work.handle.store._script.clear()  # type: ignore[attr-defined]  # it answers again
    work.txn.abort("nothing happens")
    assert set(before) <= set(listed(store))
    assert client(store).cache.refresh().version == int(landed)

    clock.advance(1_000)
    report = roll_back_failed(client(store, clock), reason="test")
    outcome = Outcome.COMMITTED if landed else Outcome.ROLLED_BACK
    assert [entry.outcome for entry in report.ended] == [outcome.value]
    assert live_marks(store) == (["mark"] if landed else [])
    assert load_pending(store) == []
    assert verify(client(store), data=False).problems == ()


def test_a_rollback_whose_reply_is_lost_counts(store: MemoryStore, clock: SimClock) -> None:
    """INV-03: nothing is deleted before it is known."""
    work = Work.begin(client(store))
    faults = FaultStore(
        store,
        [
            Fault("lost_reply", "put_if_absent", SLOTS, times=99),
            Fault("error", "find", SLOTS, nth=3, times=99),
        ],
        clock=clock,
    )
    with pytest.raises(CommitOutcomeUnknownError):
        publish_rollback(client(faults, clock), work.txn.instant, "test", [()], since=0)
    assert set(work.hand.written) <= set(listed(store))
    again = publish_rollback(client(store), work.txn.instant, "test", [()], since=0)
    assert again is Outcome.ROLLED_BACK
    assert client(store).cache.refresh().version == 1


def test_a_service_that_never_gets_a_slot_gives_up(store: MemoryStore, clock: SimClock) -> None:
    """Everything that repeats has a limit."""

    def overtake() -> None:
        clock.advance(60)
        upsert(client(store))

    faults = FaultStore(
        store, [Fault("step", "put_if_absent", SLOTS, times=99, run=overtake)], clock=clock
    )
    with pytest.raises(CommitRetriesExhaustedError) as caught:
        set_properties(client(faults, clock), {"commit.retries": "3"})
    assert caught.value.attempts >= 5


def test_properties_are_changed_whole_beside_other_changes(store: MemoryStore) -> None:
    """INV-02: the change is made anew on each head."""
    faults = FaultStore(store)
    handle = client(faults)
    handle.cache.known()
    faults._script.append(
        Fault(
            "step",
            "put_if_absent",
            SLOTS,
            run=lambda: set_properties(client(store), {"lock.wait": "1s"}),
        )
    )
    set_properties(handle, {"commit.retries": "3"})
    options = client(store).cache.refresh().table.options.to_dict()
    assert options == {"lock.wait": "1s", "commit.retries": "3"}


class Plain(WrappedStore):
    """A store without an atomic put."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(put_if_absent=False)


def test_a_store_without_atomic_slots_is_refused_for_writing(store: MemoryStore) -> None:
    """INV-02."""
    handle = client(Plain(store))
    assert handle.cache.refresh().version == 0
    with pytest.raises(CapabilityMissingError) as caught:
        Work.begin(handle)
    assert caught.value.capability == "put_if_absent"
    assert listed(store, paths.PENDING) == []


# --- creation -------------------------------------------------------------------------------


def test_one_of_many_creators_wins(clock: SimClock) -> None:
    """INV-02."""
    store = memory(clock)
    table = define_table(SCHEMA, record_key=("id",))
    won = [create_table(store, sim_ports(ids=SeqIds("a")), table)]
    with pytest.raises(TableExistsError) as caught:
        create_table(store, sim_ports(ids=SeqIds("b")), table)
    assert caught.value.uri == store.address.uri
    assert StateCache(store, sim_ports()).refresh().checksum == won[0].checksum


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_creation_that_was_cut_short_can_be_repeated(kind: str, nth: int) -> None:
    """INV-02."""
    store = memory()
    faults = FaultStore(store, [Fault(kind, "put_if_absent", nth=nth)])
    table = define_table(SCHEMA, record_key=("id",))
    with pytest.raises(SimulatedCrashError):
        create_table(faults, sim_ports(ids=SeqIds("a")), table)
    done = (kind, nth) == ("crash_after", 2)
    if done:
        with pytest.raises(TableExistsError):
            create_table(store, sim_ports(ids=SeqIds("b")), table)
    else:
        with pytest.raises(TableNotFoundError):
            client(store).cache.refresh()
        create_table(store, sim_ports(ids=SeqIds("b")), table)
    upsert(client(store))
    assert verify(client(store), data=False).problems == ()


def test_a_creation_whose_reply_is_lost_and_repeated_by_the_store_wins() -> None:
    """INV-10: an adapter that sends twice finds its own bytes."""

    class Twice(WrappedStore):
        def put_if_absent(self, path: str, body: bytes) -> bool:
            self.inner.put_if_absent(path, body)
            return self.inner.put_if_absent(path, body)

    table = define_table(SCHEMA, record_key=("id",))
    assert create_table(Twice(memory()), sim_ports(), table).version == 0


def test_a_table_that_is_not_there_is_named_but_not_where_nothing_can_be_read() -> None:
    store = memory()
    with pytest.raises(TableNotFoundError) as caught:
        StateCache(store, sim_ports()).refresh()
    assert caught.value.uri == store.address.uri
    assert store.address == StoreAddress(store.address.uri)
    silent = FaultStore(store, [Fault("error", "find", SLOTS, times=9)])
    with pytest.raises(StorageError):
        StateCache(silent, sim_ports()).refresh()
