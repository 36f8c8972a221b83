"""What a sink takes after its write has failed (RFC 0043): nothing new begins, and it is told.

The sink's calls wait for events, so that each test says when it answers.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from importlib import import_module

import pyarrow as pa
import pytest

from plait import OptionError, ReplicationError, Table
from plait.replicate import Replicas, ReplicaStatus, Retries, TableSink, repair, status
from plait.timeline.replica_records import delete_attempts, load_attempts, write_attempt
from tests.support import build
from tests.support import sinks as sinks_of
from tests.support.build import rows
from tests.support.memory import forget
from tests.support.sinks import KeyValueSink, fresh, held_by

WAIT_S = 60.0


@pytest.fixture
def t() -> Table:
    return build.make()


class Held:
    """A sink whose calls of one kind wait until they are let go, and fail then if asked to."""

    def __init__(self, sink: KeyValueSink, kind: str, *, fails: bool) -> None:
        self.asked, self.go, self.calls = threading.Event(), threading.Event(), 0
        self._kind, self._fails = kind, fails
        sink.place.before = self._before

    def _before(self, kind: str) -> None:
        if kind == self._kind:
            self.calls += 1
            self.asked.set()
            assert self.go.wait(WAIT_S)
            if self._fails:
                message = "the driver's time is over"
                raise OSError(message)


def send(t: Table, data: pa.Table, *sinks: KeyValueSink, patience_s: float = WAIT_S) -> None:
    retries = Retries(attempts=3, pause_s=0.001, pause_s_max=0.001)
    sinks_of.send(t, data, *sinks, batch_size=100, retries=retries, patience_s=patience_s)


def leave_silent(
    t: Table, data: pa.Table, sink: KeyValueSink, *others: KeyValueSink, fails: bool = False
) -> tuple[Held, threading.Thread]:
    """Let a write fail because a sink does not answer; return what lets it, and its thread."""
    gate = Held(sink, "put", fails=fails)
    with pytest.raises(ReplicationError) as caught:
        send(t, data, sink, *others, patience_s=0.05)
    assert sinks_of.outcomes(caught.value, "state")[0] == ("silent",)
    sink.place.before = None
    return gate, lane_of(sink)


def told(t: Table, sink: KeyValueSink) -> ReplicaStatus:
    return next(each for each in status(t) if each.sink == sink.name)


def lane_of(sink: KeyValueSink) -> threading.Thread:
    return next(each for each in threading.enumerate() if each.name == f"plait-{sink.name}")


def test_a_batch_is_not_sent_again_once_its_write_has_failed(t: Table) -> None:
    """An old batch would stand over the rows of the next writer."""
    sink = fresh("late-again")
    gate, lane = leave_silent(t, rows(1, 2, v=1), sink, fails=True)
    send(t, rows(1, 2, v=2), sink)
    gate.go.set()
    lane.join(WAIT_S)
    assert gate.calls == 1
    assert held_by(sink) == {1: 2, 2: 2}


def test_a_sink_that_has_not_answered_stays_ahead_until_it_has_and_is_repaired(t: Table) -> None:
    sink = fresh("late-takes")
    gate, lane = leave_silent(t, rows(1, v=1), sink)
    send(t, rows(1, v=2), sink)
    (attempt,) = load_attempts(t._handle.store)
    assert attempt.under_way == (sink.name,)
    assert repair(t, sink).overlapped == (attempt.instant,)
    assert not told(t, sink).in_step
    gate.go.set()
    lane.join(WAIT_S)
    assert held_by(sink) == {1: 1}  # it came over the newer row
    (attempt,) = load_attempts(t._handle.store)
    assert attempt.under_way == ()
    assert not told(t, sink).in_step
    assert repair(t, sink).overlapped == ()
    assert told(t, sink).in_step
    assert held_by(sink) == {1: 2}


@pytest.mark.parametrize("gone", [False, True], ids=["the record is there", "it is gone"])
def test_a_late_answer_of_one_sink_says_nothing_of_those_that_were_repaired(
    t: Table, *, gone: bool
) -> None:
    sink, other = fresh("late-one"), fresh("late-other")
    gate, lane = leave_silent(t, rows(1, v=1), sink, other)
    repair(t, other)
    (attempt,) = load_attempts(t._handle.store)
    assert attempt.sinks == attempt.under_way == (sink.name,)
    if gone:
        delete_attempts(t._handle.store, attempt.instant)
    gate.go.set()
    lane.join(WAIT_S)
    assert told(t, other).in_step
    assert not told(t, sink).in_step
    repair(t, sink)
    assert load_attempts(t._handle.store) == []


def test_a_late_answer_of_one_sink_leaves_those_that_were_not_repaired(t: Table) -> None:
    sink, other = fresh("late-first"), fresh("late-second")
    gate, lane = leave_silent(t, rows(1, v=1), sink, other)
    gate.go.set()
    lane.join(WAIT_S)
    (attempt,) = load_attempts(t._handle.store)
    assert (set(attempt.sinks), attempt.under_way) == ({sink.name, other.name}, ())


def test_a_sink_that_answers_after_its_repair_is_no_longer_in_step(
    t: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an hour a repair waits for it no longer; another sink keeps the record."""
    sink, other = fresh("late-hour"), fresh("late-us")
    send(t, rows(1, v=0), sink, other)
    gates = [Held(each, "put", fails=False) for each in (sink, other)]
    with pytest.raises(ReplicationError):
        send(t, rows(1, v=1), sink, other, patience_s=0.05)
    lane, last = lane_of(sink), lane_of(other)
    sink.place.before = other.place.before = None
    monkeypatch.setattr(import_module("plait.replicate.repair"), "_SILENT_MS_MAX", -1)
    repair(t, sink)
    assert told(t, sink).in_step
    gates[0].go.set()
    lane.join(WAIT_S)
    assert held_by(sink) == {1: 1}
    assert not told(t, sink).in_step
    gates[1].go.set()
    last.join(WAIT_S)
    assert not told(t, sink).in_step
    assert not told(t, other).in_step


