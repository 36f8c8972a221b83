"""Two coordinators of one application, crashes of one, and what audits say."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import (
    CommitOutcomeUnknownError,
    CoordinatorFencedError,
    EpochUnknownError,
    OptionError,
    StreamError,
    Table,
)
from plait.model.decision import Token
from plait.state.cache import StateCache
from plait.stream.audit import audit_of
from plait.testing import Fault, FaultStore, SimClock
from plait.testing.expect import refused
from plait.timeline import paths
from plait.txn.publish import _TRIES
from tests.support.stream_group import Group, rows
from tests.unit.stream.conftest import Make


def test_of_two_coordinators_the_newer_one_stays_and_the_other_ends(make: Make) -> None:
    """INV-09: the older one has its turn ended, cannot commit it, and stops for good."""
    older = make("a")
    older.take("a", 10)
    older.turn()
    newer = Group(Table(older.table._handle), "append")
    newer.join("a")
    newer.take("a", 7)
    for call in (older.coordinator.complete, older.coordinator.poll, older.coordinator.checkpoint):
        with pytest.raises(CoordinatorFencedError):
            call()
    assert newer.epoch() is not None
    assert newer.ids() == list(range(7))
    newer.close()


def test_a_coordinator_that_another_overtook_knows_where_the_stream_is(make: Make) -> None:
    """It wakes when the other has finished: it hears so at once, and its position is that one's."""
    older = make("a")
    newer = Group(Table(older.table._handle), "append")
    newer.join("a")
    for stop in (10, 20):
        newer.take("a", stop)
        assert newer.epoch() is not None
    newer.close()
    version = older.table.version
    with refused(CoordinatorFencedError) as refusal:
        older.coordinator.commit(wait_s=0)
    assert older.coordinator.position == newer.coordinator.position
    assert refusal.error.position == newer.coordinator.position.to_dict()
    assert older.table.version == version, "it leaves nothing: its turn was ended by the other"


def leave_unheard(store: FaultStore, slot: str, kind: str, *, times: int = _TRIES) -> None:
    """Leave the decision in a slot unanswered, and from then on the slot unreadable."""
    silence = Fault("error", "find", slot if times == _TRIES else "*", times=times)
    lost = Fault(kind, "put_if_absent", slot, times=1 if kind == "lost_reply" else _TRIES)
    lost.run = lambda: store._script.append(silence)
    store._script.append(lost)


@pytest.mark.parametrize("times", [_TRIES, 1_000], ids=["for a while", "for good"])
def test_a_coordinator_whose_commit_landed_unheard_says_so_and_is_not_fenced_by_it(
    make: Make, times: int
) -> None:
    """INV-10: the reply was lost, and the slot could not be read back: the epoch is its own."""
    group = make("a", clock=SimClock())
    group.take("a", 10)
    group.turn()
    with group.failing() as store:
        leave_unheard(store, paths.slot(group.table.version + 1), "lost_reply", times=times)
        with pytest.raises(CommitOutcomeUnknownError):
            group.coordinator.complete()
    if times == _TRIES:
        group.pump()
        group.arrive(a=20)


