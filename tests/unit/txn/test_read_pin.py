"""Leases say what a reader needs; a damaged one protects everything (INV-05, INV-11)."""

from __future__ import annotations

import pytest

from plait.storage.memory import MemoryStore
from plait.testing import Fault, FaultStore, ManualBackground, SimClock
from plait.timeline import paths
from plait.txn.read_pin import RENEW_S, TTL_S, ReadPin, load_read_pins
from tests.support.protocol import client, listed

NAMED = f"{paths.LEASES}/{7:020d}-{'a' * 16}"


def test_a_lease_protects_until_it_is_released(store: MemoryStore, clock: SimClock) -> None:
    handle = client(store, clock)
    lease = ReadPin(handle, 7)
    (found,) = load_read_pins(handle)
    assert (found.version, found.expired) == (7, False)
    lease.release()
    lease.release()
    assert load_read_pins(handle) == []
    assert listed(store, paths.LEASES) == []


def test_a_lease_runs_out_unless_it_is_renewed(store: MemoryStore, clock: SimClock) -> None:
    """INV-05."""
    background = ManualBackground()
    ReadPin(client(store, clock, background=background), 7)
    for _ in range(30):
        clock.advance(RENEW_S)
        background.run()
    (found,) = load_read_pins(client(store, clock))
    assert not found.expired
    clock.advance(TTL_S + 1)
    (found,) = load_read_pins(client(store, clock))
    assert found.expired


@pytest.mark.parametrize(
    "body", [b"", b"rubbish", b"[]", b"{}", b'{"version":"x"}', b"[" * 10_000, b"\xff"]
)
def test_a_damaged_lease_protects_everything_until_it_runs_out(
    store: MemoryStore, clock: SimClock, body: bytes
) -> None:
    """INV-05."""
    store.put(NAMED, body)
    (found,) = load_read_pins(client(store, clock))
    assert (found.version, found.expired) == (0, False)
    clock.advance(TTL_S + 1)
    (found,) = load_read_pins(client(store, clock))
    assert found.expired


@pytest.mark.parametrize(
    "name", ["x", ".DS_Store", f"{7:020d}", f"{7:020d}-{'a' * 16}.tmp", f"x/{7:020d}-{'a' * 16}"]
)
def test_what_has_not_the_name_of_a_lease_is_none(
    store: MemoryStore, clock: SimClock, name: str
) -> None:
    """INV-06: nobody deletes it; with a time in the future it kept every file for ever."""
    store.put(f"{paths.LEASES}/{name}", b'{"version":0,"ttl_s":60,"host":"h","pid":1}')
    assert load_read_pins(client(store, clock)) == []


@pytest.mark.parametrize(("broken", "left"), [("put", 0), ("delete", 1)])
def test_a_reader_reads_though_its_lease_cannot_be_written_or_released(
    store: MemoryStore, broken: str, left: int
) -> None:
    """INV-11: one that cannot be deleted runs out."""
    lease = ReadPin(client(FaultStore(store, [Fault("error", broken, times=9)])), 7)
    lease.release()
    assert len(listed(store, paths.LEASES)) == left
