"""A dual write that crashes, fails or hears no answer at each of its storage calls in turn.

Whatever happens, what a sink holds is told by a decision or by an attempt record (D2 of RFC 0022),
and a decision names a sink only if the sink holds all of its rows (D1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import TableError
from plait.replicate import Replicas, Retries
from plait.storage import open_store
from plait.testing import Fault, FaultStore, SimulatedCrashError, open_wrapped, sim_ports
from plait.timeline.replica_records import load_attempts
from plait.txn.recovery import roll_back_failed
from tests.support.memory import forget
from tests.support.sinks import KeyValueSink, fresh

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "a"], "v": [0, 0, 0]})
REPLICAS = {"batch_size": 2, "retries": Retries(attempts=1)}


def write(table: Table, sinks: list[KeyValueSink]) -> None:
    with table.writer("upsert", replicas=Replicas(sinks, **REPLICAS)) as writer:
        writer.write(ROWS)


def attempts(kind: str) -> Iterator[tuple[str, list[KeyValueSink], BaseException | None]]:
    """Run the write once for each of its storage calls, which fails in this way."""
    for nth in range(1, 100):
        uri = f"memory://dual-crash-{kind}-{nth}"
        forget(uri)
        Table.create(uri, "id bigint, day string, v bigint", record_key="id", partition_by="day")
        sinks = [fresh("one"), fresh("two")]
        table, store = open_wrapped(uri, FaultStore, ports=sim_ports())
        before = store.calls
        store._script.append(Fault(kind, nth=nth))
        error: BaseException | None = None
        try:
            write(table, sinks)
        except (TableError, SimulatedCrashError) as raised:
            error = raised
        yield uri, sinks, error
        if store.calls - before < nth:
            assert nth > 5
            return
    pytest.fail("the write has no end")


@pytest.mark.parametrize("kind", ["crash_before", "crash_after", "error", "lost_reply"])
def test_what_a_sink_holds_is_always_on_record(kind: str) -> None:
    outcomes = set()
    for uri, sinks, error in attempts(kind):
        table = Table.open(uri)
        decisions = [entry.decision for entry in table._handle.cache.refresh().tail]
        named = {name for d in decisions if d.replicas for name in d.replicas.sinks}
        on_record = {name for a in load_attempts(open_store(uri)) for name in a.sinks}
        for sink in sinks:
            holds = len(sink.place.rows)
            assert not holds or sink.name in named | on_record
            assert sink.name not in named or holds == ROWS.num_rows
        committed = table.scan().to_arrow().num_rows == ROWS.num_rows
        assert committed == bool(named)
        outcomes.add((committed, error is None))
        assert table.check.verify().problems == ()
        roll_back_failed(table._handle, reason="test", everything=True)
        write(Table.open(uri), sinks)
        assert all(len(sink.place.rows) == ROWS.num_rows for sink in sinks)
    assert {committed for committed, _ in outcomes} == {True, False}


@pytest.mark.parametrize("kind", ["crash_before", "crash_after", "error", "lost_reply"])
def test_a_block_that_breaks_off_says_what_the_sink_of_the_definition_holds(kind: str) -> None:
    """D1 and D2, with several operations in one decision."""
    outcomes = set()
    for nth in range(1, 100):
        uri, eu = f"memory://dual-block-{kind}-{nth}", f"memory://dual-block-eu-{kind}-{nth}"
        for each, replicas in ((eu, []), (uri, [f"eu={eu}"])):
            forget(each)
            Table.create(each, "id bigint, v bigint", record_key="id", replicas=replicas)
        table, store = open_wrapped(uri, FaultStore, ports=sim_ports(), allow=eu)
        before = store.calls
        store._script.append(Fault(kind, nth=nth))
        with contextlib.suppress(TableError, SimulatedCrashError), table.transaction() as tx:
            tx.upsert(pa.table({"id": [1, 2], "v": [0, 0]}))
            tx.delete(keys=pa.table({"id": [2]}))
        calls = store.calls - before
        table = Table.open(uri)
        decisions = [entry.decision for entry in table._handle.cache.refresh().tail]
        named = {name for d in decisions if d.replicas for name in d.replicas.sinks}
        on_record = {name for a in load_attempts(open_store(uri)) for name in a.sinks}
        held = Table.open(eu).scan().to_arrow()["id"].to_pylist()
        committed = table.scan().to_arrow()["id"].to_pylist()
        assert committed == ([1] if named else [])
        assert not named or held == [1]
        assert Table.open(eu).version == 0 or named | on_record == {"eu"}
        outcomes.add(bool(named))
        if calls < nth:
            break
    assert nth > 5
    assert outcomes == {True, False}
