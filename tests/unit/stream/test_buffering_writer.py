"""Rows B1 to B10 and B12 of the buffering stream writer (Hudi RFC-24), each by its number."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pytest

from plait import OffsetGapError, StreamError, Table
from plait.model.instant import State
from plait.storage.port import Store
from plait.stream.messages import Turn, decode
from plait.testing import Fault
from plait.testing.wrapper import WrappedStore
from plait.timeline.pending import load_pending
from tests.support.stream_group import KEYED, lose, rows
from tests.unit.stream.conftest import Make

T = TypeVar("T")


class Held(WrappedStore):
    """Holds the first data file that is written once it is armed, until it may go on."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.armed, self.begun, self.go_on = False, threading.Event(), threading.Event()

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        if self.armed and path.startswith("data/"):
            self.armed = False
            self.begun.set()
            assert self.go_on.wait(300)
        return run()


def staged(table: Table) -> list[str]:
    store = table._handle.store
    return [i.path for i in store.list("data") if i.path.endswith(".run.parquet")]


def test_b1_a_bucket_that_exceeds_its_size_is_flushed_alone(make: Make) -> None:
    group = make("a", keyed=True)
    writer = group.writers["a"]
    one = pa.table({"id": pa.array([7] * 40, pa.int64()), "note": ["n" * 1000] * 40})
    writer.write(rows(0, 10), source="a", start="", end="10")
    writer.write(one, source="a", start="10", end="50")
    writer._require_open()
    group.pump()
    open_turn = writer._turn
    assert open_turn is not None
    open_turn.staging._flusher.wait()
    assert len(staged(group.table)) >= 1, "before any checkpoint"
    assert open_turn.staging.flushes == len(staged(group.table)), "one bucket each time"


def test_b2_the_whole_buffer_is_flushed_when_it_exceeds_its_size_or_a_turn_ends(make: Make) -> None:
    group = make("a", keyed=True)
    group.take("a", 12_000)
    open_turn = group.writers["a"]._turn
    assert open_turn is not None
    open_turn.staging._flusher.wait()
    before = len(staged(group.table))
    assert before > 0
    group.turn()
    assert len(staged(group.table)) > before, "what was left went with the end of the turn"
    assert group.coordinator.complete() is not None
    group.holds(a=12_000)


@KEYED
def test_b3_a_writer_reports_files_counts_and_offsets(make: Make, *, keyed: bool) -> None:
    group = make("a", "b", keyed=keyed)
    group.take("a", 30)
    group.take("b", 20)
    group.turn()
    group.coordinator.poll()
    reports = group.coordinator._group.turns[0].reports
    assert {name: each.rows for name, each in reports.items()} == {"a": 30, "b": 20}
    assert {name: dict(each.ends) for name, each in reports.items()} == {
        "a": {"a": "30"},
        "b": {"b": "20"},
    }
    assert all(bool(each.runs) == keyed and bool(each.status) != keyed for each in reports.values())
    result = group.coordinator.complete()
    assert result is not None
    assert result.stats.rows_in == 50
    position = group.table.stream("app").position
    assert position is not None
    assert (position.epoch, position.end) == (0, '{"a":"30","b":"20"}')


@KEYED
def test_b4_an_instant_is_requested_before_any_writer_hears_of_it(
    make: Make, *, keyed: bool
) -> None:
    group = make("a", keyed=keyed)
    heard = group.hub.writer()
    for _ in range(3):
        group.coordinator.checkpoint(wait_s=0)
        message = decode(heard.receive(0) or b"")
        assert isinstance(message, Turn)
        pending = {entry.instant: entry for entry in load_pending(group.table._handle.store)}
        assert pending[message.instant].state is State.REQUESTED
        group.pump()


@KEYED
def test_b5_a_commit_is_tried_several_times_and_lands_once(make: Make, *, keyed: bool) -> None:
    """INV-09, INV-10: the store fails twice, once without a reply."""
    group = make("a", keyed=keyed)
    group.take("a", 25)
    group.turn()
    slot = ".meta/timeline/*"
    lost = Fault("lost_reply", "put_if_absent", slot, nth=2)
    with group.failing(Fault("error", "put_if_absent", slot), lost):
        result = group.coordinator.complete()
    assert result is not None
    assert result.version == group.table.version
    group.holds(a=25)
    assert group.coordinator.instant != result.instant, "the next one is there"


@KEYED
def test_b6_a_turn_whose_completion_nobody_announced_goes_into_the_next(
    make: Make, *, keyed: bool
) -> None:
    """Nothing lost, nothing twice: the rows of two turns are one epoch."""
    group = make("a", "b", keyed=keyed)
    group.take("a", 10)
    group.turn()
    group.take("a", 25)
    group.take("b", 5)
    group.turn()
    result = group.coordinator.complete()
    assert result is not None
    group.holds(a=25, b=5)
    position = group.table.stream("app").position
    assert position is not None
    assert (position.epoch, position.end) == (0, '{"a":"25","b":"5"}')
    assert group.epoch() is None, "nothing is left of the first"


@KEYED
def test_b6_a_writer_that_never_hears_of_a_decision_goes_on(make: Make, *, keyed: bool) -> None:
    """Its reports come again, and count once."""
    group = make("a", keyed=keyed)
    for stop in (10, 20, 30):
        group.take("a", stop)
        group.coordinator.checkpoint(wait_s=0)
        group.pump()
        group.coordinator.complete()
    group.holds(a=30)
    assert len(group.writers["a"]._undecided.forget(-1)) <= 2, "the next turn says what is decided"


