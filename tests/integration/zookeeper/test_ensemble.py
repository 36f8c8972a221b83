"""An ensemble of three: its leader is killed, its majority is lost."""

from __future__ import annotations

import threading
import time

import pytest

from plait.errors import LockUnavailableError
from plait.locks import open_lock
from plait.locks.port import LockProvider
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
from plait.testing.lock_kit import MemoryCounter, Turn, overlaps, until
from tests.services.zookeeper import ZooKeeper

pytestmark = pytest.mark.zookeeper


def provider(lock: str) -> LockProvider:
    return open_lock(lock, open_store("memory://ensemble"), Ports(), Consent().also(lock))


def test_a_leader_that_is_killed_costs_neither_the_lock_nor_the_order(ensemble: ZooKeeper) -> None:
    """INV-11."""
    lock = ensemble.lock("leader", session="20s")
    granted = threading.Event()

    def wait() -> None:
        with provider(lock).acquire(wait_s=60, owner="the second"):
            granted.set()

    with provider(lock).acquire(wait_s=60, owner="the first") as held:
        second = threading.Thread(target=wait)
        second.start()
        leader = ensemble.leader
        leader.kill()
        assert until(lambda: held.lost is None and answers(lock))
        assert not granted.is_set()
        holder = provider(lock).holder()
        assert holder is not None
        assert "the first" in holder.owner
        assert holder.token == held.token
    assert granted.wait()
    second.join()
    leader.start()
    leader.wait_ready()


def test_a_leader_that_is_paused_is_succeeded_and_comes_back(ensemble: ZooKeeper) -> None:
    """Its connections stay open and silent; the lock is kept across the change."""
    lock = ensemble.lock("paused", session="20s")
    with provider(lock).acquire(wait_s=60, owner="me") as held:
        leader = ensemble.leader
        leader.pause()
        try:
            others = [server for server in ensemble.servers if server is not leader]
            assert until(lambda: any(each.role() == "leader" for each in others))
            assert until(lambda: held.lost is None and answers(lock))
            holder = provider(lock).holder()
            assert holder is not None
            assert holder.token == held.token
        finally:
            leader.resume()
        assert until(lambda: leader.role() == "follower")


def answers(lock: str) -> bool:
    try:
        return provider(lock).holder() is not None
    except LockUnavailableError:
        return False


def test_turns_go_on_while_leaders_die(ensemble: ZooKeeper) -> None:
    lock = ensemble.lock("turns", session="20s")
    counter, turns = MemoryCounter(), list[Turn]()

    def run(name: str) -> None:
        for _ in range(40):
            asked = time.monotonic()
            with provider(lock).acquire(wait_s=60, owner=name):
                entered = time.monotonic()
                counter.increase()
                turns.append((entered, time.monotonic(), name, asked))

    workers = [threading.Thread(target=run, args=(f"thread {n}",)) for n in range(3)]
    for worker in workers:
        worker.start()
    leader = ensemble.leader
    leader.kill()
    for worker in workers:
        worker.join()
    leader.start()
    leader.wait_ready()
    assert overlaps(turns) == []
    assert counter.value == len(turns) == 120


def test_a_lost_majority_is_a_loss_until_it_is_back(ensemble: ZooKeeper) -> None:
    lock = ensemble.lock("majority", session="30s")
    with provider(lock).acquire(wait_s=60, owner="me") as held:
        for server in ensemble.servers[:2]:
            server.kill()
        assert until(lambda: held.lost is not None)
        for server in ensemble.servers[:2]:
            server.start()
        for server in ensemble.servers:
            server.wait_ready()
        assert until(lambda: held.lost is None)
        holder = provider(lock).holder()
        assert holder is not None
        assert holder.token == held.token
