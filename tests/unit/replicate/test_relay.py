"""Tasks that send their own rows to sinks, and the records of their attempts."""

from __future__ import annotations

import itertools
import threading
from functools import partial

import pyarrow as pa
import pytest

from plait import RolledBackError, Table
from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Announcer, Task
from plait.errors import ReplicationError
from plait.files.digest import digest_of
from plait.model.changes import WriteStatus
from plait.model.sink_ledger import SinkLedger, TaskLedger
from plait.replicate import Retries, repair, staging, status
from plait.replicate.fan_out import Pace
from plait.replicate.relay import TaskFence, TaskRelay
from plait.testing import sim_ports
from plait.timeline.replica_records import delete_attempts, load_attempts
from plait.txn.recovery import roll_back_failed
from plait.txn.transaction import OptimisticTransaction
from plait.write.request import plan_of, write_request, write_scope
from tests.support import build
from tests.support.memory import forget
from tests.support.sinks import KeyValueSink, failing, fresh

rows = partial(build.rows, v=0)


@pytest.fixture
def t() -> Table:
    return build.make()


@pytest.fixture
def sink() -> KeyValueSink:
    return fresh("eu")


class Job:
    """A distributed writer whose tasks run here, one after the other."""

    def __init__(self, t: Table, sink: KeyValueSink) -> None:
        self.t, self.sink = t, sink
        self.request = write_request("upsert", t._handle.cache.known().table.spec)
        self.txn = OptimisticTransaction.begin(t._handle, self.request)
        self.relay = TaskRelay((sink,), Pace(batch_size=2, retries=Retries(attempts=1)))
        self.done: dict[str, WriteStatus] = {}
        self.ledgers: list[TaskLedger] = []

    def run(self, label: str, data: pa.Table, kind: type[ArrowStaging] = ArrowStaging) -> None:
        """Run an attempt of a task that comes to its end."""
        store, table = self.t._handle.store, self.txn.base.table
        plan = plan_of(self.request, table, store.address, self.txn.instant)
        inner = kind(plan, Announcer(store, plan, label), task=Task(label), store=store)
        snapshot = self.txn.base.snapshot(store)
        self.done[label], ledger = self.relay.stage(inner, plan, label, data, snapshot)
        assert ledger is not None
        self.ledgers.append(ledger)

    def commit(self, label: str, *, settles: bool = True) -> None:
        """Commit what one attempt staged, and settle its record."""
        (ledger,) = (each for each in self.ledgers if each.task == label)
        self.txn.ledger = SinkLedger(("eu",), (ledger,))
        done = self.done[label]
        self.txn.commit(done, write_scope(self.request, self.txn.base.table.spec, done), None)
        if settles:
            delete_attempts(self.t._handle.store, self.txn.instant, [label])


def test_an_attempt_of_a_task_leaves_its_record_before_it_sends_and_tells_its_rows(t, sink) -> None:
    seen: list[list[str]] = []
    sink.place.before = lambda call: (
        seen.append([each.task for each in load_attempts(t._handle.store)])
        if call == "put"
        else None
    )
    job = Job(t, sink)
    job.run("0-7", rows([1, 2, 3]))
    assert seen == [["0-7"], ["0-7"]]
    (ledger,) = job.ledgers
    assert (ledger.task, ledger.batches, ledger.last_key) == ("0-7", 2, ("3",))
    assert ledger.digest == digest_of(rows([1, 2, 3]).to_batches())
    assert sink.place.sessions == 1
    job.commit("0-7", settles=False)
    assert [each.task for each in load_attempts(t._handle.store)] == ["0-7"]
    assert [each.in_step for each in status(t)] == [True], "though nobody removed its record"


def test_an_attempt_that_does_not_count_keeps_the_sink_ahead_until_it_is_repaired(t, sink) -> None:
    """D2: a copy of a task, whose rows came out otherwise, has sent what the commit lacks."""
    job = Job(t, sink)
    job.run("0-7", rows([1, 2, 3], v=1))
    job.run("0-8", rows([1, 2, 3, 4], v=2))
    assert [each.task for each in status(t)[0].pending] == ["0-7", "0-8"]
    job.commit("0-7")
    (found,) = status(t)
    assert [each.task for each in found.ahead] == ["0-8"]
    done = repair(t, sink)
    assert (done.different, done.extra) == (3, 1)
    assert [each.in_step for each in status(t)] == [True]
    assert load_attempts(t._handle.store) == []


def test_a_repaired_sink_leaves_the_record_of_a_task_to_the_other_sinks(t, sink) -> None:
    job = Job(t, sink)
    other = fresh("us")
    job.relay = TaskRelay((sink, other), job.relay.pace)
    job.run("0-7", rows([1]))
    job.run("0-8", rows([1]))
    job.commit("0-7")
    repair(t, sink)
    assert {each.sink: each.in_step for each in status(t)} == {"eu": True, "us": False}


@pytest.mark.parametrize("ended", ["committed", "rolled back"])
def test_an_attempt_sends_nothing_after_the_end_of_its_instant(t, sink, ended) -> None:
    job = Job(t, sink)
    job.run("0-7", rows([1], v=1))
    if ended == "committed":
        job.commit("0-7")
    else:
        roll_back_failed(t._handle, reason="taken for dead", everything=True)
    sink.place.calls.clear()
    with pytest.raises(RolledBackError):
        job.run("0-8", rows([1], v=1))
    assert sink.place.calls == []
    assert [each.task for each in status(t)[0].ahead] == ["0-7"] * (ended == "rolled back")


def test_an_attempt_looks_for_the_end_of_its_instant_at_most_once_a_second(t, sink) -> None:
    job, ports = Job(t, sink), sim_ports()
    fence = TaskFence(t._handle.store, job.txn.instant, ports)
    fence.check()
    roll_back_failed(t._handle, reason="taken for dead", everything=True)
    ports.clock.sleep(0.9)
    fence.check()
    ports.clock.sleep(0.2)
    with pytest.raises(RolledBackError):
        fence.check()


def test_an_attempt_that_fails_writes_its_record_again(t, sink) -> None:
    """A repair may have settled it while the process was paused."""
    job = Job(t, sink)

    def before(call: str) -> None:
        if call == "put":
            delete_attempts(t._handle.store, job.txn.instant, ["0-7"])
            failing(1)(call)

    sink.place.before = before
    with pytest.raises(ReplicationError):
        job.run("0-7", rows([1]))
    assert [each.task for each in load_attempts(t._handle.store)] == ["0-7"]


def test_rows_are_handed_on_while_the_sinks_take_the_next_batch(
    sink, request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink does not acknowledge the third batch before the first is with the table's writer."""
    monkeypatch.setattr(staging, "_BYTES_MAX", 8 << 20)
    uri = f"memory://{request.node.name}"
    forget(uri)
    t = Table.create(uri, "id bigint, payload string", record_key="id")
    handed, puts = threading.Event(), itertools.count(1)

    class Telling(ArrowStaging):
        def write(self, data: object) -> None:
            super().write(data)
            handed.set()

    def before(call: str) -> None:
        if call == "put" and next(puts) == 3:
            assert handed.wait(60)

    sink.place.before = before
    payload = ["x" * (5 << 20)] * 6
    job = Job(t, sink)
    job.run("0-7", pa.table({"id": range(6), "payload": payload}), Telling)
    assert len(sink.place.rows) == 6
    job.commit("0-7")
    assert t.scan().count() == 6
