"""Lent slots: a commit that crashes at any call, or meets another commit there."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from plait.errors import TableError
from plait.ports import Ports
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.table import Table
from plait.testing import Fault, FaultStore, SeqIds, SimulatedCrashError, sim_ports
from plait.txn.recovery import roll_back_failed
from tests.support.build import ids, rows
from tests.support.lending import Client, Keys, PlainStore, create_lent, lent_table, versions_in

CALLS_MAX = 60
_NAMES = itertools.count()


def ports() -> Ports:
    """Give a client its own ids, as every process has."""
    return sim_ports(ids=SeqIds(f"{next(_NAMES):06x}"))


def fresh() -> tuple[Store, Keys]:
    keys, store = Keys(), PlainStore(MemoryStore(f"memory://lent-fault-{next(_NAMES)}"))
    create_lent(store, Client(keys), ports(), "id bigint").append(rows(1))
    return store, keys


def recover_and_check(store: Store, keys: Keys) -> None:
    """Anybody goes on: nothing is lost or doubled, versions are dense, nothing is left over."""
    stranger = Table.open(store.address.uri)  # without the service
    alone = ids(stranger)
    assert alone in ([1], [1, 2])
    survivor = lent_table(store, Client(keys), ports())
    found = ids(survivor)
    assert set(alone) <= set(found)
    assert found in ([1], [1, 2])
    survivor.append(rows(3))
    assert ids(survivor) == sorted([*found, 3])
    roll_back_failed(survivor._handle, reason="test", everything=True)
    survivor.maintenance.clean()
    assert ids(survivor) == sorted([*found, 3])
    assert survivor.check.verify().problems == ()
    versions = list(versions_in(store))
    assert versions == list(range(len(versions)))
    assert ids(Table.open(store.address.uri)) == ids(survivor)


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
def test_a_crash_at_any_call_of_the_store_is_made_good_by_anybody(kind: str) -> None:
    """INV-02, INV-03, INV-10."""
    for nth in range(1, CALLS_MAX):
        store, keys = fresh()
        faults = FaultStore(store, [Fault(kind, nth=nth)])
        survived = attempt(lent_table(faults, Client(keys), ports()))
        recover_and_check(store, keys)
        if faults.calls < nth:
            assert survived
            return
    pytest.fail("the commit has no end")


def attempt(table: Table) -> bool:
    try:
        table.append(rows(2))
    except SimulatedCrashError:
        return False
    return True


def die_at(
    client: Client, store: FaultStore, nth: int, after: bool, _operation: str, now_after: bool
) -> None:
    if client.calls == nth and now_after is after:
        client.dead = store.dead = True
        raise SimulatedCrashError


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_call_of_the_service_is_made_good_by_anybody(after: bool) -> None:
    """INV-02, INV-03."""
    for nth in range(1, CALLS_MAX):
        store, keys = fresh()
        client = Client(keys)
        faults = FaultStore(store)

        client.fault = partial(die_at, client, faults, nth, after)
        survived = attempt(lent_table(faults, client, ports()))
        recover_and_check(store, keys)
        if client.calls < nth:
            assert survived
            return
    pytest.fail("the commit has no end")


def test_whatever_call_another_commit_comes_between_both_stand() -> None:
    """INV-02, INV-07."""
    for nth in range(1, CALLS_MAX):
        store, keys = fresh()
        other = lent_table(store, Client(keys), ports())
        step = Fault("step", nth=nth, run=lambda other=other: other.append(rows(3)))
        faults = FaultStore(store, [step])
        table = lent_table(faults, Client(keys), ports())
        table.append(rows(2))
        if faults.calls < nth:
            assert nth > 6
            return
        assert ids(table) == ids(other) == ids(Table.open(store.address.uri)) == [1, 2, 3]
        assert table.check.verify().problems == ()
        versions = list(versions_in(store))
        assert versions == list(range(4))
    pytest.fail("the commit has no end")


@pytest.mark.parametrize("kind", ["error", "lost_reply"])
def test_an_error_at_any_call_is_never_told_as_what_it_was_not(kind: str) -> None:
    """INV-10."""
    for nth in range(1, CALLS_MAX):
        store, keys = fresh()
        faults = FaultStore(store, [Fault(kind, nth=nth)])
        table = lent_table(faults, Client(keys), ports())
        try:
            table.append(rows(2))
            told = {True}
        except TableError as error:
            told = {True, False} if error.code == "outcome_unknown" else {False}
        survivor = lent_table(store, Client(keys), ports())
        assert (2 in ids(survivor)) in told
        assert survivor.check.verify().problems == ()
        if faults.calls < nth:
            return
    pytest.fail("the commit has no end")
