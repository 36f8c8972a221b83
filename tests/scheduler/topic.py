"""A topic between actors: each message that is sent or received is a step of the schedule.

A message may be lost, arrive after later ones, or twice, as the schedule says. Every end of a
coordinator gets all messages, as on a topic of one partition; writers get those for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, cast

from plait.stream.messages import Acknowledgement, Turn, decode, kind_of
from plait.txn.table_handle import TableHandle
from tests.scheduler.ports import LaneStore
from tests.scheduler.run import Run
from tests.scheduler.world import Call, Process


class LaneEnd:
    """One end, of one actor."""

    def __init__(self, run: Run, process: Process, *, leads: bool) -> None:
        self._run, self._process, self._leads = run, process, leads
        self.came: list[bytes] = []
        run.ends.append(self)

    def send(self, message: bytes) -> None:
        """Send to all ends that the message concerns."""

        def deliver() -> None:
            for end in self._run.ends:
                cast("LaneEnd", end).take(message)

        self._run.call(self._process, Call("send", told(message)), deliver)

    def take(self, message: bytes) -> None:
        """Keep a message that concerns this end."""
        if self._leads or isinstance(decode(message), Turn | Acknowledgement):
            self.came.append(message)

    def receive(self, wait_s: float) -> bytes | None:
        """Return the next message; with a wait, others run until one comes."""
        if wait_s > 0:
            self._run.wait_until(self._process, "a message", lambda: bool(self.came), wait_s)

        def take() -> bytes | None:
            return self.came.pop(0) if self.came else None

        return self._run.call(self._process, Call("receive", ""), take)


def told(message: bytes) -> str:
    """Write what a message is, in a few words."""
    found = decode(message)
    facts = [
        f"{name}={value}"
        for name in ("writer", "number", "decided", "session")
        if (value := getattr(found, name, None)) is not None
    ]
    return " ".join([kind_of(found), *facts])


class LaneExecutor(Executor):
    """Runs each task as a lane of its own, beside its actor, one after the other."""

    def __init__(self, run: Run, process: Process) -> None:
        self._run, self._process = run, process
        self._last: LaneFuture | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a lane."""
        before, future = self._last, LaneFuture(self._run, self._process)

        def task() -> None:
            if before is not None:
                before.exception()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
                raise

        self._last = future
        self._process.flushes += 1
        self._run.add(f"{self._process.name}/{self._process.flushes}", self._process, task)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for what was begun."""
        del cancel_futures
        if wait and self._last is not None:
            self._last.exception()


class LaneFuture(Future[Any]):
    """A task in a lane; who asks for its outcome lets others run until it is there."""

    def __init__(self, run: Run, process: Process) -> None:
        super().__init__()
        self._run, self._process = run, process

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what it raised."""
        del timeout
        if not self.done():
            self._run.wait_until(self._process, "a flush", self.done, math.inf)
        return None if self.cancelled() else super().exception(0)


def coordinator_end(handle: TableHandle) -> LaneEnd:
    """Return a coordinator's end of the topic, for the actor that has this client."""
    run, process = _place_of(handle)
    return LaneEnd(run, process, leads=True)


def writer_end(handle: TableHandle) -> LaneEnd:
    """Return a writer's end of the topic, for the actor that has this client."""
    run, process = _place_of(handle)
    return LaneEnd(run, process, leads=False)


def flushing(handle: TableHandle) -> Callable[[], Executor]:
    """Return what flushes beside the actor that has this client."""
    run, process = _place_of(handle)
    return lambda: LaneExecutor(run, process)


def others_gone(handle: TableHandle, name: str) -> None:
    """Let others run until an actor has ended or died."""
    run, process = _place_of(handle)
    lane = next(each for each in run.lanes if each.name == name)
    run.wait_until(process, f"the end of {name}", lambda: lane.done or lane.process.dead, math.inf)


def _place_of(handle: TableHandle) -> tuple[Run, Process]:
    store = handle.store
    assert isinstance(store, LaneStore)
    return store.run, store.process
