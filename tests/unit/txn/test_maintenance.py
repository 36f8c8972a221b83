"""The dead are seen to in time, by whoever commits, and small commits pay nothing for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import Table
from plait.model.contract import Contract
from plait.model.decision import CommitResult
from plait.model.instant import Instant
from plait.state.cache import StateCache
from plait.state.checkpoint import list_checkpoints
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import CountingStore, Fault, FaultStore, SimClock
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.reservation import publish_reservation
from plait.txn.table_decisions import change_table
from plait.txn.table_handle import TableHandle
from tests.support.dead import bury
from tests.support.protocol import Work, client, create, memory, upsert

MINUTE_S = 60
ROWS = pa.table({"id": [1, 2], "value": ["a", "b"]})
SPAN_S, TIMEOUT_S = 600, 120


def commit(
    store: Store, clock: SimClock, *, handle: TableHandle | None = None, bucket: int = 1
) -> bool:
    """Commit as a job that lives for this one commit; tell whether it looked for the dead."""
    counted = CountingStore(store)
    handle = replace(handle or client(store, clock), store=counted)
    upsert(handle, bucket, mark="alive")
    return any(call.operation == "list" and "pending" in call.path for call in counted.calls)


@pytest.mark.parametrize("pause_s", [45, 7 * MINUTE_S, 3600])
@pytest.mark.parametrize("offset_s", [1, 300, 599])
def test_a_dead_writer_is_seen_to_within_the_stated_time(pause_s: int, offset_s: int) -> None:
    """INV-06: time-out and interval after its last sign, with the next commit."""
    clock = SimClock()
    store = memory(clock)
    create(store, properties={"checkpoint.interval": 10_000})
    commit(store, clock)
    clock.advance(offset_s)
    Work.begin(client(store, clock), mark="dead")
    waited = 0
    while load_pending(store):
        clock.advance(pause_s)
        waited += pause_s
        commit(store, clock)
        assert waited <= TIMEOUT_S + SPAN_S + pause_s


def test_a_first_commit_after_a_checkpoint_looks_for_nobody(clock: SimClock) -> None:
    """A client that opens at a checkpoint knows when that version was completed."""
    inner = memory(clock)
    create(inner, properties={"checkpoint.interval": 2})
    commit(inner, clock)
    commit(inner, clock)
    assert list_checkpoints(inner) == [2]
    assert not commit(inner, clock)


def begin_reserved(store: Store, clock: SimClock) -> Instant:
    """Begin a write, and keep its place before others."""
    work = Work.begin(client(store, clock), mark="first")
    handle = client(store, clock)
    base = handle.cache.refresh()
    changes, reads = work.status.changes, work.txn.read_set
    judge = work.txn.checker.judge_of(changes, work.scope, base.table, reads)
    publish_reservation(handle, judge.place_of(work.txn.instant), since=base.version)
    return work.txn.instant


def test_a_killed_writer_that_holds_others_up_is_ended_by_them(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: its reservation is in their way; they need not wait for the next interval."""
    dead = begin_reserved(store, clock)
    bury(store, dead)
    commit(store, clock, bucket=0)
    assert load_pending(store) == []
    assert client(store).cache.refresh().reservations == ()


def test_one_who_is_only_slow_is_looked_at_seldom_and_left_alone(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: it is silent but not dead; a client asks once a time-out."""
    slow = begin_reserved(store, clock)
    busy = client(store, clock)
    looks = [commit(store, clock, handle=busy, bucket=0) for _ in range(5)]
    assert 1 <= sum(looks) <= 2  # for the silence, and for the time
    assert [entry.instant for entry in load_pending(store)] == [slow]


def leave_writer(table: Table) -> Callable[[], CommitResult]:
    """Write, and return how its result is asked for."""
    with suppress(KeyboardInterrupt), table.writer("upsert") as writer:
        writer.write(ROWS)
    return lambda: writer.result


def leave_block(table: Table) -> Callable[[], CommitResult]:
    """Write in a block, and return how its result is asked for."""
    with suppress(KeyboardInterrupt), table.transaction() as block:
        block.upsert(ROWS)
    return lambda: block.result


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("leave", [leave_writer, leave_block])
@pytest.mark.parametrize("operation", ["list", "delete"])
def test_a_commit_whose_end_was_interrupted_still_has_its_result(
    store: MemoryStore,
    clock: SimClock,
    leave: Callable[[Table], Callable[[], CommitResult]],
    operation: str,
) -> None:
    """INV-10: after Ctrl-C in the search for the dead, or while records are removed."""
    Table(client(store, clock)).upsert(ROWS)
    clock.advance(SPAN_S)
    fault = Fault("step", operation, f"{paths.PENDING}*", run=interrupt)
    result = leave(Table(client(FaultStore(store, [fault]), clock)))
    assert fault._seen, "it was interrupted"
    assert result().version == client(store).cache.refresh().version == 2


def test_a_client_of_an_older_contract_ends_nobody_after_its_commit(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-12: the contract changed between its decision and its look for the dead."""
    dead = Work.begin(client(store, clock), mark="dead")
    clock.advance(SPAN_S)
    handle = client(store, clock)
    handle = replace(handle, contract=handle.cache.refresh().table.contract)

    def change() -> None:
        newer = Contract("single_writer", "none", "eager")
        change_table(client(store, clock), lambda table: replace(table, contract=newer))

    faults = FaultStore(store, [Fault("step", "delete", f"{paths.PENDING}*", run=change)])
    handle = replace(handle, store=faults, cache=StateCache(faults, handle.ports))
    upsert(handle, 1, mark="alive")
    assert [entry.instant for entry in load_pending(store)] == [dead.txn.instant]
    assert client(store).cache.refresh().version == 2, "its commit, and the change"
