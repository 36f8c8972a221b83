"""A stream's coordinators and writers: the real ones, message by message and call by call.

Each source has three rows. A writer reads its source and writes it until the table has it all. A
coordinator works until the table has every source. What the schedule lets happen is little, so
messages flow calmly most of the time: whoever lives must get done in a bounded number of rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa

from plait import (
    CommitError,
    CommitOutcomeUnknownError,
    CoordinatorFencedError,
    OffsetGapError,
    StreamError,
    Table,
    TableError,
    TransactionClosedError,
)
from plait.definition.create import define_table
from plait.model.words import WriteOperation
from plait.services.verify.foreign import list_foreign, remove_foreign
from plait.stream.coordinator import Coordinator
from plait.stream.messages import parse_offsets, position_offsets
from plait.stream.participant import Participant
from plait.stream.transport import Hub
from plait.testing import SeqIds, SimClock, sim_ports
from plait.txn.recovery import roll_back_failed
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from tests.interleave.actors import recover, recover_dead
from tests.interleave.real import compact
from tests.scheduler import CALL_EVENTS, MESSAGE_EVENTS, Act, End, Oracle, Scenario, Start
from tests.scheduler.topic import coordinator_end, flushing, others_gone, writer_end
from tests.support.later import Later
from tests.support.protocol import client, memory

GOAL = 3
"""So many rows has a source."""
ROUNDS = 40
"""In so many rounds everybody who lives gets done."""
CALM_ROUNDS = 12
"""In so many rounds those who come after the schedule get done."""
LOOK_S, PATIENCE_S = 0.5, 3.0
SILENCE_S = 121.0
"""Longer than a heartbeat may be silent."""
SOURCES = ("p", "q")
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])
OLD = (900, 901)
"""Rows of before, in a table with a key."""


def base_of(source: str) -> int:
    """Return the first key of a source."""
    return 100 * SOURCES.index(source)


def rows(source: str, start: int, stop: int) -> pa.Table:
    ids = [base_of(source) + number for number in range(start, stop)]
    return pa.table({"id": ids, "note": [source] * len(ids)}, schema=SCHEMA)


def offsets_of(handle: TableHandle) -> dict[str, str]:
    """Return how far each source is in the table."""
    return position_offsets("app", handle.cache.refresh().streams.get("app"))


def complete(handle: TableHandle) -> bool:
    """Whether the table has every source."""
    return offsets_of(handle) == dict.fromkeys(SOURCES, str(GOAL))


# --- actors ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Feed:
    """Reads a source and writes it, row by row."""

    source: str
    leaves_at: int = GOAL
    """The offset at which it leaves, although not all is in the table."""
    after: str = ""
    """The actor whose source it takes over when that one has ended or died."""

    def __call__(self, handle: TableHandle) -> str:
        if self.after:
            others_gone(handle, self.after)
        end = writer_end(handle)
        writer = Participant(handle, "app", end, self.source, flushing=flushing(handle))
        for _ in range(ROUNDS):
            ended = self._step(handle, writer)
            if ended:
                writer.leave()
                return ended
        writer.close()
        return "stuck"

    def _step(self, handle: TableHandle, writer: Participant) -> str:
        with suppress(OffsetGapError, TransactionClosedError):  # the turn began anew meanwhile
            writer.poll(LOOK_S)
            at = int(writer.offset(self.source) or 0)
            if writer.ready and at < self.leaves_at:
                start = writer.offset(self.source)
                row = rows(self.source, at, at + 1)
                writer.write(row, source=self.source, start=start, end=str(at + 1))
            elif writer.ready and self.leaves_at < GOAL:
                return "left"
        there = offsets_of(handle).get(self.source)
        return "done" if there == str(GOAL) else ""


@dataclass(frozen=True)
class Lead:
    """Coordinates until the table has everything and no writer is left, or nobody answers."""

    operation: WriteOperation = "append"
    impatient: int = 0
    """So many turns it does not wait for, but goes on without whoever has not reported."""

    def __call__(self, handle: TableHandle) -> list[object]:
        told: list[object] = []
        turns = itertools.count()
        coordinator = (
            Table(handle).stream("app").coordinator(coordinator_end(handle), self.operation)
        )
        try:
            coordinator.start()
            for _ in range(ROUNDS):
                try:
                    self._step(coordinator, turns, told)
                except CommitOutcomeUnknownError:
                    raise
                except CoordinatorFencedError:
                    return [*told, "fenced"]
                except (StreamError, CommitError):
                    continue  # it has begun anew
                if complete(handle) and not coordinator.writers:
                    return [*told, "done"]
            return [*told, "done" if complete(handle) else "stuck"]
        except CommitOutcomeUnknownError:
            raise
        except CoordinatorFencedError:
            return [*told, "fenced"]
        except TableError as error:
            return [*told, f"{type(error).__name__}: {error}"]
        finally:
            coordinator.close()

    def _step(
        self, coordinator: Coordinator, turns: itertools.count[int], told: list[object]
    ) -> None:
        coordinator.poll(LOOK_S)
        if not coordinator.held.moved:
            return
        wait_s = 0 if next(turns) < self.impatient else PATIENCE_S
        if not coordinator.checkpoint(wait_s=wait_s):
            for name in coordinator.awaited:
                coordinator.dismiss(name)
        result = coordinator.complete()
        if result is not None:
            told.append(result)


# --- what must be left ----------------------------------------------------------------------


@dataclass(frozen=True)
class StreamCheck:
    """Every row once and in order; who lives got done; who comes later gets the rest done."""

    actors: Mapping[str, Act]
    operation: WriteOperation
    keyed: bool

    def __call__(self, end: End) -> None:
        handle = end.handle()
        self._check_table(handle)
        self._check_leaders(end, handle)
        self._check_live(end, handle)
        if not complete(handle):
            finish(Table(end.handle()), self.operation)
        handle = end.handle()
        roll_back_failed(handle, reason="after the schedule", everything=True)
        kept = remove_foreign(handle, list_foreign(handle)).kept
        assert kept == (), f"files without an owner: {kept}"
        assert complete(handle), "the rest did not arrive"
        self._check_table(handle)

    def _check_table(self, handle: TableHandle) -> None:
        """The table has what its token says, each row once."""
        table, offsets = Table(handle), offsets_of(handle)
        expected = [base_of(s) + n for s, to in offsets.items() for n in range(int(to))]
        found = sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
        old = OLD if self.keyed else ()
        assert found == sorted([*expected, *old]), f"{found} are there, up to {offsets}"
        audit = table.stream("app").audit()
        assert audit.problems == (), str(audit.problems[:2])
        rows = sum(each.rows for each in audit.epochs)
        assert rows == len(expected), f"{rows} rows in the epochs, {len(expected)} in the sources"
        problems = table.check.verify().problems
        assert problems == (), str(problems[:2])

    def _check_leaders(self, end: End, handle: TableHandle) -> None:
        """Nobody decides any more after another coordinator has decided."""
        leaders = {n: end.outcomes[n].nonces for n, act in self.actors.items() if _leads(act)}
        who = [
            name
            for decision in handle.cache.timeline.load_after(0, limit=1_000)
            for name, nonces in leaders.items()
            if decision.tokens and decision.instant.nonce.startswith(nonces)
        ]
        turns = [name for name, _ in itertools.groupby(who)]
        assert len(turns) == len(set(turns)), f"a coordinator came back: {turns}"

    def _check_live(self, end: End, handle: TableHandle) -> None:
        """Who was not hurt got done, if a coordinator lived to the end."""
        told = {name: _last(end.results.get(name)) for name in self.actors}
        unhurt = [name for name, each in end.outcomes.items() if not (each.hurt or each.crashed)]
        for name in unhurt:  # what others may meet, the oracle knows
            ours = isinstance(self.actors[name], Lead | Feed)
            assert not ours or name not in end.errors, f"{name}: {end.errors[name]!r}"
        led = [name for name in unhurt if _leads(self.actors[name]) and told[name] != "fenced"]
        if not led:
            whole = all(n in unhurt for n, act in self.actors.items() if _leads(act))
            assert not whole, f"every coordinator gave up: {told}"
            return
        offsets = offsets_of(handle)
        for source in SOURCES:
            feeds = [n for n, act in self.actors.items() if isinstance(act, Feed)]
            mine = [n for n in feeds if self.actors[n].source == source]  # type: ignore[attr-defined]
            if mine and mine[-1] in unhurt:
                assert offsets.get(source) == str(GOAL), f"{source} is at {offsets}: {told}"
                assert told[mine[-1]] == "done", f"{told}"
            if all(name in unhurt for name in feeds):
                assert told[led[-1]] == "done", f"{told}"


def _leads(act: Act) -> bool:
    return isinstance(act, Lead)


def _last(result: object) -> object:
    return result[-1] if isinstance(result, list) else result


def finish(table: Table, operation: WriteOperation) -> None:
    """Write what is missing, as processes that come later, on a calm topic."""
    hub = Hub()
    stream = table.stream("app")
    with stream.coordinator(hub.coordinator(), operation) as coordinator:
        writers = {
            name: Participant(table._handle, "app", hub.writer(), name, flushing=Later)
            for name in SOURCES
        }
        for _ in range(CALM_ROUNDS):
            for name, writer in writers.items():
                writer.poll()
                writer.settle()
                at = int(writer.offset(name) or 0)
                if writer.ready and at < GOAL:
                    start = writer.offset(name)
                    writer.write(rows(name, at, GOAL), source=name, start=start, end=str(GOAL))
            coordinator.commit(wait_s=0)
            position = stream.position
            found = {} if position is None else parse_offsets(position.end)
            if found == dict.fromkeys(SOURCES, str(GOAL)):
                break
        for writer in writers.values():
            writer.close()


# --- scenarios ------------------------------------------------------------------------------


@cache
def start(*, keyed: bool) -> Start:
    """Make an empty table, or one with a key and rows in log files."""
    clock = SimClock()
    store = memory(clock)
    definition = define_table(
        SCHEMA,
        record_key=("id",) if keyed else (),
        buckets=1 if keyed else None,
        table_type="mor" if keyed else "cow",
        lock="none",
    )
    create_table(store, sim_ports(ids=SeqIds("0"), clock=clock), definition)
    table = Table(client(store, clock, nonces="8"))
    for number in OLD if keyed else ():
        table.upsert(pa.table({"id": [number], "note": ["old"]}, schema=SCHEMA))
    return Start.of(store)


def streaming(name: str, acts: Mapping[str, Act], *, keyed: bool = False) -> Scenario:
    """Make a scenario of a stream in which anything may happen to messages and calls."""
    return Scenario(
        name,
        start(keyed=keyed),
        acts,
        check=StreamCheck(acts, "upsert" if keyed else "append", keyed),
        events=(*MESSAGE_EVENTS, *CALL_EVENTS),
        events_max=6,
        oracle=Oracle(tidy=False),
    )


def rough(made: Scenario) -> Scenario:
    """Let something happen to messages only."""
    return replace(made, events=MESSAGE_EVENTS, events_max=24)


def stream_scenarios() -> tuple[Scenario, ...]:
    """Make them anew."""
    lead, both = Lead(), {"p": Feed("p"), "q": Feed("q")}
    taken = {"p": Feed("p", leaves_at=2), "q": Feed("q"), "r": Feed("p", after="p")}
    return (
        rough(streaming("a stream on a rough topic", {"c": lead, **both})),
        streaming("a stream", {"c": lead, **both}),
        rough(streaming("two coordinators on a rough topic", {"c": lead, "d": lead, **both})),
        streaming("two coordinators", {"c": lead, "d": lead, **both}),
        rough(streaming("a coordinator that does not wait", {"c": Lead(impatient=2), **both})),
        rough(streaming("a source is taken over on a rough topic", {"c": lead, **taken})),
        streaming("a source is taken over", {"c": lead, **taken}),
        replace(
            rough(streaming("a stream and a recoverer", {"c": lead, **both, "e": recover_dead})),
            jumps=(SILENCE_S,),
            beats=1,
        ),
        rough(streaming("a stream that is taken for dead", {"c": lead, **both, "e": recover})),
        streaming(
            "a stream with a key and a compaction",
            {"c": Lead("upsert"), **both, "e": compact},
            keyed=True,
        ),
    )