def test_a_process_that_has_ended_leaves_nothing_under_way(t: Table) -> None:
    sink = fresh("late-ended")
    gate, lane = leave_silent(t, rows(1, v=1), sink, fails=True)
    (attempt,) = load_attempts(t._handle.store)
    place, _, _ = attempt.process.rpartition("/")
    write_attempt(t._handle.store, replace(attempt, process=f"{place}/1"))  # it had this number
    repair(t, sink)
    assert load_attempts(t._handle.store) == []
    gate.go.set()
    lane.join(WAIT_S)
    assert not told(t, sink).in_step  # it was none that had ended, and says so


# --- rows from a replica -----------------------------------------------------------------------


@pytest.fixture
def copy(t: Table) -> str:
    """Make a sink of the table that holds its first row, and damage the file of that row."""
    uri = f"{t._handle.store.address.uri}-eu"
    forget(uri)
    Table.create(uri, "id bigint, v bigint", record_key="id")
    with t.writer("upsert", replicas=Replicas([TableSink("eu", uri)])) as writer:
        writer.write(rows(1, v=10))
    return uri


def damage(t: Table) -> None:
    (path,) = t.inspect.files()["path"].to_pylist()
    t._handle.store.put(path, b"damaged")


def test_rows_are_not_taken_from_a_sink_that_is_behind(t: Table, copy: str) -> None:
    t.upsert(rows(1, v=999))
    damage(t)
    for sink in (None, "eu"):
        with pytest.raises(OptionError) as caught:
            t.check.repair_from_replica(copy, sink=sink)
        assert caught.value.facts["behind"] == [2]
        assert caught.value.facts["sink"] == "eu"
    assert t.version == 2


def test_rows_are_taken_from_a_sink_that_is_in_step_and_from_what_is_none(
    t: Table, copy: str
) -> None:
    damage(t)
    assert t.check.repair_from_replica(copy).version == 2
    assert t.scan().to_arrow().to_pylist() == [{"id": 1, "v": 10}]
    t.upsert(rows(1, v=11))
    repair(t, TableSink("eu", copy))
    t.upsert(rows(1, v=11))  # the sink is behind, and the copy is not that sink
    damage(t)
    assert t.check.repair_from_replica(copy, sink="backup").version == 5
