"""A machine that slept with its writers and readers does not take them for dead (RFC 0013)."""

from __future__ import annotations

import time

import pytest

from plait.ports import SystemClock
from plait.services.maintenance.clean import clean
from plait.storage.memory import MemoryStore
from plait.testing import ManualBackground, SimClock
from plait.txn.read_pin import RENEW_S, TTL_S, ReadPin, load_read_pins
from plait.txn.recovery import roll_back_failed
from tests.support.build import LITTLE
from tests.support.protocol import Work, client, create, memory, upsert

NIGHT_S = 8 * 3_600.0
BEAT_S = 10.0


def test_living_writers_are_spared_when_their_machine_wakes(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: an hour of sleep looked like an hour of silence."""
    background = ManualBackground()
    work = Work.begin(client(store, clock, background=background), mark="slept")
    judge = client(store, clock)
    clock.suspend(NIGHT_S)
    assert roll_back_failed(judge, reason="test").ended == ()
    assert roll_back_failed(client(store, clock), reason="test").ended == ()
    clock.advance(BEAT_S)
    background.run()
    clock.advance(3 * BEAT_S)
    assert roll_back_failed(judge, reason="test").ended == ()
    clock.suspend(NIGHT_S)
    assert roll_back_failed(judge, reason="test").ended == ()
    assert work.commit().version == 1


def test_the_dead_of_a_machine_that_slept_are_ended_at_a_later_look(
    store: MemoryStore, clock: SimClock
) -> None:
    """Once they were silent for a fresh interval in which the machine was awake."""
    clock.advance(1_000)  # it has been up for a while
    work = Work.begin(client(store, clock), mark="died")
    judge = client(store, clock)
    clock.suspend(NIGHT_S)
    assert roll_back_failed(judge, reason="test").spared == (work.txn.instant,)
    clock.advance(2 * BEAT_S)
    assert roll_back_failed(judge, reason="test").spared == (work.txn.instant,)
    clock.suspend(NIGHT_S)
    assert roll_back_failed(judge, reason="test").spared == (work.txn.instant,)
    clock.advance(1)
    (ended,) = roll_back_failed(judge, reason="test").ended
    assert ended.instant == work.txn.instant


def test_a_silence_that_no_sleep_explains_is_judged_at_once(
    store: MemoryStore, clock: SimClock
) -> None:
    clock.suspend(NIGHT_S)
    Work.begin(client(store, clock), mark="died")
    clock.advance(NIGHT_S + 119)
    assert roll_back_failed(client(store, clock), reason="test").ended == ()
    clock.advance(2)
    assert len(roll_back_failed(client(store, clock), reason="test").ended) == 1


@pytest.mark.parametrize("alive", [True, False])
def test_leases_of_a_machine_that_slept_run_out_only_if_they_are_not_renewed(
    clock: SimClock, *, alive: bool
) -> None:
    """INV-05."""
    store = memory(clock)
    create(
        store,
        properties=LITTLE,
    )
    background = ManualBackground()
    upsert(client(store, clock), mark="0")
    ReadPin(client(store, clock, background=background), 1)
    for number in range(1, 4):
        upsert(client(store, clock), mark=str(number))
    clock.suspend(NIGHT_S)
    cleaner = client(store, clock)
    assert clean(cleaner).deleted == ()
    if alive:
        background.run()
    clock.advance(2 * RENEW_S + 1)
    assert bool(clean(cleaner).deleted) is not alive
    assert len(load_read_pins(cleaner)) == alive
    clock.advance(NIGHT_S + TTL_S)
    assert clean(client(store, clock)).spared == ()
    assert load_read_pins(client(store, clock)) == []


def test_the_machine_tells_for_how_long_it_slept() -> None:
    clock = SystemClock()
    before = clock.asleep_s()
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    if boot is not None:
        expected = time.clock_gettime(boot) - time.clock_gettime(time.CLOCK_MONOTONIC)
        assert before == pytest.approx(max(0.0, expected), abs=0.5)
    assert 0 <= before <= clock.asleep_s() + 0.5
