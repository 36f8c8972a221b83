"""Pending records say what an instant needs; damaged ones protect more, never less (INV-05)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from plait.definition.features import KNOWN
from plait.model.instant import Instant, Operation, State
from plait.storage.memory import MemoryStore
from plait.testing import SimClock
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, load_pending, write_inflight, write_requested
from tests.support.protocol import memory

INSTANT = Instant.at(1_700_000_000_000, "a" * 16)
PENDING = PendingInstant(
    INSTANT,
    State.REQUESTED,
    Operation.UPSERT,
    7,
    (("a", None),),
    host="here",
    pid=9,
    started_ms=5,
    timeout_s=120.0,
)


@pytest.fixture
def store(clock: SimClock) -> MemoryStore:
    return memory(clock)


def test_a_record_is_read_as_it_was_written(store: MemoryStore, clock: SimClock) -> None:
    path = write_requested(store, PENDING)
    (found,) = load_pending(store)
    assert found == replace(PENDING, touched_ms=clock.now_ms(), records=(path,), features=KNOWN)


def test_records_of_one_instant_come_together(store: MemoryStore, clock: SimClock) -> None:
    """INV-06: recovery must know every partition that any task named."""
    write_requested(store, PENDING)
    clock.advance(1)
    write_inflight(store, INSTANT, [("b", "c")], attempt="d1")
    clock.advance(1)
    write_inflight(store, INSTANT, [("b", "c"), ("d", "e")], attempt="t-3")
    (found,) = load_pending(store)
    assert found.state is State.INFLIGHT
    assert found.v0 == 7
    assert set(found.partitions) == {("a", None), ("b", "c"), ("d", "e")}
    assert len(found.records) == 3
    assert found.touched_ms == clock.now_ms()


def test_instants_come_oldest_first_each_with_its_own(store: MemoryStore) -> None:
    others = [Instant.at(ms, "b" * 16) for ms in (3_000, 1_000, 2_000)]
    for instant in others:
        write_requested(store, replace(PENDING, instant=instant))
    assert [found.instant for found in load_pending(store)] == sorted(others)


def test_a_heartbeat_counts_as_a_sign_of_life(store: MemoryStore, clock: SimClock) -> None:
    write_requested(store, PENDING)
    clock.advance(50)
    store.put(paths.heartbeat(INSTANT), b"1")
    store.put(paths.heartbeat(Instant.at(0, "b" * 16)), b"of nobody")
    (found,) = load_pending(store)
    assert found.heartbeat == paths.heartbeat(INSTANT)
    assert found.touched_ms == clock.now_ms()


RUBBISH = [
    b"",
    b"\x00" * 50,
    b"rubbish",
    b"[]",
    b"{}",
    b"null",
    b"7",
    b"[" * 100_000,
    b'{"instant":"x","v0":"x","partitions":7}',
    b'{"v0":1e999,"partitions":[[1],"a",null]}',
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", RUBBISH, ids=range(len(RUBBISH)))
def test_a_record_that_cannot_be_read_protects_everything(store: MemoryStore, body: bytes) -> None:
    """INV-05, INV-06: cleaning waits, and no partition is named in which to delete."""
    store.put(paths.requested(INSTANT), body)
    (found,) = load_pending(store)
    assert found.v0 == 0
    assert found.partitions == ()
    assert found.records == (paths.requested(INSTANT),)


@pytest.mark.parametrize("field", ["v0", "operation", "host", "pid", "started_ms", "timeout_s"])
@pytest.mark.parametrize("value", ["missing", None, -5, "x", [], {}, 1e300, "Infinity", "NaN"])
def test_a_record_with_one_bad_value_protects_everything_or_is_whole(
    store: MemoryStore, field: str, value: object
) -> None:
    """INV-05."""
    path = write_requested(store, PENDING)
    document = json.loads(store.find(path) or b"")
    if value == "missing":
        del document[field]
    else:
        document[field] = value
    store.put(path, json.dumps(document).encode())
    (found,) = load_pending(store)
    if found.v0 != 0:
        assert field in ("host", "operation", "pid")
        assert found.v0 == 7
    assert found.timeout_s >= 0
    assert found.timeout_s <= 1e9
    assert found.partitions == PENDING.partitions


def test_a_missing_record_of_the_request_protects_everything(store: MemoryStore) -> None:
    """INV-05: what is left of it may be an inflight record alone."""
    write_inflight(store, INSTANT, [("b", "c")])
    (found,) = load_pending(store)
    assert (found.v0, found.partitions) == (0, (("b", "c"),))


def test_names_that_are_no_instants_are_no_records(store: MemoryStore) -> None:
    for name in ("x.requested", "2026-aaaa.requested", "readme", f"{INSTANT}x.requested"):
        store.put(f"{paths.PENDING}/{name}", b"{}")
    assert load_pending(store) == []