@KEYED
def test_b7_what_was_late_for_a_checkpoint_goes_with_the_next(make: Make, *, keyed: bool) -> None:
    group = make("a", "b", keyed=keyed)
    group.take("a", 10)
    group.take("b", 10)
    assert not group.coordinator.checkpoint(wait_s=0)
    group.pump("a")
    assert group.coordinator.complete() is None, "b is late"
    group.take("a", 20)
    assert not group.coordinator.checkpoint(wait_s=0)
    group.pump()
    assert group.coordinator.complete() is not None
    group.holds(a=20, b=10)


def test_b7_a_lost_report_comes_with_the_next_turn(make: Make) -> None:
    group = make("a")
    group.take("a", 10)
    group.coordinator.checkpoint(wait_s=0)
    group.pump()
    lose(group.hub.coordinator())
    assert group.coordinator.complete() is None
    group.coordinator.checkpoint(wait_s=0)
    group.pump()
    assert group.coordinator.complete() is not None
    group.holds(a=10)


@KEYED
def test_b8_an_error_rolls_back_what_was_written_and_all_begin_anew(
    make: Make, *, keyed: bool
) -> None:
    group = make("a", "b", keyed=keyed)
    group.commit(a=10, b=10)
    group.take("a", 20)
    bad = pa.table({"id": pa.array(["no number"]), "note": ["x"]})
    with pytest.raises(Exception, match="id"):
        group.writers["b"].write(bad, source="b", start="10", end="11")
    with pytest.raises(StreamError, match="writer 'b' failed"):
        group.coordinator.checkpoint(wait_s=0)
    group.pump()
    assert group.writers["a"].offset("a") == group.writers["b"].offset("b") == "10"
    with pytest.raises(OffsetGapError) as refused:
        group.writers["a"].write(rows(20, 30), source="a", start="20", end="30")
    assert refused.value.expected == "10"
    group.arrive(a=30, b=15)


def test_b8_an_instant_that_was_taken_for_dead_is_begun_anew(make: Make) -> None:
    """INV-03: a recoverer was first, so nothing of ours is visible, and it is read again."""
    group = make("a")
    group.take("a", 10)
    group.turn()
    group.coordinator.poll()
    group.table.maintenance.rollback(group.coordinator._group.turns[0].turn.instant)
    with pytest.raises(Exception, match="rolled back"):
        group.coordinator.complete()
    group.pump()
    assert group.writers["a"].offset("a") == ""
    group.arrive(a=10)


def test_b10_rows_of_every_writer_end_in_the_bucket_of_their_key(make: Make) -> None:
    """INV-08: two writers meet in each bucket, and its rows are merged once."""
    group = make("a", "b", keyed=True)
    for name, note in (("a", "one"), ("b", "two")):
        group.writers[name].write(rows(0, 100, note), source=name, start="", end="100")
    result = group.epoch()
    assert result is not None
    group.holds(a=100)
    files = group.table.inspect.files()
    assert sorted(files["bucket"].to_pylist()) == [0, 1, 2, 3], "one file a bucket"


@KEYED
def test_b12_buffering_goes_on_while_a_turn_is_flushed_and_decided(
    make: Make, *, keyed: bool
) -> None:
    """Rows that come meanwhile are under the next instant: the decision of this one leaves them."""
    group = make(keyed=keyed)
    held = Held(group.table._handle.store)
    stream = Table(replace(group.table._handle, store=held)).stream("app")
    writer = group.writers["a"] = stream.participant(group.hub.writer(), "a")
    group.join()
    group.take("a", 1_000)
    held.armed = True
    group.coordinator.checkpoint(wait_s=0)
    writer.poll()
    assert held.begun.wait(300)
    group.take("a", 3_000)
    assert [flush.done() for _, flush in writer._finishing] == [False], "it is under way all along"
    assert not held.go_on.is_set()
    held.go_on.set()
    group.pump()
    assert group.coordinator.complete() is not None
    group.holds(a=1_000)
    group.arrive(a=3_500)


def test_b8_a_coordinator_whose_instant_was_ended_says_so_when_it_polls(make: Make) -> None:
    """INV-03: within a heartbeat interval, not at the end of the turn; its writers begin anew."""
    group = make("a")
    group.take("a", 10)
    opened = group.coordinator._group.turns[0]
    group.coordinator.poll()
    group.table.maintenance.rollback(opened.turn.instant)
    opened.heartbeat._beat()  # it is due
    with pytest.raises(StreamError, match="rolled back"):
        group.coordinator.poll()
    group.coordinator.poll()
    group.pump()
    assert group.writers["a"].offset("a") == "", "it has heard, and reads the rows again"
    group.arrive(a=10)


@KEYED
def test_b12_a_turn_is_flushed_also_where_no_thread_can_be_had(
    make: Make, monkeypatch: pytest.MonkeyPatch, *, keyed: bool
) -> None:
    """By the thread that takes the rows."""
    group = make("a", keyed=keyed)

    def refuse(_: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with monkeypatch.context() as starved:
        starved.setattr(threading.Thread, "start", refuse)
        for stop in (10, 20):
            group.take("a", stop)
            assert group.epoch() is not None
    group.arrive(a=30)
