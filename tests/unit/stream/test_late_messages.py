"""Turns that arrive late, or not at all, while a writer holds files (INV-06, INV-09)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import SchemaError, StreamError
from plait.services.verify.foreign import list_foreign, remove_foreign
from plait.stream.messages import (
    Acknowledgement,
    Hello,
    Turn,
    decode,
    encode,
)
from plait.stream.transport import Endpoint
from plait.testing import Fault, SimClock
from plait.timeline import paths
from tests.support.stream_group import Group, lose, rows
from tests.unit.stream.conftest import Make


def turn_of(group: Group) -> Turn:
    return group.coordinator._group.turns[-1].turn


def send(group: Group, turn: Turn) -> None:
    """Have every writer hear a turn as if it had been under way until now."""
    group.hub.coordinator().send(encode(turn))


class Kept:
    """An end that keeps what came and went, so that it can be sent again."""

    def __init__(self, inner: Endpoint) -> None:
        self._inner = inner
        self.sent: list[bytes] = []
        self.heard: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.sent.append(message)
        self._inner.send(message)

    def receive(self, wait_s: float) -> bytes | None:
        body = self._inner.receive(wait_s)
        if body is not None:
            self.heard.append(body)
        return body


def join_kept(group: Group, name: str) -> Kept:
    """Have a writer come, all of whose messages are kept."""
    end = Kept(group.hub.writer())
    group.writers[name] = group.table.stream("app").participant(end, name)
    group.meet()
    return end


def forget(group: Group) -> None:
    """Lose what the writers have sent."""
    lose(group.coordinator._endpoint)


def go_on(group: Group) -> None:
    for _ in range(4):
        group.turn()
        group.coordinator.complete()


def test_a_turn_from_before_a_writer_was_known_is_not_its_dismissal(make: Make) -> None:
    group = make("a")
    group.take("a", 10)
    group.turn()
    group.take("a", 20)
    early = replace(turn_of(group), number=0, lives={})
    send(group, early)
    group.pump()
    assert group.writers["a"].offset("a") == "20"
    assert group.epoch() is not None
    group.holds(a=20)


def test_a_writer_that_gave_a_turn_up_does_not_report_it_as_empty(make: Make) -> None:
    """Its files have no owner but the instant, which must therefore end by a decision."""
    group = make("a", "b")
    writer = group.writers["a"]
    for start in range(0, 4_000, 500):  # more than a buffer: files are written
        data, end = rows(start, start + 500, "y" * 50), str(start + 500)
        writer.write(data, source="a", start=writer.offset("a"), end=end)
    with pytest.raises(SchemaError):
        writer.write(pa.table({"id": ["no number"]}), source="a", start="4000", end="4001")
    forget(group)  # what it says of it is lost
    group.coordinator.checkpoint(wait_s=0)
    with pytest.raises(StreamError, match="given up"):
        group.epoch()
    group.pump()
    group.arrive(a=7)


def test_a_writer_that_was_left_out_is_not_taken_for_one_that_holds_its_rows(make: Make) -> None:
    """A hello that comes late must not hide that its rows were left out: they would never come."""
    group = make("a", "b")
    group.take("a", 10)
    group.take("b", 10)
    group.coordinator.checkpoint(wait_s=0)
    group.pump("b")
    group.coordinator.dismiss("a")
    about = turn_of(group)
    late = Hello(about.table, "a", group.writers["a"]._life, about.session, about.number)
    group.hub.writer().send(encode(late))
    assert group.coordinator.complete() is not None
    with pytest.raises(StreamError, match="given up"):
        go_on(group)
    group.pump()
    assert group.writers["a"].offset("a") == ""
    group.commit(a=10)
    group.holds(a=10, b=10)
    left = remove_foreign(group.table._handle, list_foreign(group.table._handle))
    assert left.kept == (), "what it wrote late has an owner, and can be removed"


@pytest.mark.parametrize("said_farewell", [True, False])
def test_hellos_of_a_life_that_is_over_take_no_name(make: Make, *, said_farewell: bool) -> None:
    """A topic may repeat them at any time; the writer that has the name now goes on."""
    group = make("b")
    over = join_kept(group, "a")
    gone = group.writers.pop("a")
    if said_farewell:
        gone.leave()
    else:
        gone.close()
    join_kept(group, "a")
    group.take("a", 10)
    for message in over.sent:
        group.hub.writer().send(message)
        group.meet()
    assert group.writers["a"].offset("a") == "10", "no turn began anew"
    group.commit(b=5)
    for message in over.sent:
        group.hub.writer().send(message)
        group.meet()
    group.commit(a=20)
    group.holds(a=20, b=5)


def test_nobody_waits_for_a_writer_whose_hello_is_from_another_time(make: Make) -> None:
    """What it said to an earlier coordinator is no sign that it is there."""
    group = make("b")
    over = join_kept(group, "a")
    group.writers.pop("a").close()
    group.succeed()
    for message in over.sent:
        group.hub.writer().send(message)
    group.meet()
    assert group.coordinator.writers == ("b",)


def test_turns_of_an_earlier_coordinator_take_nothing_from_a_writer(make: Make) -> None:
    group = make()
    join_kept(group, "a").sent.clear()
    group.writers.pop("a").leave()
    end = join_kept(group, "a")
    early = [body for body in end.heard if isinstance(decode(body), Turn)]
    taken = encode(replace(turn_of(group), number=9, lives={"a": "another"}))
    unheard = encode(replace(turn_of(group), number=10, offsets={"a": "99"}))
    group.succeed()
    group.meet()
    group.take("a", 10)
    for message in (*early, taken, unheard):
        group.hub.coordinator().send(message)
        group.meet()
    assert group.writers["a"].offset("a") == "10"


def test_a_writer_that_was_left_out_learns_so_although_no_turn_ends(make: Make) -> None:
    """Nothing that it holds counts, so nobody has a reason to end the turn."""
    group = make("a")
    group.take("a", 10)
    group.coordinator.checkpoint(wait_s=0)
    group.coordinator.dismiss("a")
    assert group.coordinator.complete() is None
    for _ in range(6):
        group.pump()
        with suppress(StreamError):  # it gave up what it had begun
            group.coordinator.poll()
    assert group.writers["a"].offset("a") == ""
    group.arrive(a=10)
    remove_foreign(group.table._handle, list_foreign(group.table._handle))


def test_a_turn_is_sent_again_while_reports_are_awaited(make: Make) -> None:
    """The end of the turn was lost, and so no writer reports it."""
    clock = SimClock()
    group = make("a", clock=clock)
    group.take("a", 10)
    real, sent = group.coordinator._endpoint, list[bytes]()

    class Losing:
        """Loses the first message, and lets the writer work while the coordinator waits."""

        def send(self, message: bytes) -> None:
            sent.append(message)
            if len(sent) > 1:
                real.send(message)

        def receive(self, wait_s: float) -> bytes | None:
            clock.advance(wait_s)
            group.pump()
            return real.receive(0)

    group.coordinator._endpoint = Losing()
    assert group.coordinator.checkpoint(wait_s=5)
    assert len(sent) == 2
    assert group.coordinator.complete() is not None
    group.holds(a=10)


def test_a_writer_that_wants_to_go_is_told_what_is_committed(make: Make) -> None:
    """The acknowledgement was lost, and no row comes that would bring another turn."""
    group = make("a")
    group.commit(a=10)
    lose(group.writers["a"]._endpoint)
    group.pump()
    assert group.writers["a"].committed("a") == ""
    group.writers["a"].hurry()
    group.coordinator.poll()
    group.pump()
    assert group.writers["a"].committed("a") == "10"


def test_a_store_that_fails_after_a_commit_does_not_make_it_seem_another_ones(make: Make) -> None:
    group = make("a")
    group.take("a", 10)
    group.turn()
    with group.failing(Fault("error", "find", paths.slot(group.table.version + 2))):
        assert group.coordinator.complete() is not None
    group.pump()
    group.arrive(a=20)


def test_an_older_copy_of_a_turn_does_not_take_a_writers_name(make: Make) -> None:
    """It names the life before this one, and comes late."""
    group = make("a")
    old = turn_of(group)
    group.writers.pop("a").close()
    group.join("a")
    group.coordinator.poll()
    group.pump()
    group.take("a", 10)
    send(group, replace(old, number=turn_of(group).number, instant=turn_of(group).instant))
    group.pump()
    assert group.epoch() is not None
    group.holds(a=10)


def test_what_a_writer_knows_of_the_table_never_goes_back(make: Make) -> None:
    """Old turns and acknowledgements may come again."""
    group = make()
    end = join_kept(group, "a")
    for stop in (10, 20, 30):
        group.take("a", stop)
        assert group.epoch() is not None
        group.meet()
    assert group.writers["a"].committed("a") == "30"
    for message in [body for body in end.heard if isinstance(decode(body), Turn | Acknowledgement)]:
        group.hub.coordinator().send(message)
        group.pump()
        assert group.writers["a"].committed("a") == "30"
    group.commit(a=40)


def test_a_writer_takes_over_a_name_that_was_left_in_the_same_turn(make: Make) -> None:
    """While nothing comes no turn ends, and it need not wait for one."""
    group = make()
    for _ in range(3):
        join_kept(group, "a")
        group.writers.pop("a").leave()
        join_kept(group, "a")
        group.writers.pop("a").close()
    join_kept(group, "a")
    group.commit(a=10)


def test_a_coordinator_calls_the_writers_of_an_older_one(make: Make) -> None:
    """Its turn was lost, and they work for one that is no more."""
    group = make("a")
    group.take("a", 10)
    newer = group.table.stream("app").coordinator(group.hub.coordinator(), "append")
    newer.start()
    lose(group.writers["a"]._endpoint)
    group.coordinator.close()
    group.coordinator = newer
    group.writers["a"].hurry()
    for _ in range(3):
        newer.poll()
        group.pump()
    assert group.writers["a"].offset("a") == ""
    group.arrive(a=10)


def test_a_writer_in_a_turn_that_was_rolled_back_is_told_the_present_one(make: Make) -> None:
    """The turn that begins anew was lost, and rows of the old one do not count."""
    group = make("a")
    group.take("a", 10)
    group.coordinator.poll()
    group.coordinator._restart("as a test asked")
    lose(group.writers["a"]._endpoint)
    group.writers["a"].hurry()
    group.coordinator.poll()
    group.pump()
    assert group.writers["a"].offset("a") == ""
    group.arrive(a=10)


def test_a_writer_asks_what_became_of_its_rows_until_it_knows(make: Make) -> None:
    """All that it reported was lost, it was left out, and no row comes that would tell."""
    clock = SimClock()
    group = make("a", clock=clock)
    group.take("a", 10)
    group.coordinator.checkpoint(wait_s=0)
    group.pump()
    lose(group.coordinator._endpoint)
    group.coordinator.dismiss("a")
    assert group.coordinator.complete() is None
    for _ in range(6):
        clock.advance(2)
        group.pump()
        with suppress(StreamError):  # it gave up what it had begun
            group.coordinator.poll()
    assert group.writers["a"].offset("a") == ""
    group.commit(a=10)
    group.pump()
    lose(group.coordinator._endpoint)
    clock.advance(2)
    group.writers["a"].poll()
    assert group.coordinator._endpoint.receive(0) is None, "it knows"
    remove_foreign(group.table._handle, list_foreign(group.table._handle))
