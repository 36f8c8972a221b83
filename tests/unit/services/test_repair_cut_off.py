"""A cut-off deletes what its plan names and nothing else, and no sink stays in step through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import OptionError, Table
from plait.errors import CorruptMetadataError, PlanStaleError
from plait.model.sink_ledger import SinkPosition
from plait.replicate import Replicas, TableSink, repair, status
from plait.services.verify.repair import RepairPlan
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import sim_ports
from plait.timeline import paths
from plait.timeline.replica_records import load_positions, write_position
from tests.support.lending import Client, Keys, PlainStore, create_lent, lent_table
from tests.support.memory import forget

URI, SINK = "memory://cut-off", "memory://cut-off-eu"
SCHEMA = "id bigint, v bigint"
LOST = 3


def rows(key: int) -> pa.Table:
    return pa.table({"id": [key], "v": [key]})


def send(t: Table, key: int) -> None:
    with t.writer("upsert", replicas=Replicas([TableSink("eu", SINK)])) as writer:
        writer.write(rows(key))


@pytest.fixture
def sink() -> TableSink:
    forget(SINK)
    Table.create(SINK, SCHEMA, record_key="id")
    return TableSink("eu", SINK)


@pytest.fixture
def t() -> Table:
    forget(URI)
    return Table.create(URI, SCHEMA, record_key="id")


def six(t: Table) -> Store:
    """Write five versions; return where they are."""
    for key in range(5):
        t.upsert(rows(key))
    return t._handle.store


def paths_of(store: Store) -> list[str]:
    return sorted(info.path for info in store.list(""))


def plan(store: Store) -> RepairPlan:
    store.delete([paths.slot(LOST)])
    return Table.open(URI).check.repair(accept_loss=[f"slot:{paths.slot(LOST)}"], dry_run=True)


def cut_off(store: Store) -> Table:
    agreed = plan(store)
    Table.open(URI).check.repair(agreed)
    return Table.open(URI)


def slots(store: Store) -> list[str]:
    return sorted(info.path for info in store.list(paths.TIMELINE))


# --- sinks -------------------------------------------------------------------------------------


def sent_with_each(t: Table, sink: TableSink) -> None:
    for key in range(6):
        send(t, key)


def repaired_beyond(t: Table, sink: TableSink) -> None:
    for key in range(6):
        t.upsert(rows(key))
    repair(t, sink)


def sent_beyond_alone(t: Table, sink: TableSink) -> None:
    """Only what is cut off names the sink, and no row was written below it."""
    t.alter.set({"commit.retries": 7})
    t.alter.set({"commit.retries": 8})
    for key in range(4):
        send(t, key)


@pytest.mark.parametrize("act", [sent_with_each, repaired_beyond, sent_beyond_alone])
def test_no_sink_is_in_step_after_a_cut_off_until_it_is_repaired(
    t: Table, sink: TableSink, act: Callable[[Table, TableSink], None]
) -> None:
    act(t, sink)
    again = cut_off(t._handle.store)
    (told,) = status(again)
    assert (told.sink, told.in_step, told.compared_at) == ("eu", False, None)
    for key in range(10, 15):  # until the versions of what was cut off are there again
        send(again, key)
        assert not status(again)[0].in_step
    repair(again, sink)
    assert status(again)[0].in_step
    assert Table.open(SINK).scan().count() == again.scan().count()


def test_a_sink_that_the_definition_names_is_not_in_step_after_a_cut_off(sink: TableSink) -> None:
    forget(URI)
    t = Table.create(URI, SCHEMA, record_key="id", replicas=[f"eu={SINK}"])
    for key in range(5):
        t.upsert(rows(key))
    t._handle.store.delete([paths.slot(LOST)])
    name = f"slot:{paths.slot(LOST)}"
    damaged = Table.open(URI, allow=[SINK])
    damaged.check.repair(damaged.check.repair(accept_loss=[name], dry_run=True))
    assert not status(Table.open(URI, allow=[SINK]))[0].in_step


def test_a_position_counts_as_lost_if_the_timeline_has_not_its_decision(
    t: Table, sink: TableSink
) -> None:
    t.upsert(rows(1))
    repair(t, sink)
    store = t._handle.store
    (position,) = load_positions(store)
    assert status(t)[0].in_step
    for lost in (
        replace(position, version=9, decision=""),
        replace(position, decision="0" * len(position.decision)),
        SinkPosition("eu", 0, lost=True),
    ):
        write_position(store, lost)
        assert not status(t)[0].in_step
    assert load_positions(store) == [SinkPosition("eu", 0, lost=True)]


# --- what is deleted ---------------------------------------------------------------------------


@pytest.mark.parametrize("replaced", [False, True])
def test_a_cut_off_deletes_nothing_if_somebody_committed_since_the_plan(
    t: Table, *, replaced: bool
) -> None:
    """INV-01: a commit that was told as a success is not deleted without a word."""
    store = six(t)
    agreed = plan(store)
    assert paths.slot(5) in agreed.repairs[0].what
    if replaced:  # another decision took the newest slot
        store.put(paths.slot(5), store.find(paths.slot(4)) or b"")
    else:
        assert t.upsert(rows(7)).version == 6
    before = paths_of(store)
    with pytest.raises(PlanStaleError):
        Table.open(URI).check.repair(agreed)
    assert paths_of(store) == before, "nor its checkpoints"
    if replaced:
        return
    again = Table.open(URI).check.repair(accept_loss=[f"slot:{paths.slot(LOST)}"], dry_run=True)
    assert paths.slot(6) in again.repairs[0].what
    Table.open(URI).check.repair(again)
    opened = Table.open(URI)
    assert opened.upsert(rows(6)).version == LOST
    assert opened.check.repair(again).mended == (), "it was carried out"
    assert Table.open(URI).version == LOST


class Crowded:
    """A store on which somebody commits when something is deleted for the first time."""

    def __init__(self, store: Store, commit: Callable[[], object]) -> None:
        self._store, self._commit = store, commit

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def delete(self, doomed: list[str]) -> None:
        if doomed and doomed[0].startswith(paths.TIMELINE) and self._commit is not None:
            commit, self._commit = self._commit, None
            commit()
        self._store.delete(doomed)


def test_a_commit_while_slots_are_deleted_is_told(t: Table) -> None:
    store = six(t)
    agreed = plan(store)
    (found,) = agreed.repairs
    assert found.cut is not None
    below = Table.open(URI)._handle.cache.refresh_up_to(LOST - 1)
    crowded = Crowded(store, lambda: t.upsert(rows(8)))
    with pytest.raises(PlanStaleError):
        found.cut.make(crowded, below)  # type: ignore[arg-type]
    assert slots(store)[-1] == paths.slot(6), "what was acknowledged stays"
    with pytest.raises(CorruptMetadataError):
        Table.open(URI).append(rows(9))
    again = Table.open(URI).check.repair(accept_loss=[found.id], dry_run=True)
    Table.open(URI).check.repair(again)
    opened = Table.open(URI)
    assert (opened.version, opened.upsert(rows(9)).version) == (LOST - 1, LOST)


def test_nothing_is_deleted_if_somebody_committed_before_the_first_step(t: Table) -> None:
    """Neither a checkpoint, nor what is known of sinks."""
    store = six(t)
    (found,) = plan(store).repairs
    assert found.cut is not None
    below = Table.open(URI)._handle.cache.refresh_up_to(LOST - 1)
    t.upsert(rows(8))
    write_position(store, SinkPosition("eu", 0))
    before = paths_of(store), load_positions(store)
    with pytest.raises(PlanStaleError):
        found.cut.make(store, below)
    assert (paths_of(store), load_positions(store)) == before


def test_a_slot_far_beyond_the_head_is_cut_off_too(t: Table) -> None:
    """No look at the head finds it, and the commit before it would be stuck."""
    for key in range(6):
        t.upsert(rows(key))
    store = t._handle.store
    store.delete([paths.slot(version) for version in (LOST, LOST + 1, LOST + 2)])
    Table.open(URI).check.repair(plan(store))
    assert slots(store)[-1] == paths.slot(LOST - 1)
    assert Table.open(URI).check.verify().problems[0].invariant == "INV-06"


def test_slots_that_a_service_decides_are_not_cut_off() -> None:
    """It would go on naming those that are gone, and nobody could open the table any more."""
    store, keys = PlainStore(MemoryStore("memory://cut-off-lent")), Keys()
    made = create_lent(store, Client(keys), sim_ports(), "id bigint")
    for number in range(8):
        made.append(pa.table({"id": [number]}))
    store.delete([paths.slot(5)])
    before = slots(store)
    opened = lent_table(store, Client(keys), sim_ports())
    name = f"slot:{paths.slot(5)}"
    with pytest.raises(OptionError):
        opened.check.repair(accept_loss=[name], dry_run=True)
    (found,) = [each for each in opened.check.repair(dry_run=True).findings if each.id == name]
    assert found.cut is None
    assert slots(store) == before
