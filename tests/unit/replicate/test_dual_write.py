"""A write that goes to sinks first: order, batches, parallel, failures, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest

from plait import (
    OptionError,
    ReplicationError,
    RetryableConflictError,
    SchemaMismatchError,
    Table,
)
from plait.errors import BadRecordError, StorageError
from plait.files.digest import digest_of
from plait.replicate import Replicas, Retries, SinkSchema
from plait.storage import open_store
from plait.testing import Fault, FaultStore, open_wrapped, sim_ports
from plait.timeline.pending import load_pending
from plait.timeline.replica_records import load_attempts
from plait.txn.table_handle import open_handle
from tests.support import build
from tests.support.build import by_id, keys
from tests.support.memory import forget
from tests.support.sinks import (
    KeyValueSession,
    KeyValueSink,
    failing,
    failure,
    fresh,
    held_by,
    outcomes,
    send,
)

SCHEMA = "id bigint, v bigint"
QUICK = Retries(attempts=3)
rows = partial(build.rows, v=0)


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> str:
    made = f"memory://{request.node.name}"
    forget(made)
    Table.create(made, SCHEMA, record_key="id")
    return made


@pytest.fixture
def t(uri: str) -> Table:
    """A table whose pauses take no time."""
    return Table(open_handle(open_store(uri), sim_ports()))


@pytest.fixture
def one() -> KeyValueSink:
    return fresh("one")


@pytest.fixture
def two() -> KeyValueSink:
    return fresh("two")


def swallow(kind: type[Exception], act: Callable[[], None]) -> None:
    with pytest.raises(kind):
        act()


def untouched(t: Table, *sinks: KeyValueSink) -> bool:
    """Tell whether a refused write left nothing at all."""
    store = t._handle.store
    nothing = not load_pending(store) and not load_attempts(store) and t.version == 0
    return nothing and not any(sink.place.calls or sink.place.sessions for sink in sinks)


# --- what goes where, and when -----------------------------------------------------------------


def test_every_sink_has_acknowledged_each_batch_before_the_commit_is_published(uri, one) -> None:
    """D1: the store is asked to publish when the sinks hold everything."""
    seen: list[int] = []

    class Watching:
        def phase(self, name: str, **facts: object) -> None:
            if name == "publish":
                seen.append(len(one.place.rows))

    t = Table(open_handle(open_store(uri), sim_ports(observer=Watching())))
    with t.writer("upsert", replicas=Replicas([one], batch_size=3)) as w:
        w.write(rows(range(10)))
    assert seen == [10]


@pytest.mark.parametrize(
    "change",
    [
        lambda change: change.generate("v", "id * 2"),
        lambda change: change.drop("v").add("v", "bigint"),
        lambda change: change.add("w", "bigint").drop("v").rename("w", "v"),
    ],
)
def test_sinks_have_the_values_of_the_table_or_nothing_is_committed(t, uri, one, change) -> None:
    """The rows that are staged again are other ones than those that were sent."""

    def written() -> None:
        with Table.open(uri).writer("upsert", replicas=Replicas([one])) as w:
            w.write(pa.table({"id": [1], "v": pa.nulls(1, pa.int64())}))
            change(t.alter.columns()).commit()

    swallow(RetryableConflictError, written)
    assert by_id(t) == {}
    with t.writer("upsert", replicas=Replicas([one])) as w:
        w.write(pa.table({"id": [1], "v": pa.nulls(1, pa.int64())}))
    assert by_id(t) == held_by(one)


Step = tuple[str, pa.Table]
SENT: dict[str, tuple[int, list[Step], list[tuple[str, list[int]]]]] = {
    "one row by default": (1, [("write", rows([3, 1, 2]))], [("put", [n]) for n in (3, 1, 2)]),
    "consecutive rows across calls, and the rest": (
        4,
        [("write", rows(range(3))), ("write", rows(range(3, 9)))],
        [("put", [0, 1, 2, 3]), ("put", [4, 5, 6, 7]), ("put", [8])],
    ),
    "removals in their place among the rows": (
        4,
        [("write", rows([1, 2], v=1)), ("remove", keys([1, 2])), ("write", rows([1], v=2))],
        [("put", [1, 2]), ("remove", [1, 2]), ("put", [1])],
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_every_sink_gets_the_rows_that_are_committed_in_batches(t, one, two, name) -> None:
    size, steps, calls = SENT[name]
    how = {} if size == 1 else {"batch_size": size}
    with t.writer("upsert", replicas=Replicas([one, two], **how)) as w:
        for act, data in steps:
            getattr(w, act)(data)
    assert one.place.calls == two.place.calls == calls
    assert by_id(t) == held_by(one) == held_by(two) != {}


def test_a_delete_by_keys_goes_to_sinks_that_remove(t, one) -> None:
    send(t, rows([1, 2]), one)
    with t.writer("delete", replicas=Replicas([one])) as w:
        w.write(keys([1]))
    assert by_id(t) == held_by(one) == {2: 0}


def test_all_sinks_get_a_batch_at_the_same_time(t, one, two) -> None:
    """Each waits for the other: one after the other, neither would ever go on."""
    meet = threading.Barrier(2, timeout=120)
    for sink in (one, two):
        sink.place.before = lambda call: meet.wait() and None if call == "put" else None
    with t.writer("upsert", replicas=Replicas([one, two], batch_size=2)) as w:
        w.write(rows(range(4)))
    assert by_id(t) == held_by(one) == held_by(two)


def test_no_sink_gets_a_batch_before_all_have_the_one_before(t, one, two) -> None:
    ahead: list[int] = []

    def lag(call: str) -> None:
        if call == "flush":
            threading.Event().wait(0.02)  # time enough for the other one to run ahead
            ahead.append(len(one.place.calls) - len(two.place.calls))

    two.place.before = lag
    with t.writer("upsert", replicas=Replicas([one, two])) as w:
        w.write(rows(range(5)))
    assert ahead == [0] * 5


# --- the ledger --------------------------------------------------------------------------------


def test_the_decision_tells_what_every_sink_holds(t, one, two) -> None:
    """The attempt is on record before the first batch leaves, and until the commit."""
    found: list[tuple[str, ...]] = []
    one.place.before = lambda _: found.extend(a.sinks for a in load_attempts(t._handle.store))
    sent = rows(range(5))
    send(t, sent, one, two, batch_size=2)
    assert found[0] == ("one", "two")
    assert load_attempts(t._handle.store) == []
    ledger = t._handle.cache.refresh().tail[-1].decision.replicas
    assert ledger is not None
    assert ledger.sinks == ("one", "two")
    (task,) = ledger.tasks
    assert (task.batches, task.last_key) == (3, ("4",))
    assert task.digest == digest_of(sent.to_batches())


def test_a_write_without_rows_or_that_was_applied_sends_nothing(t, one) -> None:
    with t.writer("upsert", replicas=Replicas([one]), commit_id="empty"):
        pass
    assert one.place.sessions == 0
    assert t._handle.cache.refresh().tail[-1].decision.replicas is None
    for _ in range(2):
        with t.writer("upsert", replicas=Replicas([one]), commit_id="a") as w:
            w.write(rows([1]))
    assert len(one.place.calls) == 1


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3)])  # so panics of Rust end, too
def test_a_sink_that_fails_for_a_while_gets_the_batch_again_in_a_new_session(
    t, one, two, error
) -> None:
    one.place.before = failing(2, error=error)
    send(t, rows(range(4)), one, two, batch_size=2, retries=QUICK)
    assert by_id(t) == held_by(one) == held_by(two)
    assert (one.place.sessions, two.place.sessions) == (3, 1)
    assert [ids for _, ids in two.place.calls] == [[0, 1], [2, 3]]


def test_a_flush_that_fails_has_its_batch_put_again(t, one) -> None:
    one.place.before = failing(1, call="flush")
    send(t, rows([1, 2]), one, batch_size=2)
    assert one.place.calls == [("put", [1, 2])] * 2


def test_a_sink_that_fails_for_good_fails_the_write_until_the_same_rows_heal_it(
    t, one, two
) -> None:
    """D2: the instant is rolled back, and what it left on sinks is on record."""
    two.place.before = failing(3)
    error = failure(t, rows(range(4)), one, two, batch_size=2, retries=QUICK)
    assert outcomes(error, "sink", "state", "batches", "attempts") == [
        ("one", "held", 1, 1),
        ("two", "failed", 0, 3),
    ]
    assert "the store is down" in error.outcomes[1]["error"]
    assert (by_id(t), held_by(one)) == ({}, {0: 0, 1: 0})
    (attempt,) = load_attempts(t._handle.store)
    assert attempt.sinks == ("one", "two")
    assert t.inspect.history()[0].ended == (attempt.instant,)
    send(t, rows(range(4)), one, two, batch_size=2, retries=QUICK)
    assert by_id(t) == held_by(one) == held_by(two) == dict.fromkeys(range(4), 0)


def test_two_sinks_that_fail_are_both_told(t, one, two) -> None:
    one.place.before, two.place.before = failing(99), failing(99, error=ValueError("odd"))
    error = failure(t, rows([1]), one, two, retries=QUICK)
    assert outcomes(error, "state") == [("failed",), ("failed",)]
    assert "ValueError: odd" in str(error)


def test_a_writer_cannot_commit_after_its_error_was_swallowed(t, one) -> None:
    one.place.before = failing(3)
    replicas = Replicas([one], retries=QUICK)
    with pytest.raises(ReplicationError), t.writer("upsert", replicas=replicas) as w:
        swallow(ReplicationError, lambda: w.write(rows([1])))  # the block ends normally
    assert by_id(t) == {}


def test_a_writer_cannot_commit_without_the_rows_of_a_failed_attempt_record(uri, one) -> None:
    """The store fails once, before the first batch leaves, and the program goes on."""
    fault = Fault("error", "put", "*/attempts/*")
    t, _ = open_wrapped(uri, lambda inner: FaultStore(inner, [fault]), ports=sim_ports())
    replicas = Replicas([one])
    with pytest.raises(ReplicationError), t.writer("upsert", replicas=replicas) as w:
        swallow(StorageError, lambda: w.write(rows([1])))
    assert by_id(t) == held_by(one) == {}
    again = t.writer("upsert", replicas=replicas)
    with again:
        again.write(rows([1]))
    assert by_id(t) == held_by(one) == {1: 0}


def test_nothing_is_sent_before_every_sink_is_open(t, one, two) -> None:
    """Such as a sink that cannot hold these rows: the others get none, and nothing is on record."""
    two.place.before = failing(
        1, call="open", error=SchemaMismatchError("no such columns", column="v")
    )
    error = failure(t, rows([1]), one, two)
    assert outcomes(error, "state", "attempts") == [("held", 1), ("failed", 1)]
    assert (one.place.calls, load_attempts(t._handle.store), t.version) == ([], [], 0)


@pytest.mark.parametrize(
    ("error", "retries", "attempts"),
    [
        (BadRecordError("no NaN", column="v", sample={}), QUICK, 1),
        # by the simulated clock, pauses of 10, 20 and 10 s fill 40 s
        (None, Retries(attempts=99, pause_s=10, pause_s_max=1000, deadline_s=40), 4),
    ],
    ids=["an error that a retry cannot help", "the deadline"],
)
def test_no_attempt_begins_in_vain_or_after_the_deadline(t, one, error, retries, attempts) -> None:
    one.place.before = failing(99, error=error)
    assert outcomes(failure(t, rows([1]), one, retries=retries), "attempts") == [(attempts,)]


def test_a_sink_that_does_not_answer_fails_the_write_in_time(t, one, two) -> None:
    go_on = threading.Event()
    one.place.before = lambda call: go_on.wait(120) and None if call == "put" else None
    error = failure(t, rows([1]), one, two, patience_s=0.2)
    go_on.set()
    assert outcomes(error, "state") == [("silent",), ("held",)]
    assert [a.sinks for a in load_attempts(t._handle.store)] == [("one", "two")]


def test_rows_that_do_not_fit_the_table_reach_no_sink(t, one) -> None:
    with pytest.raises(SchemaMismatchError), t.writer("upsert", replicas=Replicas([one])) as w:
        w.write(pa.table({"id": [1], "other": [1]}))
    assert untouched(t, one)


# --- refused before anything is written --------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("append", {}),
        ("insert", {}),
        ("overwrite", {}),
        ("delete", {"where": "id = 1"}),
        ("upsert", {"missing_columns": "keep"}),
        ("upsert", {"on_conflict": "retry"}),
    ],
)
def test_what_cannot_go_to_sinks_first_is_refused(t, one, operation, arguments) -> None:
    with pytest.raises(OptionError):
        t.writer(operation, replicas=Replicas([one]), **arguments)
    assert untouched(t, one)


def test_deletes_and_removals_are_refused_if_a_sink_cannot_remove(t, one) -> None:
    replicas = Replicas([one, fresh("keeps", removes=False)])
    with pytest.raises(OptionError):
        t.writer("delete", replicas=replicas)
    assert untouched(t, one)
    with pytest.raises(OptionError), t.writer("upsert", replicas=replicas) as w:
        w.remove(keys([1]))
    assert untouched(t, one)


@pytest.mark.parametrize(
    "definition", [{"record_key": ()}, {"record_key": "id", "policy": "merge"}]
)
def test_a_table_whose_sinks_could_differ_for_good_is_refused(one, definition, request) -> None:
    uri = f"memory://{request.node.name}"
    forget(uri)
    table = Table.create(uri, SCHEMA, **definition)
    with pytest.raises(OptionError):
        table.writer("upsert" if definition["record_key"] else "append", replicas=Replicas([one]))
    assert untouched(table, one)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Replicas([]),
        lambda: Replicas([fresh("a"), fresh("a")]),
        lambda: Replicas([fresh("no/slash")]),
        lambda: Replicas([fresh("a")], batch_size=0),
        lambda: Replicas([fresh("a")], patience_s=0),
        lambda: Retries(attempts=0),
        lambda: Retries(pause_s=2, pause_s_max=1),
    ],
)
def test_arguments_that_make_no_sense_are_refused(make) -> None:
    with pytest.raises(OptionError):
        make()


# --- sinks that take many batches before they acknowledge them ---------------------------------


@dataclass(frozen=True)
class Buffering(KeyValueSink):
    """Keeps what it gets until a flush, and loses it with its session."""

    buffers: bool = True

    def open(self, schema: SinkSchema) -> KeyValueSession:
        return BufferingSession(self.place, schema, super().open(schema))


@dataclass
class BufferingSession(KeyValueSession):
    inner: KeyValueSession
    kept: list[pa.RecordBatch] = field(default_factory=list)

    def batch_put(self, records: pa.RecordBatch) -> None:
        self.kept.append(records)

    def flush(self) -> None:
        self.inner.flush()
        for records in self.kept:
            self.inner.batch_put(records)
        self.kept.clear()


@pytest.mark.parametrize("times", [1, 100], ids=["fails once", "cannot flush"])
def test_a_sink_that_buffers_gets_everything_since_its_last_flush_again(t, one, times) -> None:
    fresh("slow")
    slow = Buffering("slow")
    slow.place.before = failing(times, call="flush")
    if times == 1:
        send(t, rows(range(20)), one, slow, retries=QUICK)
        assert by_id(t) == held_by(one) == held_by(slow) == dict.fromkeys(range(20), 0)
    else:
        failure(t, rows(range(20)), one, slow, retries=QUICK)
        assert by_id(t) == held_by(slow) == {}
    assert len(load_attempts(t._handle.store)) == int(times > 1)
