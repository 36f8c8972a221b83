"""How far a sink is from the table, and what sets it right (D3 of RFC 0022)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pytest

from plait import OptionError, ReplicationError, RolledBackError, Table
from plait.replicate import (
    ReplicaRepair,
    Replicas,
    ReplicaStatus,
    Retries,
    SinkSchema,
    TableSink,
    repair,
    status,
)
from plait.storage import open_store
from plait.testing import sim_ports
from plait.timeline import paths
from plait.timeline.replica_records import load_attempts, write_attempt
from plait.txn.recovery import roll_back_failed
from plait.txn.table_handle import open_handle
from tests.support import build
from tests.support.build import again, by_id
from tests.support.memory import forget
from tests.support.sinks import (
    KeyValueSession,
    KeyValueSink,
    failing,
    failure,
    fresh,
    held_by,
    send,
)

SCHEMA = "id bigint, v bigint, rev bigint"
rows = partial(build.rows, v=0, rev=0)


@pytest.fixture
def t() -> Table:
    return build.make(SCHEMA, ordering="rev")


@pytest.fixture
def sink() -> KeyValueSink:
    return fresh("eu")


def fail(t: Table, data: pa.Table, sink: KeyValueSink) -> None:
    """Leave rows in a sink that no commit has."""
    broken = fresh("broken")
    broken.place.before = failing(99)
    failure(t, data, sink, broken, retries=Retries(attempts=1))


def of(t: Table, name: str = "eu") -> ReplicaStatus:
    return next(each for each in status(t) if each.sink == name)


# --- status ------------------------------------------------------------------------------------


def test_a_sink_is_behind_by_the_commits_that_changed_rows_without_it(t, sink) -> None:
    t.upsert(rows([0]))
    assert status(t) == ()
    send(t, rows([1]), sink)
    send(t, rows([2]), sink)
    found = of(t)
    assert (found.version, found.position, found.behind) == (3, None, (1,))
    repair(t, sink)
    t.upsert(rows([2, 3], v=1))
    t.delete(where="id = 2")
    t.maintenance.compact(full=True)
    t.versions.savepoint("here")
    send(t, rows([4]), fresh("us"))
    assert (of(t).behind, of(t).rows_behind) == ((4, 5, t.version), 4)
    assert of(t, "us").behind == (1, 2, 3, 4, 5)
    repair(t, sink)
    assert of(t).in_step
    t.versions.restore(version=3)
    assert of(t).behind == (t.version,)


def test_status_and_repair_read_decisions_that_were_archived(t, sink) -> None:
    t.alter.set({"checkpoint.interval": 1, "archive.keep": 1})
    send(t, rows([1]), sink)
    missed = t.upsert(rows([2])).version
    send(t, rows([3]), sink)
    t.maintenance.archive()
    assert t._handle.store.find(paths.slot(missed)) == b""
    t = again(t)
    assert of(t).behind == (missed,)
    repair(t, sink)
    assert of(t).in_step


def test_a_writer_at_work_is_pending_and_ahead_once_it_is_rolled_back(t, sink) -> None:
    with t.writer("upsert", replicas=Replicas([sink])) as writer:
        writer.write(rows([1]))
        assert (len(of(t).pending), of(t).ahead, of(t).in_step) == (1, (), True)
        (attempt,) = load_attempts(t._handle.store)
    assert (of(t).pending, of(t).in_step) == ((), True)
    write_attempt(t._handle.store, attempt)  # a record that outlived its commit means nothing
    assert of(t).in_step
    repair(t, sink)
    assert load_attempts(t._handle.store) == []
    paused = t.writer("upsert", replicas=Replicas([sink]))
    paused.__enter__().write(rows([2]))
    roll_back_failed(t._handle, reason="test", everything=True)
    assert len(of(t).ahead) == 1
    assert held_by(sink) == {1: 0, 2: 0}
    repair(t, sink)
    assert load_attempts(t._handle.store) == []
    with pytest.raises(RolledBackError):
        paused.__exit__(None, None, None)
    assert len(of(t).ahead) == 1, "it was only paused, and is on record again"


def test_rows_that_lose_in_the_table_are_in_the_sink_and_so_on_record(t, sink) -> None:
    """The sink lacks the newer row. Without a decision, nobody would know of it."""
    t.upsert(rows([1], v=9, rev=9))
    send(t, rows([1], rev=1), sink)
    assert (by_id(t, "v"), held_by(sink)) == ({1: 9}, {1: 0})
    assert of(t).behind == (1,)
    repair(t, sink)
    assert held_by(sink) == by_id(t, "v")


# --- repair ------------------------------------------------------------------------------------


def test_repair_makes_a_sink_equal_and_it_is_in_step(t, sink) -> None:
    send(t, rows([1, 2, 3]), sink)
    t.upsert(rows([3, 4], v=1, rev=1))
    t.delete(where="id = 1")
    found = repair(t, sink)
    assert (found.missing, found.different, found.extra, found.removed) == (1, 1, 1, 1)
    assert held_by(sink) == by_id(t, "v")
    assert of(t).in_step
    assert repair(t, sink).equal


def test_repair_fills_a_sink_that_is_new(t, sink) -> None:
    t.upsert(rows(range(2_500)))
    assert repair(t, sink).missing == 2_500
    assert held_by(sink) == by_id(t, "v")


def test_rows_of_a_commit_that_never_came_are_set_back_removed_or_kept_as_was_asked(
    t, sink
) -> None:
    """A sink itself would keep the greater ordering value; the table is what counts."""
    send(t, rows([1], rev=5), sink)
    fail(t, rows([1], v=9, rev=9), sink)
    fail(t, rows([7], v=9, rev=9), sink)
    assert [attempt.sinks for attempt in of(t).ahead] == [("eu", "broken")] * 2
    found = repair(t, sink, extra="keep")
    assert (found.different, found.extra, found.removed) == (1, 1, 0)
    assert held_by(sink) == {1: 0, 7: 9}
    assert (of(t).position.extra, of(t).in_step) == (1, False)
    assert repair(t, sink).removed == 1
    assert held_by(sink) == by_id(t, "v") == {1: 0}
    assert of(t).in_step
    left = [attempt.sinks for attempt in load_attempts(t._handle.store)]
    assert left == [("broken",)] * 2, "the other sink was not repaired"


def test_a_dry_run_counts_and_changes_nothing(t, sink) -> None:
    fail(t, rows([7]), sink)
    t.upsert(rows([1]))
    found = repair(t, sink, dry_run=True)
    assert (found.missing, found.extra, found.removed, found.dry_run) == (1, 1, 0, True)
    assert held_by(sink) == {7: 0}
    assert of(t).position is None
    assert len(load_attempts(t._handle.store)) == 1


def test_what_a_writer_sends_during_a_repair_stays_behind_until_the_next(t, sink) -> None:
    """The repair takes its row away, and then the writer commits it."""
    with t.writer("upsert", replicas=Replicas([sink])) as writer:
        writer.write(rows([1]))
        found = repair(t, sink)
        assert found.removed == 1
    assert [each.nonce for each in found.overlapped] == [writer.result.instant.nonce]
    assert (of(t).behind, held_by(sink)) == ((1,), {})
    repair(t, sink)
    assert of(t).in_step
    assert held_by(sink) == by_id(t, "v") == {1: 0}


def test_a_commit_between_the_scan_and_the_end_of_a_repair_stays_behind(t, sink) -> None:
    t.upsert(rows([1]))
    other = again(t)
    begun = [True]

    def overtake(call: str) -> None:
        if call == "put" and begun and begun.pop():
            sink.place.before = None
            send(other, rows([2]), sink)

    sink.place.before = overtake
    found = repair(t, sink)
    assert (found.version, len(found.overlapped)) == (1, 1)
    assert of(t).behind == (2,)


def test_a_sink_that_cannot_remove_is_filled_and_its_other_rows_are_refused_or_kept(t) -> None:
    keeps = fresh("keeps", removes=False)
    keeps.open(schema_of(t)).batch_put(rows([7]).to_batches()[0])
    t.upsert(rows([1]))
    with pytest.raises(OptionError):
        repair(t, keeps)
    assert repair(t, keeps, extra="keep").extra == 1
    assert held_by(keeps) == {7: 0, 1: 0}


def schema_of(t: Table) -> SinkSchema:
    return SinkSchema.of(t._handle.cache.known().table.spec)


def test_a_sink_that_cannot_be_read_or_written_is_an_error_and_no_position(sink) -> None:
    """It may have put rows of an older version over newer ones, so it is told until it is done."""
    t = simulated()
    send(t, rows([1, 2]), sink)
    t.upsert(rows([1], v=1, rev=1))
    sink.place.before = failing(99, error=ValueError("odd"))
    with pytest.raises(ReplicationError, match="odd"):
        repair(t, sink)
    assert of(t).position is None
    assert len(of(t).ahead) == 1  # what it sent may be there
    sink.place.before = None
    repair(t, sink)
    assert of(t).in_step
    assert load_attempts(t._handle.store) == []


def simulated() -> Table:
    """Make a table whose pauses take no time."""
    made = build.make(SCHEMA, ordering="rev")
    return Table(open_handle(open_store(build.uri_of(made)), sim_ports()))


def test_a_table_is_repaired_too_although_it_orders_rows_itself(t, request) -> None:
    uri = f"memory://{request.node.name}-replica"
    forget(uri)
    copy = Table.create(uri, SCHEMA, record_key="id", ordering="rev")
    copy.upsert(rows([1, 9], v=9, rev=9))
    t.upsert(rows([1, 2]))
    found: ReplicaRepair = repair(t, TableSink("copy", uri))
    assert (found.missing, found.different, found.removed) == (1, 1, 1)
    assert by_id(copy, "v") == by_id(t, "v")


@dataclass(frozen=True)
class OddSink(KeyValueSink):
    """Shows what it holds in another way than it should."""

    shows: Callable[[pa.RecordBatch], list[object]] = lambda batch: [batch]

    def open(self, schema: SinkSchema) -> OddSession:
        return OddSession(self.place, schema, self.shows)


@dataclass
class OddSession(KeyValueSession):
    shows: Callable[[pa.RecordBatch], list[object]]

    def held(self) -> Iterator[pa.RecordBatch]:
        for batch in super().held():
            yield from self.shows(batch)  # type: ignore[misc]  # whatever a sink gives


def odd(shows: Callable[[pa.RecordBatch], list[object]]) -> OddSink:
    fresh("eu")
    return OddSink("eu", shows=shows)


@pytest.mark.parametrize(
    "shows",
    [lambda batch: [batch, batch], lambda batch: [batch.select(batch.schema.names[::-1])]],
    ids=["twice, as a cursor of Redis does", "columns in another order"],
)
def test_rows_that_a_sink_shows_in_its_own_way_are_the_same_rows(
    t: Table, shows: Callable[[pa.RecordBatch], list[object]]
) -> None:
    sink = odd(shows)
    send(t, rows(range(3)), sink)
    sink.place.rows[9,] = {"id": 9, "v": 1, "rev": 0}
    found = repair(t, sink)
    assert (found.missing, found.different, found.extra, found.removed) == (0, 0, 1, 1)
    assert sorted(row["id"] for row in sink.place.rows.values()) == [0, 1, 2]
    assert repair(t, sink).equal


@pytest.mark.parametrize(
    "shows",
    [
        lambda batch: [batch.select(["id"])],
        lambda batch: [batch.rename_columns(["x", "y", "z"])],
        lambda batch: [None],
        lambda batch: [batch.to_pylist()],
        lambda batch: [batch.set_column(0, "id", pa.array(["text"] * batch.num_rows))],
    ],
)
def test_what_a_sink_shows_must_be_its_rows_or_nothing_is_changed(
    t: Table, shows: Callable[[pa.RecordBatch], list[object]]
) -> None:
    sink = odd(shows)
    send(t, rows(range(3)), sink)
    calls = list(sink.place.calls)
    with pytest.raises(ReplicationError):
        repair(t, sink)
    assert sink.place.calls == calls


def test_a_sink_is_behind_columns_that_changed_until_it_is_compared(t: Table) -> None:
    """The names and types are the same afterwards, and no row was written."""
    sink = fresh("eu")
    send(t, rows(range(3), v=7), sink)
    repair(t, sink)
    t.alter.columns().comment("v", "what it is").commit()
    assert of(t).in_step
    t.alter.columns().drop("v").commit()
    t.alter.columns().add("v", "bigint").move("rev", after="v").commit()
    (told,) = status(t)
    assert not told.in_step
    assert told.behind == (t.version - 1, t.version)
    assert repair(t, sink).different == 3
    assert {row["v"] for row in sink.place.rows.values()} == {None}
    (told,) = status(t)
    assert told.in_step
