"""Two tables whose streams have one name on one transport: neither takes rows of the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from plait import StreamError, Table
from plait.locks.identity import require_identity
from plait.stream.messages import Farewell, Hello, Message, Progress, Report, encode
from plait.stream.participant import Participant
from plait.testing.expect import refused
from tests.support.rough import RoughTopic
from tests.support.stream_group import KEYED, Group, rows
from tests.unit.stream.conftest import Make


def another(group: Group) -> Table:
    """Create a table of the same layout, in another place."""
    keyed = group.operation == "upsert"
    return Table.create(
        f"{group.table.inspect.describe()['uri']}-other",
        "id bigint, note string",
        record_key=["id"] if keyed else [],
        buckets=4 if keyed else None,
    )


@KEYED
def test_a_writer_refuses_the_turns_of_another_table(make: Make, *, keyed: bool) -> None:
    """INV-09: the coordinator would commit its rows and offsets into the wrong table."""
    group = make("a", keyed=keyed)
    other = another(group)
    strangers = [other.stream("app").participant(group.hub.writer(), name) for name in "ba"]
    for stranger in strangers:
        with suppress(StreamError):  # the turn that the one before asked for
            stranger.poll()
        group.coordinator.poll()
        with refused(StreamError) as refusal:
            stranger.poll()
        assert "the name 'app' is used by another table" in str(refusal.error)
        assert "--name" in (refusal.error.hint or "")
    assert group.coordinator.writers == ("a",)
    group.pump()
    group.arrive(a=10)
    assert other.version == 0
    for stranger in strangers:
        stranger.close()


@KEYED
def test_a_refused_writer_raises_at_each_call_and_drops_what_it_holds(
    make: Make, *, keyed: bool
) -> None:
    """Whoever misses the first error, and waits until the offset is committed, would wait long."""
    group = make("a", keyed=keyed)
    group.take("a", 10)
    writer = group.writers.pop("a")
    turn = group.coordinator._group.turns[-1].turn
    theirs = require_identity(another(group)._handle.store)
    group.hub.coordinator().send(encode(replace(turn, table=theirs, number=turn.number + 1)))
    calls: list[Callable[[], object]] = [
        writer.poll,
        lambda: writer.write(rows(10, 11), start="10", end="11", source="a"),
        lambda: writer.committed("a"),
        lambda: writer.offset("a"),
    ]
    for call in calls:
        with pytest.raises(StreamError, match="another table"):
            call()
    assert not writer.ready
    writer.close()
    with pytest.raises(StreamError, match="another table"):
        writer.poll()


def test_a_coordinator_counts_nothing_that_the_writers_of_another_table_send(make: Make) -> None:
    """Names, lives and numbers may be those of its own writers: the table's identity decides."""
    group = make("a", "b")
    group.take("a", 10)
    group.take("b", 10)
    coordinator, writers = group.coordinator, group.writers
    turn = coordinator._group.turns[-1].turn
    theirs = require_identity(another(group)._handle.store)
    session, number, life = turn.session, turn.number, writers["a"]._life
    sent: list[Message] = [
        Hello(theirs, "c", "1", session, number),
        Hello(theirs, "a", "1", session, number),
        Progress(theirs, session, "a", life, number, 99, 99, moved=True),
        Report(theirs, session, "a", life, number, {"a": ""}, {"a": "99"}, 99),
        Report(theirs, session, "b", writers["b"]._life, number, error="of another table"),
        Farewell(theirs, "a", life),
        replace(turn, table=theirs, session="9" + session[1:]),
    ]
    for message in sent:
        group.hub.writer().send(encode(message))
    coordinator.poll()
    assert coordinator.writers == ("a", "b")
    assert coordinator.held.rows != 99
    group.pump()
    assert group.epoch() is not None
    group.holds(a=10, b=10)


def test_a_coordinator_answers_a_hello_of_another_table_so_that_its_writer_ends(
    make: Make,
) -> None:
    """Without records the next turn may be hours away, and the writer would wait for it."""
    group = make("a")
    heard = group.hub.writer()
    theirs = require_identity(another(group)._handle.store)
    group.hub.writer().send(encode(Hello(theirs, "c", "1")))
    group.coordinator.poll()
    assert heard.receive(0) is not None


@KEYED
def test_of_two_tables_with_one_name_each_has_its_own_rows_or_none(
    make: Make, *, keyed: bool
) -> None:
    """Both have a coordinator, as while a consumer group divides the partitions anew."""
    topic = RoughTopic(np.random.default_rng(0), rough=False)
    group = make(keyed=keyed)
    tables = [another(group), group.table]
    streams = [table.stream("app") for table in tables]
    coordinators = [stream.coordinator(topic.end(), group.operation) for stream in streams]
    writers: list[Participant] = []
    for stream, source in zip(streams, ("a", "b"), strict=True):
        writers.append(stream.participant(topic.end(), source))
    coordinators[0].start()
    ended: set[int] = set()
    for step in range(20):
        if step == 10:
            coordinators[1].start()
        for at, (writer, source) in enumerate(zip(writers, ("a", "b"), strict=True)):
            try:
                writer.poll()
                start = int(writer.offset(source) or 0)
                if writer.ready:
                    part = rows(100 * at + start, 100 * at + start + 1)
                    writer.write(
                        part, start=writer.offset(source), end=str(start + 1), source=source
                    )
                writer.settle()
            except StreamError:
                ended.add(at)
        for coordinator in coordinators[: 1 + step // 10]:
            coordinator.commit(wait_s=0)
        with suppress(StreamError):
            writers[1].poll()
    assert ended == {0, 1}, "one when it came, the other when the second coordinator did"
    first, second = (set(t.scan(["id"]).to_arrow()["id"].to_pylist()) for t in tables)
    assert first, "the first one worked until the second came"
    assert first <= set(range(100))
    assert second == set()
    for thing in (*coordinators, *writers):
        thing.close()
    for table in tables:
        assert table.check.verify().problems == ()
