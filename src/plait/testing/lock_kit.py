"""What every lock must do. Subclass it and provide its fixture.

``LockKit`` needs ``providers``: a function that opens the lock again, once for each thread.
``LosableLockKit`` also needs ``lose``. ``SharedLockKit``, and ``ExpiringLockKit`` for locks that
pass from a silent holder to the next, need ``lock`` and ``store``: processes open the lock by its
text in the contract and the store's address.

Two detectors that know nothing of each other look for two holders at once: the times of entering
and leaving, on one monotonic clock, and a counter that is read and written without protection.
"""

# Tests: their names say what is promised, and their asserts are the point.
# ruff: noqa: S101, D102, PLR2004

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from plait.errors import LockTimeoutError
from plait.locks import open_lock
from plait.locks.port import LockProvider
from plait.model.consent import Consent
from plait.ports import Ports, SystemClock
from plait.storage.port import Store
from plait.testing.expect import refused

Turn = tuple[float, float, str, float]
"""When the lock was taken and released, by whom, and when it was asked for."""


class Counter(Protocol):
    """A number that loses counts if two holders increase it at once."""

    def increase(self) -> None:
        """Read it, wait a little, write it."""
        ...


class MemoryCounter:
    """Counts in memory."""

    def __init__(self) -> None:
        self.value = 0

    def increase(self) -> None:
        """Read it, wait a little, write it."""
        value = self.value
        SystemClock().sleep(0.0005)
        self.value = value + 1


