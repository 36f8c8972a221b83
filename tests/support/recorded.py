"""Runs of the real commit protocol that leave a trace, for the specification to judge."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from plait.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    InstantExpiredError,
    RolledBackError,
)
from plait.model.changes import WriteStatus
from plait.model.decision import CommitResult
from plait.model.instant import Operation
from plait.model.request import WriteRequest
from plait.services.maintenance.clean import clean
from plait.storage.port import Store
from plait.testing import Fault, FaultStore, SimClock, SimulatedCrashError
from plait.txn.read_pin import ReadPin
from plait.txn.recovery import roll_back_failed
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction
from tests.scheduler import Report, Scenario, Start, each_schedule
from tests.support.build import LITTLE
from tests.support.protocol import Work, client, create, memory
from tests.support.trace import Event, RecordingStore, Trace

Act = Callable[[TableHandle, Trace, str], object]
_ACTOR = threading.local()


class SharedStore(RecordingStore):
    """One store for actors that each run in a thread of their own."""

    def who(self) -> str:
        return str(_ACTOR.name)


@dataclass
class Recorded:
    """A table whose every change is in the trace."""

    clock: SimClock = field(default_factory=SimClock)
    trace: Trace = field(default_factory=Trace)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = memory(self.clock)
        create(self.store, properties=LITTLE)

    def handle(self, who: str, *faults: Fault) -> TableHandle:
        """Give a client of its own; faults are what it sees, the trace is what happened."""
        recording = RecordingStore(self.store, self.trace, who)
        return client(FaultStore(recording, faults), self.clock)

    def write(self, who: str, *buckets: int) -> None:
        commit(self.trace, who, Work.begin(self.handle(who), [((), n) for n in buckets or (0,)]))

    def later(self) -> None:
        """Let what was removed become old enough to be cleaned."""
        self.clock.advance(10)

    @property
    def events(self) -> list[Event]:
        return self.trace.events


def commit(trace: Trace, who: str, work: Work) -> CommitResult | None:
    """Commit, and note what the writer was told."""
    try:
        result = work.commit()
    except CommitOutcomeUnknownError:
        trace.told(who, "unknown")
        return None
    except (ConflictError, RolledBackError):
        trace.told(who, "failed")
        return None
    trace.told(who, "committed")
    return result


def read(handle: TableHandle) -> None:
    """Read as a scan does: lease, head, files."""
    lease = ReadPin(handle, handle.cache.known().version)
    try:
        paths = handle.cache.snapshot().files["path"].to_pylist()
        assert [path for path in paths if handle.store.find(path) is None] == []
    except InstantExpiredError:
        return
    finally:
        lease.release()


@dataclass(frozen=True)
class Writing:
    """What a writer does on the stage."""

    buckets: tuple[int, ...] = (0,)
    on_conflict: str = "raise"

    def __call__(self, handle: TableHandle, trace: Trace, who: str) -> CommitResult | None:
        places = [((), number) for number in self.buckets]
        try:
            work = Work.begin(handle, places, on_conflict=self.on_conflict)
        except RolledBackError:
            trace.told(who, "failed")
            return None
        return commit(trace, who, work)


@dataclass(frozen=True)
class Leaving:
    """A writer that finds nothing to change, or is refused before it writes."""

    refused: bool = False

    def __call__(self, handle: TableHandle, trace: Trace, who: str) -> None:
        request = WriteRequest(Operation.UPSERT, partitions=((),))
        try:
            txn = OptimisticTransaction.begin(handle, request)
        except RolledBackError:
            trace.told(who, "failed")
            return
        if self.refused:
            txn.abort("refused", wrote=False)
        else:
            assert txn.end_unchanged(WriteStatus()) is not None
        trace.told(who, "nothing")


def recovering(handle: TableHandle, trace: Trace, who: str) -> None:
    """Take everybody for dead."""
    roll_back_failed(handle, reason="taken for dead", everything=True)


def cleaning(handle: TableHandle, trace: Trace, who: str) -> None:
    clean(handle)


def reading(handle: TableHandle, trace: Trace, who: str) -> None:
    read(handle)


def stepped(acts: Mapping[str, Act], *, switches: int, past: int = 0) -> Iterator[list[Event]]:
    """Play the actors in every order with so few switches; give the trace of each."""
    table = Recorded()
    for number in range(past):
        table.write(f"past{number}")
    table.later()
    traces: list[Trace] = []

    def recording(store: Store) -> Store:
        traces.append(Trace(list(table.events), dict(table.trace.owners)))
        return SharedStore(store, traces[-1], "nobody")

    def actor(name: str, act: Act) -> Callable[[TableHandle], object]:
        def play(handle: TableHandle) -> object:
            _ACTOR.name = name
            return act(handle, traces[-1], name)

        return play

    playing = {name: actor(name, act) for name, act in acts.items()}
    scenario = Scenario("traced", Start.of(table.store), playing, wrap=recording)
    for end in each_schedule(scenario, Report("traced"), switches=switches):
        assert end.errors == {}, end.errors
        assert end.problems == (), end.problems
        yield traces.pop().events


def _committing(handle: TableHandle, trace: Trace, who: str) -> None:
    Work.begin(handle).commit()


def crashed(act: Act = _committing, *, past: int = 1) -> Iterator[list[Event]]:
    """Kill a writer before or after each of its calls, then recover and clean."""
    for kind in ("crash_before", "crash_after"):
        for nth in range(1, 40):
            table = Recorded()
            for number in range(past):
                table.write(f"past{number}")
            handle = table.handle("dead", Fault(kind, nth=nth))
            try:
                act(handle, table.trace, "dead")
            except SimulatedCrashError:
                table.later()
                recovering(table.handle("r"), table.trace, "r")
                clean(table.handle("c"))
                yield table.events
            else:
                break


def silenced(*faults: Fault) -> list[Event]:
    """A commit that hears no answer to its publish; after it a recoverer comes by."""
    table = Recorded()
    commit(table.trace, "w1", Work.begin(table.handle("w1", *faults)))
    table.later()
    recovering(table.handle("r"), table.trace, "r")
    return table.events
