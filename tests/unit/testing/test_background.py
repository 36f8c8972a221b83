"""Background work without threads to be had: late at worst, never lost (INV-10, INV-11)."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plait import Table
from plait.ports import Ports, SystemClock, ThreadBackground
from plait.state.cache import StateCache
from plait.storage.memory import MemoryStore
from plait.testing import CountingStore, SeqIds, SimClock
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.heartbeat import Heartbeat
from plait.txn.read_pin import ReadPin, load_read_pins, release_with
from plait.txn.table_handle import TableHandle
from tests.support.protocol import NoLock, Phases, Work, client

SOON_S = 0.01
WAIT_S = 30.0


class Threads:
    """Gives threads while there are some, as a system with a limit does."""

    def __init__(self, left: int = 0) -> None:
        self.left = left
        self.refused = threading.Semaphore(0)

    def __call__(self, *, target: Callable[[], None], name: str, daemon: bool) -> threading.Thread:
        threads = self

        class Limited(threading.Thread):
            def start(self) -> None:
                if threads.left <= 0:
                    threads.refused.release()
                    message = "can't start new thread"
                    raise RuntimeError(message)
                threads.left -= 1
                super().start()

        return Limited(target=target, name=name, daemon=daemon)


class Cancelled(ThreadBackground):
    """Cancels at the end of the test what the test left."""

    def __init__(self, threads: Threads) -> None:
        super().__init__(threads)
        self.left: list[Callable[[], None]] = []
        _MADE.append(self)

    def every(self, interval_s: float, step: Callable[[], None]) -> Callable[[], None]:
        cancel = super().every(interval_s, step)
        self.left.append(cancel)
        return cancel


_MADE: list[Cancelled] = []


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    yield
    for made in _MADE:
        for cancel in made.left:
            cancel()
    _MADE.clear()


class Steps:
    """Counts steps, and waits for more of them."""

    def __init__(self, limit: int = 10**9) -> None:
        self._taken = threading.Semaphore(0)
        self.names: list[str] = []
        self.limit = limit

    def __call__(self) -> None:
        self.names.append(threading.current_thread().name)
        self._taken.release()

    def wait(self, count: int) -> bool:
        return all(self._taken.acquire(timeout=WAIT_S) for _ in range(count))


def site_with(store: MemoryStore, background: ThreadBackground) -> TableHandle:
    ports = Ports(SimClock(), SeqIds("ab"), Phases(), background)
    return TableHandle(store, ports, StateCache(store, ports), NoLock())


def test_a_step_that_gets_no_thread_is_taken_by_the_watcher_until_it_gets_one() -> None:
    """INV-11: one refused thread ended every heartbeat and every renewal of the process."""
    threads = Threads(left=1)
    background = Cancelled(threads)
    steps, others = Steps(), Steps()
    cancel = background.every(SOON_S, steps)
    cancel_other = background.every(SOON_S, others)
    assert steps.wait(3)
    assert others.wait(3)
    assert set(steps.names) == {"plait-background"}
    threads.left = 2
    assert steps.wait(20)
    assert others.wait(20)
    assert {steps.names[-1], others.names[-1]} == {"plait-step"}
    cancel()
    cancel_other()
    taken = len(steps.names)
    background.every(SOON_S, others)
    assert others.wait(5)
    assert len(steps.names) == taken


@pytest.mark.parametrize("call", ["tend", "every", "cancel"])
def test_a_watcher_that_could_not_start_is_started_by_the_next_call(call: str) -> None:
    """INV-11."""
    threads = Threads()
    background = Cancelled(threads)
    steps = Steps()
    background.every(SOON_S, steps)
    unneeded = background.every(3_600, Steps())
    assert threads.refused.acquire(timeout=WAIT_S)
    assert steps.names == []
    threads.left = 2
    {"tend": background.tend, "every": lambda: background.every(9, Steps()), "cancel": unneeded}[
        call
    ]()
    assert steps.wait(3)


def test_a_step_can_cancel_itself_and_a_canceller_waits_for_a_step_of_the_watcher() -> None:
    threads = Threads(left=1)
    background = Cancelled(threads)
    entered, go, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go.wait(WAIT_S)
        ended.set()

    cancel = background.every(SOON_S, slow)
    assert entered.wait(WAIT_S)
    waiter = threading.Thread(target=cancel)
    waiter.start()
    assert waiter.is_alive()
    go.set()
    waiter.join(WAIT_S)
    assert ended.is_set()
    assert not waiter.is_alive()
    done = threading.Event()
    cancels: list[Callable[[], None]] = []

    def once() -> None:
        cancels[0]()
        done.set()

    cancels.append(background.every(SOON_S, once))
    assert done.wait(WAIT_S)


@pytest.mark.parametrize("left", [0, 1])
def test_a_commit_that_landed_raises_nothing_for_want_of_threads(
    store: MemoryStore, left: int
) -> None:
    """INV-10: "not committed" was reported of a commit that had landed."""
    threads = Threads(left)
    counting = CountingStore(store)
    handle = site_with(counting, Cancelled(threads))  # type: ignore[arg-type]  # a store
    work = Work.begin(handle, mark="landed")
    work.txn.heartbeat._cancel()
    beat = Steps()
    work.txn.heartbeat._cancel = handle.ports.background.every(SOON_S, beat)
    assert threads.refused.acquire(timeout=WAIT_S)
    assert work.commit().version == 1
    assert load_pending(store) == []
    if left:
        assert beat.names


def test_a_heartbeat_goes_on_without_threads_of_its_own(store: MemoryStore) -> None:
    """INV-11."""

    threads = Threads(left=1)
    handle = site_with(store, Cancelled(threads))
    work = Work.begin(handle, mark="alive")
    heartbeat = Heartbeat(handle, work.txn.instant, interval_s=SOON_S, since=0)
    clock = SystemClock()
    until = clock.monotonic() + WAIT_S
    path = paths.heartbeat(work.txn.instant)
    while (store.find(path) or b"0") < b"3" and clock.monotonic() < until:
        clock.sleep(SOON_S)
    assert int(store.find(path) or b"0") >= 3
    heartbeat.stop()


def test_a_lease_that_is_dropped_in_an_event_loop_without_threads_is_released_later(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-11: it was renewed for ever."""

    class Refused(threading.Thread):
        def start(self) -> None:
            message = "can't start new thread"
            raise RuntimeError(message)

    class Owner:
        pass

    steps: list[Callable[[], None]] = []

    class Background(ThreadBackground):
        def every(self, interval_s: float, step: Callable[[], None]) -> Callable[[], None]:
            steps.append(step)
            return steps.clear

    lease = ReadPin(site_with(store, Background()), 0)
    owner: Owner | None = Owner()
    release_with(owner, lease)

    async def drop() -> None:
        nonlocal owner
        monkeypatch.setattr(threading, "Thread", Refused)
        owner = None
        gc.collect()
        monkeypatch.undo()

    asyncio.run(drop())
    assert len(load_read_pins(client(store))) == 1
    for step in steps:
        step()
    assert load_read_pins(client(store)) == []
    assert steps == []


PROGRAM = """
import sys, threading
import pyarrow as pa
from plait import Table

table = Table.open(sys.argv[1])
rows = pa.table({"id": range(8_000), "v": ["x" * 250] * 8_000})
start = threading.Thread.start

def refused(self):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refused
assert table.upsert(rows).version == 1
with table.writer("upsert") as writer:
    for at in range(0, 8_000, 2_000):
        writer.write(rows.slice(at, 2_000))
assert writer.result.version == 2
scan = table.scan()
assert scan.to_arrow().num_rows == 8_000
assert table.maintenance.clean().version is None
threading.Thread.start = start
assert table.upsert(rows).version == 3
print("done")
"""


@pytest.mark.long(1)
@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_process_without_threads_writes_reads_and_cleans(tmp_path: Path, table_type: str) -> None:
    """INV-10: writers, scans and syncs do the work of their helpers themselves."""

    place = str(tmp_path / "table")
    small = {"write.bucket.size": "64KiB", "write.buffer.size": "512KiB"}
    Table.create(
        place,
        "id bigint, v string",
        record_key=["id"],
        table_type=table_type,
        lock="none",
        properties=small,
    )
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, place],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
    assert Table.open(place).check.verify().problems == ()
