"""The stores for tests, tested."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.errors import StorageError
from plait.storage import open_store
from plait.storage.port import Store
from plait.testing import (
    CountingStore,
    Fault,
    FaultStore,
    ManualBackground,
    SeqIds,
    SimClock,
    SimulatedCrashError,
    StoreCall,
)
from tests.support.memory import forget


@pytest.fixture
def inner() -> Store:
    forget("memory://faults")
    return open_store("memory://faults")


def test_calls_are_counted_by_operation_and_kind(tmp_path: Path) -> None:
    store = CountingStore(open_store(str(tmp_path), create=True))
    store.put(".meta/pending/1", b"1")
    pq.write_table(pa.table({"a": [1]}), "day=1/f", filesystem=store.filesystem())
    store.persist(["day=1/f"])
    pq.ParquetFile(store.filesystem().open_input_file("day=1/f")).read()
    store.put_if_absent(".meta/timeline/0/1", b"1")
    store.delete([".meta/pending/1", "other"])
    assert store.counts("metadata") == {"put": 1, "put_if_absent": 1, "delete": 1}
    data = {"open_output": 1, "persist": 1, "open_input": 1, "delete": 1}
    assert store.counts("data") == data
    assert store.count("delete") == 2
    assert store.calls[0] == StoreCall("put", ".meta/pending/1")
    assert store.fsyncs > 2
    store.reset()
    assert (store.calls, store.fsyncs, store.counts()) == ((), 0, {})


@pytest.mark.parametrize(("kind", "written"), [("crash_before", False), ("crash_after", True)])
def test_a_crash_is_for_good(inner: Store, kind: str, written: bool) -> None:
    store = FaultStore(inner, [Fault(kind, "put", "slots/*", nth=2)])
    store.put("slots/1", b"1")
    store.put("other", b"1")
    with pytest.raises(SimulatedCrashError):
        store.put("slots/2", b"2")
    assert store.calls == 3
    assert (inner.find("slots/2") is not None) is written
    for attempt in (lambda: store.find("slots/1"), lambda: store.delete(["other"])):
        with pytest.raises(SimulatedCrashError):
            attempt()
    assert inner.find("other") == b"1"


def test_a_crash_is_not_handled_as_a_failure(inner: Store) -> None:
    def handle(store: Store) -> None:
        try:
            store.find("a")
        except Exception:  # noqa: BLE001 - what is shown here is that it does not catch
            pytest.fail("handled")

    with pytest.raises(SimulatedCrashError):
        handle(FaultStore(inner, [Fault("crash_before")]))


def test_an_error_does_nothing_and_a_lost_reply_everything(inner: Store) -> None:
    script = [Fault("error", "put_if_absent"), Fault("lost_reply", "put_if_absent")]
    store = FaultStore(inner, script)
    for found in (None, b"1"):
        with pytest.raises(StorageError) as caught:
            store.put_if_absent("slot", b"1")
        assert caught.value.path == "slot"
        assert inner.find("slot") == found
    assert store.put_if_absent("slot", b"2") is False


def test_a_delay_moves_the_clock_and_a_step_runs_first(inner: Store) -> None:
    clock, steps = SimClock(), list[str]()
    script = [
        Fault("delay", "find", delay_s=30),
        Fault("step", "find", run=lambda: steps.append("stepped")),
    ]
    store = FaultStore(inner, script, clock=clock)
    store.find("a")
    assert clock.monotonic() == 30
    store.find("a")
    assert steps == ["stepped"]


def test_a_stale_listing_shows_what_was(inner: Store) -> None:
    inner.put("dir/old", b"1")
    store = FaultStore(inner, [Fault("stale", "list", "dir")])
    inner.put("dir/new", b"1")
    assert [info.path for info in store.list("dir")] == ["dir/old"]
    assert [info.path for info in store.list("dir")] == ["dir/new", "dir/old"]


def test_faults_reach_files_that_arrow_opens(inner: Store) -> None:
    store = FaultStore(inner, [Fault("crash_before", "open_output")])
    with pytest.raises(SimulatedCrashError):
        store.filesystem().open_output_stream("day=1/f")


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="one of"):
        Fault("explode")


def test_simulated_ports_stand_still_until_told() -> None:
    clock, ids, background, beats = SimClock(), SeqIds("ab"), ManualBackground(), list[int]()
    assert clock.now_ms() == clock.now_ms()
    clock.sleep(1.5)
    assert (clock.monotonic(), clock.now_ms()) == (1.5, SimClock.START_MS + 1500)
    assert [ids.nonce() for _ in range(2)] == ["ab" + "0" * 13 + str(n) for n in (1, 2)]
    cancel = background.every(10, lambda: beats.append(1))
    background.run()
    cancel()
    background.run()
    assert beats == [1]