class FileCounter:
    """Counts in a file."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    @property
    def value(self) -> int:
        """The number."""
        return int(self._path.read_text()) if self._path.exists() else 0

    def increase(self) -> None:
        """Read it, wait a little, write it."""
        value = self.value
        SystemClock().sleep(0.0005)
        self._path.write_text(str(value + 1))


def take_turns(provider: LockProvider, name: str, turns: int, counter: Counter) -> list[Turn]:
    """Hold the lock briefly, ``turns`` times; return when."""
    taken: list[Turn] = []
    for _ in range(turns):
        asked = time.monotonic()
        with provider.acquire(wait_s=60, owner=name) as held:
            entered = time.monotonic()
            counter.increase()
            lost = held.lost
            taken.append((entered, time.monotonic(), name, asked))
        assert lost is None
    return taken


def overlaps(turns: Sequence[Turn]) -> list[tuple[Turn, Turn]]:
    """Find turns that overlap in time."""
    ordered = sorted(turns)
    return [(one, two) for one, two in itertools.pairwise(ordered) if two[0] < one[1]]


def longest_wait(turns: Sequence[Turn]) -> int:
    """Count the most turns that began while one owner waited for another turn after its first."""
    ordered = sorted(turns)
    began = [turn[0] for turn in ordered]
    seen, longest = set[str](), 0
    for entered, _, name, asked in ordered:
        if name in seen:
            longest = max(longest, bisect_left(began, entered) - bisect_right(began, asked))
        seen.add(name)
    return longest


class LockKit:
    """The guarantees of the lock port between the threads of one process."""

    def test_one_holds_it_at_a_time(self, providers: Callable[[], LockProvider]) -> None:
        counter, turns = self._race(providers, threads=6, each=15)
        assert overlaps(turns) == []
        assert counter.value == len(turns) == 90

    def test_waiters_are_served_about_in_order(self, providers: Callable[[], LockProvider]) -> None:
        _, turns = self._race(providers, threads=4, each=15)
        assert longest_wait(turns) <= 24, "a client waited while others got the lock many times"

    def test_waiting_ends_in_time_and_names_the_holder(
        self, providers: Callable[[], LockProvider]
    ) -> None:
        with providers().acquire(wait_s=60, owner="the first"):
            began = time.monotonic()
            for wait_s in (0.0, 0.2):
                second = providers().acquire(wait_s=wait_s, owner="the second")
                with refused(LockTimeoutError) as refusal, second:
                    pass
                assert "the first" in str(refusal.error.holder)
                assert refusal.error.waited_ms == int(wait_s * 1000)
            assert time.monotonic() - began < 5

    def test_an_exception_frees_it(self, providers: Callable[[], LockProvider]) -> None:
        provider = providers()
        with suppress(ZeroDivisionError), provider.acquire(wait_s=60, owner="the unlucky"):
            raise ZeroDivisionError
        with providers().acquire(wait_s=10, owner="the next") as held:
            assert held.lost is None

    def test_it_can_be_taken_again_and_after_a_timeout(
        self, providers: Callable[[], LockProvider]
    ) -> None:
        provider, other = providers(), providers()
        for _ in range(3):
            late = other.acquire(wait_s=0, owner="two")
            with provider.acquire(wait_s=60, owner="one"), refused(LockTimeoutError), late:
                pass
            with other.acquire(wait_s=60, owner="two"):
                pass

    def test_it_tells_who_holds_it_and_since_when(
        self, providers: Callable[[], LockProvider]
    ) -> None:
        provider, began_ms = providers(), SystemClock().now_ms()
        assert provider.holder() is None
        with provider.acquire(wait_s=60, owner="the first"):
            holder = providers().holder()
            assert holder is not None
            assert "the first" in holder.owner
            assert holder.lost is None
            assert holder.since_ms is not None
            assert abs(holder.since_ms - began_ms) < 10_000
        assert provider.holder() is None

    def test_its_tokens_grow(self, providers: Callable[[], LockProvider]) -> None:
        tokens: list[int | None] = []
        for _ in range(3):
            with providers().acquire(wait_s=60, owner="one") as held:
                tokens.append(held.token)
        known = [token for token in tokens if token is not None]
        assert not known or (len(known) == 3 and known == sorted(set(known)))

    def _race(
        self, providers: Callable[[], LockProvider], *, threads: int, each: int
    ) -> tuple[MemoryCounter, list[Turn]]:
        counter, turns = MemoryCounter(), list[Turn]()
        start = threading.Barrier(threads)

        def run(name: str) -> None:
            provider = providers()
            start.wait()
            turns.extend(take_turns(provider, name, each, counter))

        workers = [threading.Thread(target=run, args=(f"thread {n}",)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return counter, turns


class LosableLockKit:
    """The guarantees of a lock that can be lost while it is held.

    The fixture ``lose`` takes the lock from its holder, as a failure of this kind of lock does.
    """

    def test_a_loss_is_seen(
        self, providers: Callable[[], LockProvider], lose: Callable[[], None]
    ) -> None:
        with providers().acquire(wait_s=60, owner="the unlucky") as held:
            assert held.lost is None
            lose()
            assert until(lambda: held.lost is not None), "the holder believes it holds the lock"

    def test_what_was_lost_and_let_go_of_can_be_taken_again(
        self, providers: Callable[[], LockProvider], lose: Callable[[], None]
    ) -> None:
        with providers().acquire(wait_s=60, owner="the unlucky") as first:
            lose()
            assert until(lambda: first.lost is not None)
        with providers().acquire(wait_s=60, owner="the next") as second:
            assert second.lost is None
            if first.token is not None and second.token is not None:
                assert second.token > first.token


def until(true: Callable[[], bool], *, wait_s: float = 120) -> bool:
    """Wait until it is true; return whether it became true in time."""
    deadline = time.monotonic() + wait_s
    while not true():
        if time.monotonic() > deadline:
            return False
        SystemClock().sleep(0.01)
    return True


class SharedLockKit:
    """The guarantees between processes."""

    each = 12

    def test_one_process_holds_it_at_a_time(self, lock: str, store: Store, tmp_path: Path) -> None:
        workers = [Worker(lock, store, f"process {n}", str(tmp_path / "count")) for n in range(3)]
        for worker in workers:
            worker.hear()
        for worker in workers:
            worker.tell(f"turns {self.each}")
        turns = [turn for worker in workers for turn in worker.hear()]
        for worker in workers:
            worker.kill()
        assert overlaps(turns) == []
        assert FileCounter(str(tmp_path / "count")).value == len(turns) == 3 * self.each
        assert longest_wait(turns) <= 2 * self.each - 4, "a client waited until the end"

    def test_a_killed_holder_frees_it(self, lock: str, store: Store, tmp_path: Path) -> None:
        worker = Worker(lock, store, "the doomed", str(tmp_path / "count"))
        worker.hear()
        worker.tell("hold")
        worker.hear()
        provider = open_lock(lock, store, Ports(), Consent().also(lock))
        heir = provider.acquire(wait_s=0.1, owner="the heir")
        with refused(LockTimeoutError) as refusal, heir:
            pass
        assert "the doomed" in str(refusal.error.holder)
        worker.kill()
        with provider.acquire(wait_s=60, owner="the heir"):
            holder = provider.holder()
            assert holder is not None
            assert "the heir" in holder.owner

    def test_a_killed_waiter_holds_nobody_up(self, lock: str, store: Store, tmp_path: Path) -> None:
        provider = open_lock(lock, store, Ports(), Consent().also(lock))
        worker = Worker(lock, store, "the doomed", str(tmp_path / "count"))
        worker.hear()
        with provider.acquire(wait_s=60, owner="the first"):
            worker.tell("hold")
            SystemClock().sleep(0.3)  # so that it is in the queue
            worker.kill()
        with open_lock(lock, store, Ports(), Consent().also(lock)).acquire(
            wait_s=60, owner="the next"
        ):
            pass


class ExpiringLockKit(SharedLockKit):
    """The guarantees between processes of a lock that a silent holder loses."""

    def test_a_paused_holder_has_an_heir_and_sees_its_loss(
        self, lock: str, store: Store, tmp_path: Path
    ) -> None:
        worker = Worker(lock, store, "the paused", str(tmp_path / "count"))
        worker.hear()
        worker.tell("watch")
        worker.hear()
        worker.pause()
        try:
            provider = open_lock(lock, store, Ports(), Consent().also(lock))
            with provider.acquire(wait_s=60, owner="the heir") as held:
                worker.resume()
                worker.hear()  # its lock was lost
                assert held.lost is None
                holder = provider.holder()
                assert holder is not None
                assert "the heir" in holder.owner
        finally:
            worker.resume()
            worker.kill()


class Worker:
    """A process that takes the lock on request; see ``lock_worker``."""

    def __init__(self, lock: str, store: Store, name: str, counter: str) -> None:
        source = str(Path(__file__).resolve().parents[2])
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "plait.testing.lock_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        address = store.address
        order = {"uri": address.uri, "options": address.options, "lock": lock}
        self.tell(json.dumps({**order, "name": name, "counter": counter}))

    def tell(self, line: str) -> None:
        """Send an order."""
        if self._process.stdin is not None:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def hear(self) -> list[Turn]:
        """Wait for the answer."""
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        assert line, f"the worker ended with {self._process.wait()}"
        return [(entered, left, name, asked) for entered, left, name, asked in json.loads(line)]

    def pause(self) -> None:
        """Stop the process with SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
