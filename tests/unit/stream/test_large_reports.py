"""Reports that are too large for a message: their lists are in a file of the instant (RFC 0019)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plait import CorruptMetadataError
from plait.services.verify.foreign import list_foreign, remove_foreign
from plait.state.cache import StateCache
from plait.stream.messages import Report
from plait.stream.participant import Participant
from plait.testing import Fault, FaultStore, SimulatedCrashError
from plait.txn.recovery import roll_back_failed
from tests.support.build import make
from tests.support.later import Later
from tests.support.stream_group import PROPERTIES, Group, require_read_again, rows

SMALL = {"control.message.size": "1B"}


def group_of(*names: str, keyed: bool, partitioned: bool = False, **properties: str) -> Group:
    table = make(
        "id bigint, note string",
        record_key=["id"] if keyed else [],
        buckets=2 if keyed else None,
        partition_by=["note"] if partitioned else [],
        properties={**PROPERTIES, "clean.retain.time": "0s", "clean.grace": "0s", **properties},
    )
    group = Group(table, "upsert" if keyed else "append")
    group.join(*names)
    return group


def files(group: Group) -> list[str]:
    return [i.path for i in group.table._handle.store.list("data") if ".status." in i.path]


def sound(group: Group) -> None:
    """Nothing is left once the stream has ended and the table was cleaned."""
    group.close()
    handle = group.table._handle
    roll_back_failed(handle, reason="its time-out is not awaited", everything=True)
    remove_foreign(handle, list_foreign(handle))
    assert group.table.stream("app").audit().problems == ()
    group.table.alter.set({"lock.wait": "59s"})  # what the newest version condemns is kept
    group.table.maintenance.clean()
    group.table.maintenance.clean()
    assert files(group) == []
    assert group.table.check.verify().problems == ()


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_large_report_is_read_from_its_file_which_is_garbage_then(
    *, keyed: bool, partitioned: bool
) -> None:
    group = group_of("a", "b", keyed=keyed, partitioned=partitioned, **SMALL)
    group.take("a", 10)
    group.take("b", 10)
    group.turn()
    found = files(group)
    assert len(found) == 2
    result = group.coordinator.complete()
    assert result is not None
    decision = group.table._handle.cache.timeline.find(result.version)
    assert decision is not None
    assert set(found) <= set(decision.changes.garbage["path"].to_pylist())
    group.holds(a=10, b=10)
    sound(group)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_large_report_of_a_turn_that_is_carried_over_counts(*, keyed: bool) -> None:
    group = group_of("a", "b", keyed=keyed, **SMALL)
    group.take("a", 10)
    group.coordinator.checkpoint(wait_s=0)
    group.pump("a")
    group.take("a", 15)
    group.turn()
    assert group.coordinator.complete() is not None
    group.holds(a=15)
    sound(group)


@pytest.mark.parametrize("harm", ["missing", "damaged", "swapped"])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_report_whose_file_is_not_as_it_was_is_given_up_and_read_again(
    harm: str, *, keyed: bool
) -> None:
    """Never wrong rows, and none is lost."""
    group = group_of("a", "b", keyed=keyed, **SMALL)
    group.take("a", 10)
    group.take("b", 10)
    group.turn()
    store = group.table._handle.store
    one, other = files(group)
    body = store.find(one) or b""
    if harm == "missing":
        store.delete([one])
    elif harm == "damaged":
        store.put(one, body.replace(b'"rows":10', b'"rows":11'))
    else:
        store.put(one, store.find(other) or b"")
    with pytest.raises(CorruptMetadataError) as error:
        group.coordinator.complete()
    assert error.value.path == one
    require_read_again(group)
    sound(group)


def test_a_report_that_names_the_file_of_another_is_refused() -> None:
    """The hash is right, but it is not what this writer reported."""
    group = group_of("a", "b", keyed=False, **SMALL)
    group.take("a", 10)
    group.take("b", 10)
    group.turn()
    group.coordinator.poll()
    reports: dict[str, Report] = group.coordinator._group.turns[0].reports
    theirs = reports["b"]
    reports["a"] = replace(reports["a"], file=theirs.file, file_hash=theirs.file_hash)
    with pytest.raises(CorruptMetadataError):
        group.coordinator.complete()
    sound(group)


@pytest.mark.long(2)
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
@pytest.mark.parametrize("who", ["writer", "coordinator"])
def test_every_row_is_there_once_wherever_one_of_them_dies(
    who: str, kind: str, *, keyed: bool
) -> None:
    """INV-09, at every storage call of a turn whose reports are files."""
    for nth in range(1, 200):
        group = group_of(keyed=keyed, **SMALL)
        lived = dies(group, who, kind, nth)
        if who == "coordinator" and not lived:
            group.lead()
        group.writers.clear()
        group.join("a")
        for _ in range(2):
            group.pump()
            group.coordinator.poll()
        at = int(group.writers["a"].offset("a") or 0)
        if at < 20:
            group.take("a", 20)
            group.epoch()
        group.holds(a=20)
        sound(group)
        if lived:
            assert nth > 3
            return
    pytest.fail("the epoch never ended")


def dies(group: Group, who: str, kind: str, nth: int) -> bool:
    """Run an epoch in which one dies at a storage call; tell whether it lived on."""
    handle = group.table._handle
    writer = Participant(handle, "app", group.hub.writer(), "a", flushing=Later)
    for _ in range(3):
        writer.poll()
        group.coordinator.poll()
    faulty = FaultStore(handle.store, [Fault(kind, nth=nth)])
    other = replace(handle, store=faulty, cache=StateCache(faulty, handle.ports))
    try:
        if who == "writer":
            writer.close()
            writer = Participant(other, "app", group.hub.writer(), "a", flushing=Later)
        else:
            group.coordinator._handle = other
        for _ in range(3):
            writer.poll()
            group.coordinator.poll()
        writer.write(rows(0, 20), source="a", start="", end="20")
        group.coordinator.checkpoint(wait_s=0)
        writer.poll()
        writer.settle()
        group.coordinator.complete()
    except SimulatedCrashError:
        for each in group.coordinator._group.turns:
            each.heartbeat.stop()
        return False
    writer.close()
    group.coordinator._handle = handle
    return True
