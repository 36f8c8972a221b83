"""Runs actors step by step, in every order with few switches.

Each actor is a thread that works on its own ``SteppedStore`` over the shared store. It stops
before each call; one of those that stopped is let go on, and nobody else runs meanwhile. So a
schedule is a list of choices, and a run can be repeated. ``every_schedule`` goes through all of
them, depth first, with at most so many switches away from an actor that could have gone on:
nearly all bugs of protocols show with two (Musuvathi and Qadeer, "Iterative context bounding for
systematic testing of multithreaded programs", PLDI 2007).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from plait.storage.port import Store
from plait.testing.wrapper import WrappedStore

T = TypeVar("T")
Actor = Callable[[Store], object]
_WAIT_S = 30


@dataclass(slots=True)
class _Lane:
    """One actor's thread, and where it stands."""

    name: str
    thread: threading.Thread | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    done: bool = False
    result: object = None
    error: BaseException | None = None
    steps: list[str] = field(default_factory=list)


class SteppedStore(WrappedStore):
    """Waits for its turn before each call."""

    def __init__(self, inner: Store, lane: _Lane) -> None:
        super().__init__(inner)
        self._lane = lane

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        """Wait, then make the call."""
        self._lane.steps.append(f"{operation} {path}")
        self._lane.stopped.release()
        if not self._lane.go.acquire(timeout=_WAIT_S):
            raise TimeoutError(self._lane.name)
        return run()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one schedule."""

    order: tuple[str, ...]
    """Who took each step."""
    results: Mapping[str, object]
    errors: Mapping[str, BaseException]


@dataclass(slots=True)
class _Choices:
    """Follows a list of choices, then always takes the first; remembers how many there were."""

    given: Sequence[int]
    taken: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def choose(self, count: int) -> int:
        at = len(self.taken)
        choice = self.given[at] if at < len(self.given) else 0
        self.taken.append(choice)
        self.counts.append(count)
        return choice

    def following(self) -> list[int] | None:
        """Give the next list of choices in depth-first order; None after the last."""
        for at in range(len(self.taken) - 1, -1, -1):
            if self.taken[at] + 1 < self.counts[at]:
                return [*self.taken[:at], self.taken[at] + 1]
        return None


def every_schedule(
    make: Callable[[], tuple[Store, Mapping[str, Actor]]], *, switches: int, limit: int = 100_000
) -> Iterator[tuple[Store, Outcome]]:
    """Run the actors in every order with so few switches; ``make`` gives a new table each time."""
    given: list[int] | None = []
    for _ in range(limit):
        if given is None:
            return
        choices = _Choices(given)
        store, actors = make()
        yield store, _run(store, actors, choices, switches)
        given = choices.following()


def _run(store: Store, actors: Mapping[str, Actor], choices: _Choices, switches: int) -> Outcome:
    lanes = {name: _Lane(name) for name in actors}
    for name, actor in actors.items():
        lane = lanes[name]
        lane.thread = threading.Thread(target=_live, args=(lane, actor, store), daemon=True)
        lane.thread.start()
        _wait(lane)
    order: list[str] = []
    current: str | None = None
    while waiting := [name for name, lane in lanes.items() if not lane.done]:
        options = waiting
        if current in waiting:
            others = [name for name in waiting if name != current]
            options = [current, *(others if switches > 0 else [])]
        chosen = options[choices.choose(len(options))]
        switches -= current in waiting and chosen != current
        current = chosen
        order.append(chosen)
        lanes[chosen].go.release()
        _wait(lanes[chosen])
    for lane in lanes.values():
        if lane.thread is not None:
            lane.thread.join(_WAIT_S)
    return Outcome(
        tuple(order),
        {name: lane.result for name, lane in lanes.items() if lane.error is None},
        {name: lane.error for name, lane in lanes.items() if lane.error is not None},
    )


def _wait(lane: _Lane) -> None:
    if not lane.stopped.acquire(timeout=_WAIT_S):
        message = f"{lane.name} neither stopped nor ended after {lane.steps[-1:]}"
        raise TimeoutError(message)


def _live(lane: _Lane, actor: Actor, store: Store) -> None:
    try:
        lane.result = actor(SteppedStore(store, lane))
    except BaseException as error:  # noqa: BLE001 - the schedule's outcome
        lane.error = error
    finally:
        lane.done = True
        lane.stopped.release()
