"""Scenarios: a table to start from, actors, and what may happen to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from plait.model.instant import Instant
from plait.ports import Ports
from plait.state.cache import StateCache
from plait.state.state import TableState
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing.ports import SeqIds
from plait.txn.table_handle import TableHandle
from tests.scheduler.ending import End, Outcome
from tests.scheduler.memo import Memo, MemoState, remember
from tests.scheduler.oracle import Oracle
from tests.scheduler.points import CALL_EVENTS, MESSAGE_EVENTS, Allowed, Lane, Strategy
from tests.scheduler.ports import LaneBackground, LaneStore, Lock
from tests.scheduler.run import Run
from tests.scheduler.world import LaneClock, Process, World
from tests.support.memory import forget

_NAMES = itertools.count()

Act = Callable[[TableHandle], object]
"""What an actor does, as a client that has the table open."""


@dataclass(frozen=True, slots=True)
class Start:
    """A table that is made once and copied for each schedule."""

    files: Mapping[str, bytes]
    states: tuple[TableState, ...]
    """What a client knows that saw this version last."""
    now_ms: int

    @classmethod
    def of(cls, store: Store) -> Start:
        """Copy the table in a store; its versions must be there from 0 on."""
        files = {info.path: store.find(info.path) or b"" for info in store.list("")}
        cache = StateCache(store, Ports())
        first = cache.timeline.find(0)
        if first is None:
            message = "there is no table to start from"
            raise ValueError(message)
        states = [TableState.create(first, where="")]
        for decision in cache.timeline.load_after(0, limit=1_000):
            states.append(states[-1].apply(decision, where=""))
        return cls(files, tuple(states), store.now_ms() + 1_000)


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """Actors on one table, and what may happen while they work.

    Args:
        name: for people.
        start: the table; see ``Start.of``.
        actors: what each does. Whatever one reads or writes goes through its handle.
        check: raises AssertionError if what a schedule left is wrong, beside the invariants.
        knows: the version that an actor saw last, where it is not the newest.
        events: what may happen to calls, of ``CALL_EVENTS``, and to messages, of
            ``MESSAGE_EVENTS``.
        events_max: how many events a schedule drawn from a seed has at most.
        jumps: seconds by which the world's clock may leap.
        beats: how often each actor's background steps (heartbeats, renewals) may run.
        lock_lost: whether a lock may be taken from its holder, who does not notice.
        skew_ms: how wrong an actor's machine clock is.
        store_skew_ms: how wrong its idea of the store's clock is.
        wrap: put around the store, below every lane; calls reach it one at a time, each in the
            thread of its lane.
    """

    name: str
    start: Start
    actors: Mapping[str, Act]
    check: Callable[[End], None] | None = None
    knows: Mapping[str, int] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    events_max: int = 2
    jumps: tuple[float, ...] = ()
    beats: int = 0
    lock_lost: bool = False
    skew_ms: Mapping[str, int] = field(default_factory=dict)
    store_skew_ms: Mapping[str, int] = field(default_factory=dict)
    wrap: Callable[[Store], Store] | None = None
    oracle: Oracle = field(default_factory=Oracle)
    memo: Memo = field(default_factory=Memo, repr=False)

    def __post_init__(self) -> None:
        known = (*CALL_EVENTS, *MESSAGE_EVENTS)
        unknown = sorted(set(self.events) - set(known))
        if unknown:
            message = f"not events: {', '.join(unknown)}; there are {', '.join(known)}"
            raise ValueError(message)

    def run(self, strategy: Strategy) -> End:
        """Run one schedule on a fresh copy of the table, and judge what it left."""
        world = World(self.start.now_ms)
        uri = f"memory://schedule-{next(_NAMES)}"
        store = MemoryStore(uri, clock=world)
        for path, body in self.start.files.items():
            store.put(path, body)
        allowed = Allowed(self.events, self.jumps, self.beats, self.lock_lost)
        run = Run(world, strategy, allowed)
        watch = self.oracle.watch(store, self.memo)
        run.before_write, run.after_write = watch.before_write, watch.after_write
        lock = Lock(run)
        shared = store if self.wrap is None else self.wrap(store)
        for number, name in enumerate(self.actors):
            self._add(run, shared, lock, name, number)
        try:
            run.execute()
            end = self._end(run, store)
            if not run.abandoned:
                end.problems = tuple(self.oracle.judge(end, watch, self.check))
        finally:
            forget(uri)
        return end

    def _add(self, run: Run, store: Store, lock: Lock, name: str, number: int) -> None:
        process = Process(name)
        ports = Ports(
            LaneClock(run.world, self.skew_ms.get(name, 0)),
            SeqIds(nonces_of(number)),
            background=LaneBackground(run, process),
        )
        mine = LaneStore(store, run, process, skew_ms=self.store_skew_ms.get(name, 0))
        cache = remember(StateCache(mine, ports), self.memo)
        cache.offer(MemoState.over(self.start.states[self.knows.get(name, -1)], self.memo))
        handle = TableHandle(mine, ports, cache, lock.of(process))
        run.processes.append(process)
        run.add(name, process, partial(self.actors[name], handle))

    def _end(self, run: Run, store: Store) -> End:
        lanes = [lane for lane in run.lanes if lane.name in self.actors]
        outcomes = {lane.name: _outcome(lane, n) for n, lane in enumerate(lanes)}
        files = hash(tuple((info.path, store.find(info.path)) for info in store.list("")))
        trace = hash((files, *((lane.name, lane.history) for lane in run.lanes)))
        return End(
            store,
            run.world,
            outcomes,
            run.lines,
            tuple(run.moves),
            run.events,
            trace,
            files,
            self.memo,
            MemoState.over(self.start.states[0], self.memo),
            abandoned=run.abandoned,
        )


def nonces_of(number: int) -> str:
    """Give the first digits of all nonces that an actor draws, by its place in the scenario."""
    return f"{0xA0 + number:02x}"


def whose(instant: Instant, actors: Mapping[str, Outcome]) -> str | None:
    """Give the actor that began an instant; None if none of them did."""
    found = (name for name, each in actors.items() if instant.nonce.startswith(each.nonces))
    return next(found, None)


def _outcome(lane: Lane, number: int) -> Outcome:
    return Outcome(lane.result, lane.error, lane.process.dead, lane.process.hurt, nonces_of(number))
