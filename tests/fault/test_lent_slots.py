"""Lent slots: a commit that something befalls at any call, and a crowd of unlucky clients."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

from plait.errors import LockUnavailableError, TableError
from plait.ports import Ports
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.table import Table
from plait.testing import Fault, FaultStore, SeqIds, SimulatedCrashError, sim_ports
from plait.txn.recovery import roll_back_failed
from tests.support.build import ids, rows
from tests.support.lending import Client, Keys, PlainStore, create_lent, lent_table, versions_in
from tests.support.memory import forget

CALLS_MAX = 60
CLIENTS, COMMITS = 4, 6
KINDS = ("crash_before", "crash_after", "error", "lost_reply")
_NAMES = itertools.count()


def ports() -> Ports:
    """Give a client its own ids, as every process has."""
    return sim_ports(ids=SeqIds(f"{next(_NAMES):06x}"))


def fresh() -> tuple[Store, Keys]:
    keys, store = Keys(), PlainStore(MemoryStore(f"memory://lent-fault-{next(_NAMES)}"))
    create_lent(store, Client(keys), ports(), "id bigint").append(rows(1))
    return store, keys


def die(client: Client, store: FaultStore, nth: int, *, after: bool) -> None:
    """Let a client die before or after a call of the service."""

    def fault(_operation: str, now_after: bool) -> None:
        if client.calls == nth and now_after is after:
            client.dead = store.dead = True
            raise SimulatedCrashError

    client.fault = fault


def recover_and_check(store: Store, keys: Keys, told: set[bool]) -> None:
    """Anybody goes on: what was told is so, versions are dense, nothing is lost or left over."""
    stranger = Table.open(store.address.uri)  # without the service
    alone = ids(stranger)
    assert alone in ([1], [1, 2])
    survivor = lent_table(store, Client(keys), ports())
    found = ids(survivor)
    assert set(alone) <= set(found)
    assert found in ([1], [1, 2])
    assert (2 in found) in told
    survivor.append(rows(3))
    assert ids(survivor) == sorted([*found, 3])
    roll_back_failed(survivor._handle, reason="test", everything=True)
    survivor.maintenance.clean()
    assert ids(survivor) == sorted([*found, 3])
    assert survivor.check.verify().problems == ()
    versions = list(versions_in(store))
    assert versions == list(range(len(versions)))
    assert ids(Table.open(store.address.uri)) == ids(survivor)


@pytest.mark.parametrize(
    "kind",
    [*KINDS, "service before", "service after"],
)
def test_what_befalls_any_call_is_told_as_it_is_and_made_good_by_anybody(kind: str) -> None:
    """INV-02, INV-03, INV-10: a call of the store, or of the service."""
    for nth in range(1, CALLS_MAX):
        store, keys = fresh()
        client, of_service = Client(keys), kind.startswith("service")
        faults = FaultStore(store, [] if of_service else [Fault(kind, nth=nth)])
        if of_service:
            die(client, faults, nth, after=kind.endswith("after"))
        told = {True}
        try:
            lent_table(faults, client, ports()).append(rows(2))
        except SimulatedCrashError:
            told = {True, False}
        except TableError as error:
            told = {True, False} if error.code == "outcome_unknown" else {False}
        recover_and_check(store, keys, told)
        if (client if of_service else faults).calls < nth:
            assert told == {True}
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


# --- a crowd of unlucky clients ----------------------------------------------------------------


def silent_at(client: Client, call: int, after: bool) -> None:
    """Let one call of the service get no answer, done or not."""

    def fault(_operation: str, now_after: bool) -> None:
        if client.calls == call and now_after is after:
            message = "no answer"
            raise LockUnavailableError(message)

    client.fault = fault


def commit(store: Store, keys: Keys, chance: random.Random, number: int) -> bool | None:
    """Append with some misfortune; give what the client was told, None if nothing sure."""
    client = Client(keys)
    if chance.random() < 0.4:
        silent_at(client, chance.randint(1, 8), chance.random() < 0.5)
    script = [Fault(chance.choice(KINDS), nth=chance.randint(1, 30))]
    faults = FaultStore(store, script if chance.random() < 0.5 else [])
    try:
        lent_table(faults, client, Ports()).append(rows(number))
    except SimulatedCrashError:
        return None
    except TableError as error:
        return None if error.code == "outcome_unknown" else False
    return True


@pytest.mark.parametrize("seed", range(6))
def test_what_clients_were_told_is_true_and_anybody_can_go_on(seed: int) -> None:
    """INV-02, INV-03, INV-06, INV-10."""
    keys, store = Keys(), PlainStore(MemoryStore(f"memory://crowd-{seed}"))
    create_lent(store, Client(keys), Ports(), "id bigint")
    told: dict[int, bool | None] = {}

    def run(first: int) -> None:
        chance = random.Random(f"{seed} {first}")
        for number in range(first, first + COMMITS):
            told[number] = commit(store, keys, chance, number)

    threads = [threading.Thread(target=run, args=(100 * n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    survivor = lent_table(store, Client(keys), Ports())
    found = ids(survivor)
    assert len(found) == len(set(found))
    assert {number for number, answer in told.items() if answer is True} <= set(found)
    assert not {number for number, answer in told.items() if answer is False} & set(found)
    survivor.append(rows(9_999))
    roll_back_failed(survivor._handle, reason="test", everything=True)
    survivor.maintenance.clean()
    assert survivor.check.verify().problems == ()
    versions = list(versions_in(store))
    assert versions == list(range(len(versions)))
    assert ids(Table.open(store.address.uri)) == ids(survivor) == [*found, 9_999]
    forget(store.address.uri)
