"""Sinks that come into a table's definition, and leave it, beside writers (RFC 0022)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import pyarrow as pa

from plait import Table
from plait.definition.table_def import TableDef
from plait.errors import OptionError, RetryableConflictError
from plait.model.consent import Consent
from plait.model.decision import CommitResult, Decision
from plait.model.instant import Operation
from plait.replicate import status
from plait.storage.port import Store
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.txn.table_handle import TableHandle
from tests.interleave.real import SCHEMA, made, rows, values
from tests.interleave.sourcing import values_at
from tests.scheduler import CALL_EVENTS, End, Oracle, Problem, Scenario, Start
from tests.scheduler.oracle import Watch, _checked
from tests.support.memory import forget

Rows = Mapping[int, str]
FIRST: Rows = dict.fromkeys((1, 2, 3, 4), "old")


def sink_of(store: Store) -> str:
    """Return the place of the sink: each schedule has its own."""
    return f"{store.address.uri}-eu"


def writer(handle: TableHandle) -> Table:
    """Return the table as a client that may use the sink."""
    return Table(replace(handle, consent=Consent().also(sink_of(handle.store))))


def put_two(handle: TableHandle) -> CommitResult:
    return writer(handle).upsert(rows("new", 2, 5))


def put_other(handle: TableHandle) -> CommitResult:
    """Write one of the same rows."""
    return writer(handle).upsert(rows("other", 2, 6))


def drop_one(handle: TableHandle) -> CommitResult:
    keys = pa.table({"id": pa.array([4], pa.int64())})
    return writer(handle).delete(keys=keys)


def add_sink(handle: TableHandle) -> CommitResult:
    return Table(handle).replicas.add(f"eu={sink_of(handle.store)}")


def remove_sink(handle: TableHandle) -> CommitResult | str:
    """Remove the sink, if the table has it."""
    try:
        return Table(handle).replicas.remove("eu")
    except OptionError:
        return "there is none"


ACTORS: Mapping[str, Callable[[TableHandle], object]] = {
    "a": put_two,
    "b": drop_one,
    "c": put_other,
    "r": add_sink,
    "x": remove_sink,
}
_WRITES: Mapping[str, Callable[[Rows], Rows]] = {
    "a": lambda now: {**now, 2: "new", 5: "new"},
    "b": lambda now: {key: value for key, value in now.items() if key != 4},
    "c": lambda now: {**now, 2: "other", 6: "other"},
}
_SENT = {"a": "new", "c": "other"}
"""The values of an actor, by which its rows are known in the sink."""


@dataclass
class Publishes:
    """What the sink held when each version was published, by table."""

    held: dict[tuple[str, int], int] = field(default_factory=dict)
    """By a table and a version of it: the newest version of the sink then."""

    def around(self, store: Store) -> Store:
        """Begin to look on, with a sink that has the rows of the table."""
        sink = Table.create(sink_of(store), SCHEMA, record_key="id", buckets=1)
        sink.upsert(rows("old", *FIRST))
        return _Watched(store, self)


class _Watched(WrappedStore):
    def __init__(self, inner: Store, publishes: Publishes) -> None:
        super().__init__(inner)
        self._publishes = publishes

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if not path.startswith(paths.TIMELINE):
            return self.inner.put_if_absent(path, body)
        held, number = Table.open(sink_of(self.inner)).version, path.rsplit("/", 1)[-1]
        won = self.inner.put_if_absent(path, body)
        if won:
            self._publishes.held[self.address.uri, int(number.split(".")[0])] = held
        return won


@dataclass(frozen=True)
class SinkCheck:
    """D4: where a definition named the sink, it held the rows of the next commit before it."""

    publishes: Publishes

    def __call__(self, end: End) -> None:
        table, sink = Table(end.handle()), Table.open(sink_of(end.store))
        named, shown = False, dict(FIRST)
        for decision in table._handle.cache.timeline.load_after(-1, limit=1_000):
            name = _actor(decision, end)
            if name is not None and decision.operation in (Operation.UPSERT, Operation.DELETE):
                before, shown = shown, dict(_WRITES[name](shown))
                if named:
                    until = self.publishes.held[end.store.address.uri, decision.version]
                    _require_held(before, shown, sink, until)
            if decision.table is not None:
                named = "eu" in TableDef.from_dict(decision.table, where="").replicas
        assert values(table) == shown, f"{values(table)}, not {shown}"
        self._judge(end, table)

    def _judge(self, end: End, table: Table) -> None:
        """See that nobody was refused without need, and that it is told who sent rows in vain."""
        found = set(values(Table.open(sink_of(end.store))).values())
        senders = {name for name, value in _SENT.items() if value in found}
        told = next((each for each in status(table) if each.sink == "eu"), None)
        attempts = () if told is None else (*told.ahead, *told.pending)
        instants = [each.instant for each in attempts]
        for decision in table._handle.cache.timeline.load_after(-1, limit=1_000):
            ledger = decision.replicas
            instants += [decision.instant] if ledger and "eu" in ledger.sinks else []
        for name in senders:
            begun = end.outcomes[name].nonces
            known = any(each.nonce.startswith(begun) for each in instants)
            assert known, f"D2: nothing tells that {name} sent rows"
        for name, outcome in end.outcomes.items():
            error = outcome.error
            if error is None or outcome.hurt or outcome.crashed or name not in _WRITES:
                continue
            refused = isinstance(error, RetryableConflictError)
            meets = "r" in end.outcomes or {"a", "c"} <= end.outcomes.keys()
            fine = refused and meets
            assert fine, f"{name}: {error!r}"


def _actor(decision: Decision, end: End) -> str | None:
    found = (n for n, e in end.outcomes.items() if decision.instant.nonce.startswith(e.nonces))
    return next(found, None)


def _require_held(before: Rows, shown: Rows, sink: Table, until: int) -> None:
    """Refuse a change that no version of the sink had before the table had it."""
    known = [values_at(sink, version) for version in range(1, until + 1)]
    for key in before.keys() | shown.keys():
        now = shown.get(key)
        held = before.get(key) == now or any(rows.get(key) == now for rows in known)
        assert held, f"D4: the sink never had {key}: {now}"


class Unlike(Oracle):
    """Judges every end: what a sink has is in no file of the table."""

    def judge(self, end: End, watch: Watch, check: Callable[[End], None] | None) -> list[Problem]:
        """Find everything that does not hold, and forget the sink."""
        found = [*_checked(end, check)]  # before somebody writes on
        found += super().judge(end, watch, None)
        forget(sink_of(end.store))
        return found


@cache
def start() -> Start:
    return Start.of(made("cow", files=1)._handle.store)


def sinking(actors: str, *, events: bool = False) -> Scenario:
    """Make a scenario of these actors on a table without a sink."""
    publishes = Publishes()
    return Scenario(
        f"{actors} and a sink",
        start(),
        {name: ACTORS[name] for name in actors},
        check=SinkCheck(publishes),
        events=CALL_EVENTS if events else (),
        wrap=publishes.around,
        oracle=Unlike(write_on),
    )


def write_on(handle: TableHandle) -> object:
    """Write where everybody wrote."""
    return writer(handle).upsert(rows("next", 2, 9))


LONG = ("abr", "acrx")


def sinking_scenarios() -> tuple[Scenario, ...]:
    """Make the long ones anew."""
    return tuple(sinking(actors, events=True) for actors in LONG)
