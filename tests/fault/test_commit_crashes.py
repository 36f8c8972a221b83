"""A commit that crashes, fails or hears no answer at each of its storage calls in turn.

Real Parquet through the facade, on a memory store. Whatever happens, the table opens, verify
finds nothing, the next write works, and nobody was told what is not so (INV-10).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import CommitOutcomeUnknownError, TableError
from plait.services.rollback import roll_back_failed
from plait.storage import open_store
from plait.testing import (
    Fault,
    FaultStore,
    SeqIds,
    SimClock,
    SimulatedCrashError,
    open_wrapped,
    sim_ports,
)
from plait.timeline.pending import load_pending

_NAMES = itertools.count()
CALLS_MAX = 80


SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def rows(*ids: int, day: str = "a") -> pa.Table:
    return pa.table({"id": ids, "day": [day] * len(ids)}, schema=SCHEMA)


@dataclass(frozen=True)
class Case:
    """An operation, and the ids that are there before and after it."""

    run: Callable[[Table], object]
    before: frozenset[int]
    after: frozenset[int]
    key: tuple[str, ...] = ("id",)
    table_type: str = "cow"


OLD = frozenset(range(10))
NEW = frozenset(range(8, 14))


def upsert(table: Table) -> object:
    return table.upsert(rows(*sorted(NEW)))


def upsert_elsewhere(table: Table) -> object:
    with table.writer("upsert") as writer:
        writer.write(rows(20, day="b"))
    return writer.result


CASES = {
    "append": Case(lambda t: t.append(rows(*range(10, 14))), OLD, OLD | set(range(10, 14)), ()),
    "upsert cow": Case(upsert, OLD, OLD | NEW),
    "upsert mor": Case(upsert, OLD, OLD | NEW, table_type="mor"),
    "delete mor": Case(
        lambda t: t.delete(where="id < 5"), OLD, OLD - set(range(5)), table_type="mor"
    ),
    "overwrite": Case(lambda t: t.overwrite(rows(7, 99)), OLD, frozenset({7, 99})),
    "new partition": Case(upsert_elsewhere, OLD, OLD | {20}),
    "properties": Case(lambda t: t.set({"lock.wait": "1s"}), OLD, OLD),
    "clean": Case(lambda t: t.clean(), OLD, OLD),
}


@functools.cache
def prepared(key: tuple[str, ...], table_type: str) -> dict[str, bytes]:
    """Make a table with three versions; the fourth is due for a checkpoint."""
    uri = f"memory://crash-{next(_NAMES)}"
    options = {
        "checkpoint.interval": 4,
        "clean.retain.time": "0s",
        "clean.retain.versions": 1,
    }
    table = Table.create(
        uri,
        SCHEMA,
        record_key=key,
        partition_by=["day"],
        table_type=table_type,
        lock="none",
        properties=options,
    )
    table.append(rows(*range(5)))
    table.append(rows(*range(5, 10)))
    if key:
        table.upsert(rows(0, 9))
    else:
        table.set({"lock.wait": "2s"})
    store = open_store(uri)
    return {info.path: store.find(info.path) or b"" for info in store.list("")}


def copied(case: Case) -> str:
    uri = f"memory://crash-{next(_NAMES)}"
    store = open_store(uri)
    for path, body in prepared(case.key, case.table_type).items():
        store.put(path, body)
    return uri


def ids(table: Table) -> frozenset[int]:
    found = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found))
    return frozenset(found)


def attempts(case: Case, kind: str) -> Iterator[tuple[str, BaseException | None]]:
    """Run the operation on a new table each time, with the fault one call later each time."""
    for nth in range(1, CALLS_MAX):
        uri = copied(case)
        ports = sim_ports(clock=SimClock(), ids=SeqIds("abc"))
        table, store = open_wrapped(uri, FaultStore, ports=ports)
        store._clock = ports.clock
        store.calls = 0
        store._script.append(Fault(kind, nth=nth))
        error: BaseException | None = None
        try:
            case.run(table)
        except (TableError, SimulatedCrashError) as raised:
            error = raised
        yield uri, error
        if store.calls < nth:
            assert error is None
            return
    pytest.fail("the operation has no end")


def look(uri: str, *, data: bool) -> frozenset[int]:
    """Open the table as a stranger does; give the ids in it."""
    table = Table.open(uri)
    report = table.verify(data=data)
    assert report.problems == ()
    return ids(table)


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_crash_at_any_call_leaves_all_or_nothing(case: Case, kind: str) -> None:
    """INV-03 to INV-06: before and after recovery."""
    for uri, _ in attempts(case, kind):
        found = look(uri, data=False)
        assert found in (case.before, case.after)
        table = Table.open(uri)
        table.append(rows(1_000))
        assert ids(table) == found | {1_000}
        roll_back_failed(table.site, reason="test", everything=True)
        table.clean()
        assert look(uri, data=True) == found | {1_000}
        assert load_pending(open_store(uri)) == []


@pytest.mark.parametrize("kind", ["error", "lost_reply"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_told_of_a_commit_is_so(case: Case, kind: str) -> None:
    """INV-10: one call fails or loses its answer, at each place in turn."""
    for uri, error in attempts(case, kind):
        found = look(uri, data=False)
        if error is None:
            assert found == case.after
        elif isinstance(error, CommitOutcomeUnknownError):
            assert found in (case.before, case.after)
        else:
            assert found == case.before
        roll_back_failed(Table.open(uri).site, reason="test", everything=True)
        assert look(uri, data=False) == found