def test_a_coordinator_begins_though_the_store_does_not_say_that_the_older_one_ended(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Safety does not rest on that end: the table takes each epoch once (INV-09)."""
    older = make("a", clock=SimClock())
    older.take("a", 10)
    older.turn()
    handle = older.table._handle
    faulty = FaultStore(handle.store)
    leave_unheard(faulty, paths.slot(older.table.version + 1), "error")
    cache = StateCache(faulty, handle.ports)
    newer = Group(Table(replace(handle, store=faulty, cache=cache)), "append")
    assert "left for recovery" in caplog.text
    newer.join("a")
    newer.arrive(a=7)
    with pytest.raises(CoordinatorFencedError):
        older.coordinator.complete()
    newer.close()


@pytest.mark.parametrize("keyed", [False, True])
def test_a_new_coordinator_takes_over_the_writers_that_are_there(
    make: Make, *, keyed: bool
) -> None:
    """What was reported to the old one, and never decided, is read again."""
    group = make("a", "b", keyed=keyed)
    group.commit(a=10)
    group.take("a", 20)
    group.take("b", 5)
    group.turn()
    group.succeed()
    group.pump()
    group.coordinator.poll()
    group.pump()
    assert group.writers["a"].offset("a") == "10"
    assert group.writers["b"].offset("b") == ""
    group.arrive(a=30, b=7)


def test_threads_write_epoch_after_epoch(make: Make) -> None:
    """Two writers in threads of their own, and a coordinator that only commits."""
    group = make(keyed=False)
    stream = group.table.stream("app")
    stop = threading.Event()

    def run(name: str) -> None:
        with stream.participant(group.hub.writer(), name) as writer:
            while not stop.is_set():
                if not writer.ready:
                    writer.poll(0.01)
                    continue
                at = int(writer.offset(name) or 0)
                if at < 2_000:
                    batch = rows(at, at + 50, name)
                    writer.write(batch, source=name, start=writer.offset(name), end=str(at + 50))
                writer.poll(0.005)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    try:
        done = '{"one":"2000","two":"2000"}'
        while (at := group.coordinator.position) is None or at.end != done:
            group.coordinator.commit(wait_s=30)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert group.ids() == sorted([*range(2_000)] * 2)


def test_a_writer_whose_name_was_taken_stops(make: Make) -> None:
    group = make("a")
    old = group.writers["a"]
    group.join("a")
    with pytest.raises(StreamError, match="taken the name"):
        old.poll()
    old.close()


def test_a_farewell_lets_another_writer_take_over_without_a_restart(make: Make) -> None:
    """A partition that moves costs the other writers nothing."""
    group = make("a", "b")
    group.commit(a=10, b=5)
    group.take("a", 20)
    group.take("b", 9)
    version = group.table.version
    group.writers.pop("b").leave()
    group.join("b")
    group.commit(b=7)
    assert group.table.version == version + 1, "one epoch, and no rollback"
    group.holds(a=20, b=7)


def test_writers_tell_what_they_hold_and_hear_how_far_the_table_is(make: Make) -> None:
    """A turn without rows leaves no decision."""
    group = make("a", "b")
    version = group.table.version
    for _ in range(3):
        assert group.epoch() is None
    assert group.table.version == version
    assert len(group.table.inspect.timeline().pending) == 1, "the instant of the next turn"
    group.take("a", 10)
    group.take("b", 5)
    group.coordinator.poll()
    assert (group.coordinator.held.rows, group.coordinator.held.urgent) == (15, False)
    assert group.coordinator.held.bytes > 0
    group.writers["a"].hurry()
    group.coordinator.poll()
    assert group.coordinator.held.urgent
    assert group.writers["a"].committed("a") == ""
    group.commit()
    group.writers["a"].poll()
    assert group.writers["a"].committed("a") == "10"


def test_a_seek_is_a_decision_without_rows_that_the_audit_shows(make: Make) -> None:
    """What is passed over, or read again, stands in the timeline."""
    group = make("a", "b")
    group.commit(a=10, b=5)
    group.coordinator.close()
    stream = group.table.stream("app")
    before = stream.position
    sought = {"a": "40", "b": "", "new": "3"}
    assert stream.seek(sought, after=before).stats.rows_in == 0
    with pytest.raises(StreamError, match="no longer"):  # not even the same one twice
        stream.seek(sought, after=before)
    again = Group(group.table, "append")
    again.join("a", "b")
    assert (again.writers["a"].offset("a"), again.writers["b"].offset("b")) == ("40", "")
    again.commit(b=5)
    again.close()
    audit = stream.audit()
    assert audit.problems == ()
    spans = {each.source: (each.start, each.end) for each in audit.epochs[1].offsets}
    assert spans == {"a": ("10", "40"), "b": ("5", ""), "new": ("", "3")}
    assert group.table.scan().count() == 20
    for wrong in ({}, {"other": ""}):
        with pytest.raises(OptionError):
            stream.seek(wrong, after=stream.position)


@pytest.mark.parametrize("end", ["42", "[" * (1 << 16)])
def test_a_coordinator_does_not_go_on_with_offsets_that_it_cannot_read(
    make: Make, end: str
) -> None:
    group = make("a")
    table = group.table
    with table.stream("plain").writer(after=None, end=end) as writer:
        writer.write(pa.table({"id": [1], "note": ["x"]}))
    with pytest.raises(EpochUnknownError):
        table.stream("plain").coordinator(group.hub.coordinator()).start()
    with pytest.raises(OptionError):
        table.stream("x").coordinator(group.hub.coordinator(), "overwrite")
    with pytest.raises(OptionError):
        table.stream("")


def test_an_audit_finds_what_does_not_continue(make: Make) -> None:
    """Made by hand: the table itself takes none of these."""
    group = make("a")
    with group.table.stream("s").writer(after=None, end="1") as writer:
        writer.write(pa.table({"id": [1], "note": ["x"]}))
    decision = group.table._handle.cache.timeline.find(writer.result.version)
    assert decision is not None
    tokens = [
        Token("s", 0, "0", "1"),
        Token("s", 1, "1", "2"),
        Token("s", 1, "1", "2"),
        Token("s", 0, "", "1"),
        Token("s", 5, "1", "6"),
        Token("s", 6, "7", "8"),
    ]
    found = audit_of("s", [replace(decision, tokens=(token,)) for token in tokens])
    assert [p.kind for p in found.problems] == ["gap", "repeat", "rewind", "jump", "gap"]
    assert found.rows == 6
