"""Lent slots under a crowd of unlucky clients: crashes, errors, lost replies, silent service."""

from __future__ import annotations

import random
import threading

import pytest

from plait.errors import LockUnavailableError, TableError
from plait.ports import Ports
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.table import Table
from plait.testing import Fault, FaultStore, SimulatedCrashError
from plait.txn.recovery import roll_back_failed
from tests.support.build import ids, rows
from tests.support.lending import Client, Keys, PlainStore, create_lent, lent_table, versions_in
from tests.support.memory import forget

CLIENTS, COMMITS = 4, 6
KINDS = ("crash_before", "crash_after", "error", "lost_reply")


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
