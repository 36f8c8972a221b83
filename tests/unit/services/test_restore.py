"""Savepoints, restore, undo and replay: what they show, undo and refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

from plait import (
    EpochRewoundError,
    EpochUnknownError,
    IncompatibleConflictError,
    InstantExpiredError,
    InstantNotFoundError,
    OptionError,
    RestoreRefusedError,
    Table,
    UndoneError,
)
from plait.definition import features
from plait.definition.create import define_table
from plait.model.stream import Position
from plait.storage.memory import MemoryStore
from plait.testing import (
    Fault,
    FaultStore,
    SimClock,
    SimulatedCrashError,
    open_wrapped,
    sim_ports,
)
from plait.timeline import paths
from plait.txn.recovery import roll_back_failed
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import open_handle
from plait.write.writer import Writer
from tests.support import build
from tests.support.build import LITTLE, again, listed, rows, uri_of
from tests.support.protocol import beside

Rows = list[tuple[int, int]]
_NUMBERS = itertools.count()


def make(table_type: str = "mor", **properties: str) -> Table:
    return build.make(
        table_type=table_type,
        buckets=2,
        properties={**LITTLE, "checkpoint.interval": "4", **properties},
    )


def upsert(table: Table, value: int, *ids: int, commit_id: str | None = None) -> int:
    return table.upsert(rows(*ids, v=value), commit_id=commit_id).version


def sound(table: Table) -> None:
    assert table.check.verify().problems == ()


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest) -> Table:
    return make(request.param)


@pytest.fixture
def t() -> Table:
    """Give a table to a test for which its type makes no difference."""
    return make()


# --- restore -----------------------------------------------------------------------------------


@pytest.mark.long(1)
def test_a_restore_shows_the_rows_of_its_version_and_every_version_stays_as_it_was(
    table: Table,
) -> None:
    """INV-04, INV-05: also in a process that opens the table afterwards."""
    upsert(table, 1, 1, 2, 3)
    upsert(table, 2, 2)
    table.delete(where="id = 1")
    upsert(table, 3, 3, 4)
    before = {version: listed(table, version=version) for version in range(table.version + 1)}
    for to in (2, 4, 0, 3, 1, 4):
        report = table.versions.restore(version=to)
        assert listed(table) == before[to]
        assert report.plan.to == to
        before[table.version] = before[to]
        upsert(table, 10 + to, 9)
        before[table.version] = listed(table)
        for each in (table, again(table)):
            for version, held in before.items():
                assert listed(each, version=version) == held, version
    sound(table)


def test_changes_across_restores_lead_from_the_first_rows_to_the_last(table: Table) -> None:
    """Over every window: applied to the rows before it, they give the rows after it."""
    upsert(table, 1, 1, 2, 3)
    table.delete(where="id = 1")
    upsert(table, 2, 2, 4)
    table.versions.restore(version=1)
    upsert(table, 3, 3)
    table.versions.restore(version=3)
    table.versions.undo()
    for since, until in itertools.combinations(range(table.version + 1), 2):
        rows = dict(listed(table, version=since))
        for row in table.changes(since=since, until=until).to_arrow().to_pylist():
            if row["_change_type"] in ("delete", "update_preimage"):
                assert rows.pop(row["id"]) == row["v"]
            else:
                assert row["id"] not in rows
                rows[row["id"]] = row["v"]
        assert rows == dict(listed(table, version=until)), (since, until)


def test_a_restore_of_the_version_before_a_restore_undoes_it(t: Table) -> None:
    upsert(t, 1, 1, commit_id="one")
    upsert(t, 2, 2, commit_id="two")
    undone = t.versions.restore(version=1)
    assert undone.plan.commit_ids == ("two",)
    assert [each.undone_by for each in t.inspect.history()] == [
        None,
        undone.version,
        None,
        None,
    ]
    back = t.versions.restore(version=undone.version - 1)
    assert [each.version for each in back.plan.returned] == [2]
    assert back.plan.reverted == ()
    assert upsert(t, 2, 2, commit_id="two") == 2
    assert listed(t) == [(1, 1), (2, 2)]
    sound(t)


def test_undo_takes_back_one_commit_of_rows_after_the_other(t: Table) -> None:
    """Over decisions that change no row, and nothing if there is nothing."""
    upsert(t, 1, 1)
    upsert(t, 2, 1, 2)
    assert t.versions.restore(version=t.version).version is None
    plan = t.versions.undo(dry_run=True)
    assert plan.to == 1
    t.alter.set({"commit.retries": 3})
    t.versions.savepoint("here")
    assert t.versions.restore(savepoint="here").version is None
    assert t.versions.restore(plan).version == t.version
    assert listed(t) == [(1, 1)]
    assert t.properties["commit.retries"] == "3"
    t.versions.undo()
    assert listed(t) == []
    with pytest.raises(InstantNotFoundError):
        t.versions.undo()


def test_a_restore_undoes_no_commit_that_its_plan_did_not_show(t: Table) -> None:
    upsert(t, 1, 1)
    plan = t.versions.undo(dry_run=True)
    late = upsert(t, 2, 2)
    with pytest.raises(RestoreRefusedError) as refused:
        t.versions.restore(plan)
    assert refused.value.facts["versions"] == [late]
    for named in ({}, {"version": 0, "savepoint": "x"}, {"version": True}):
        with pytest.raises(OptionError):
            t.versions.restore(**named, dry_run=True)
    assert listed(t) == [(1, 1), (2, 2)]


def test_a_savepoint_is_set_once(t: Table) -> None:
    upsert(t, 1, 1)
    first = t.versions.savepoint("a", version=1)
    assert t.versions.savepoint("a") == first
    assert t.versions.savepoint("a", version=1) == first
    upsert(t, 2, 1)
    for version in (2, None):  # last week's is not what is wanted now
        with pytest.raises(OptionError, match="version 1 already"):
            t.versions.savepoint("a", version=version)
    for name in ("", "-a", "a b", "x" * 101):
        with pytest.raises(OptionError):
            t.versions.savepoint(name)
    with pytest.raises(InstantNotFoundError):
        t.versions.savepoint("b", version=99)
    assert [each.to_dict() for each in t.versions.savepoints] == [{"name": "a", "version": 1}]


@pytest.mark.long(1)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_large_restore_that_dies_leaves_what_recovery_removes(nth: int) -> None:
    """INV-06: its record explains its manifests."""
    wide = build.make("id bigint", buckets=400, upsert=rows(range(4_000)))
    store = wide._handle.store
    before = [info.path for info in store.list(paths.MANIFESTS)]
    fault = Fault("crash_before", "put_if_absent", nth=nth)  # of the manifest, of the slot
    dying, _ = open_wrapped(uri_of(wide), lambda store: FaultStore(store, [fault]))
    with pytest.raises(SimulatedCrashError):
        dying.versions.undo()
    assert len(wide.inspect.timeline().pending) == 1
    sound(wide)
    roll_back_failed(wide._handle, reason="dead", everything=True)
    assert wide.inspect.timeline().pending == ()
    assert [info.path for info in store.list(paths.MANIFESTS)] == before
    undone = wide.versions.undo()
    assert (undone.version, wide.scan().count()) == (wide.version, 0)
    assert undone.plan.files_removed > 256
    assert wide.versions.restore(version=1).plan.files_added > 256
    assert wide.scan().count() == 4_000
    sound(wide)


# --- savepoints --------------------------------------------------------------------------------


def test_a_savepoint_stays_readable_behind_the_horizon(table: Table) -> None:
    """INV-05: masks too, in checkpoints, and after later cleans; nothing beside it does."""
    upsert(table, 1, *range(20))
    upsert(table, 2, 3, 4, 5)
    kept = listed(table)
    saved = table.versions.savepoint("monday")
    for value in range(3, 12):
        upsert(table, value, 3, value)
        table.maintenance.clean()
    for each in (table, again(table)):
        assert listed(each, version=saved.version) == kept
        with pytest.raises(InstantExpiredError):
            each.scan(version=saved.version - 1)
        with pytest.raises(InstantExpiredError):
            each.changes(since=saved.version)
        with pytest.raises(InstantExpiredError):
            each.writer("upsert", read_from=saved.version)
    sound(table)
    table.versions.restore(savepoint="monday")
    assert listed(table) == kept
    table.maintenance.clean()
    assert listed(table, version=saved.version) == kept
    sound(table)


def test_a_dropped_savepoint_lets_its_files_go_and_leaves_its_feature(table: Table) -> None:
    """A client that does not know restores must refuse the table from then on."""
    upsert(table, 1, *range(20))
    timeline = table._handle.cache.timeline
    assert timeline.find(table.version).features == features.FEATURES
    table.versions.savepoint("monday")
    table.overwrite(pa.table({"id": [1], "v": [1]}))
    upsert(table, 2, 1)
    table.maintenance.clean()
    assert len(listed(table, version=1)) == 20
    table.versions.drop_savepoint("monday")
    assert table.versions.savepoints == ()
    assert table.maintenance.clean().deleted
    with pytest.raises(InstantExpiredError):
        table.scan(version=1)
    with pytest.raises(InstantNotFoundError):
        table.versions.drop_savepoint("monday")
    for value in range(4):
        upsert(table, value, 1)
        assert features.RESTORES in timeline.find(table.version).features
    assert features.RESTORES in again(table)._handle.cache.refresh().lineage.features
    sound(table)


def test_a_file_that_came_back_is_not_cleaned_because_it_was_removed_before(table: Table) -> None:
    """INV-05."""
    upsert(table, 1, *range(20))
    table.overwrite(pa.table({"id": [1], "v": [1]}))
    table.versions.restore(version=1)
    upsert(table, 2, 30)
    table.maintenance.clean()
    assert len(listed(table)) == 21
    sound(table)


# --- commit ids and streams --------------------------------------------------------------------


def test_a_commit_id_that_was_undone_raises_until_a_replay_names_it(t: Table) -> None:
    """INV-16."""
    first = upsert(t, 1, 1, commit_id="a")
    stale = again(t)
    assert stale.inspect.find_commit("a").version == first
    restore = t.versions.undo().version
    for each in (t, stale, again(t)):
        with pytest.raises(UndoneError) as undone:
            upsert(each, 1, 1, commit_id="a")
        assert (undone.value.facts["version"], undone.value.facts["restore"]) == (first, restore)
        with pytest.raises(UndoneError):
            each.inspect.find_commit("a")
    assert t.versions.replay(commit_ids=["a"]).plan.commit_ids == ("a",)
    assert stale.inspect.find_commit("a") is None
    second = upsert(stale, 1, 1, commit_id="a")
    assert upsert(t, 1, 1, commit_id="a") == second > first
    t.versions.undo()
    with pytest.raises(UndoneError):  # the replay was for the first
        upsert(t, 1, 1, commit_id="a")
    sound(t)


def test_a_restore_may_contain_the_replay(t: Table) -> None:
    """INV-16: the operator's word holds for commit ids as for streams, and for earlier restores."""
    upsert(t, 1, 1, commit_id="a")
    epoch(t, "", "1")
    t.versions.restore(version=0, replay=True)
    assert upsert(t, 1, 1, commit_id="a") == t.version
    assert epoch(t, "", "1") == t.version
    sound(t)
    t.versions.undo()
    t.versions.undo()
    plan = t.versions.restore(version=0, dry_run=True)
    assert plan.commit_ids == ("a",)
    t.versions.restore(plan, replay=True)
    assert upsert(t, 2, 1, commit_id="a") == t.version


def epoch(table: Table, start: str, end: str, value: int = 0) -> int:
    """Apply the epoch that ends there."""
    number = int(end) - 1
    token = table.stream("loader").token(number, start, end)
    rows = pa.table({"id": [100 + number], "v": [value]})
    stream = table.stream("loader")
    writer = stream.writer_of(token, "upsert", on_conflict="raise", on_duplicate="raise")
    with writer:
        writer.write(rows)
    return writer.result.version


def test_a_stream_whose_last_epoch_was_undone_stops_until_a_replay(t: Table) -> None:
    """INV-09, INV-16: neither the epoch nor the next one is applied; an older one is known."""
    first = epoch(t, "", "1")
    second = epoch(t, "1", "2")
    stale = again(t)
    assert epoch(stale, "1", "2") == second
    restored = t.versions.restore(version=first)
    assert restored.plan.applications == ("loader",)
    for each in (t, stale, again(t)):
        for start, end in (("1", "2"), ("2", "3"), ("7", "9")):
            with pytest.raises(UndoneError):
                epoch(each, start, end)
        assert epoch(each, "", "1") == first
    report = t.versions.replay(applications=["loader"])
    assert [each.version for each in report.plan.applications] == [first]
    assert t.stream("loader").position.end == "1"
    with pytest.raises(EpochUnknownError):
        epoch(stale, "2", "3")
    third = epoch(stale, "1", "2", value=5)
    assert epoch(t, "1", "2", value=5) == third
    with pytest.raises(EpochRewoundError):  # the rows that were undone
        epoch(t, "1", "2")
    audit = t.stream("loader").audit()
    assert audit.problems == ()
    assert [(each.epoch, each.undone_by) for each in audit.epochs] == [
        (0, None),
        (1, restored.version),
        (1, None),
    ]
    sound(t)


def test_a_restore_that_undoes_a_replay_stops_the_stream_again(t: Table) -> None:
    """INV-09: else an epoch would be applied twice (the model ``lineage``)."""
    epoch(t, "", "1")
    undone = t.versions.restore(version=0).version
    t.versions.replay()
    assert t.stream("loader").position is None
    t.versions.restore(version=undone - 1)
    assert epoch(t, "", "1") == 1  # the table contains it again
    with pytest.raises(UndoneError):
        epoch(t, "1", "2")
    t.versions.replay(applications=["loader"])
    assert t.stream("loader").position.version == 1
    epoch(t, "1", "2")
    assert t.scan().count() == 2
    sound(t)


def test_an_epoch_is_not_applied_twice_when_the_restore_before_its_replay_is_undone(
    t: Table,
) -> None:
    """INV-09: the position comes from the replay, and the replay is undone."""
    epoch(t, "", "1")
    second = epoch(t, "1", "2")
    undone = t.versions.restore(version=1).version
    t.versions.replay()
    t.versions.restore(version=undone - 1)
    assert epoch(t, "1", "2") == second
    for start, end, value in (("1", "2", 9), ("2", "3", 0)):
        with pytest.raises((UndoneError, EpochRewoundError)):
            epoch(t, start, end, value=value)
    t.versions.replay()
    assert epoch(t, "2", "3") == t.version
    assert t.scan().count() == 3
    sound(t)


def test_an_epoch_that_is_undone_while_its_rows_are_compared_is_not_called_applied(
    t: Table,
) -> None:
    """INV-16."""
    epoch(t, "", "1")
    stream = t.stream("loader")
    token = stream.token(0, "", "1")
    writer = stream.writer_of(token, "upsert", on_conflict="raise", on_duplicate="raise")
    writer.__enter__()
    writer.write(pa.table({"id": [100], "v": [0]}))
    other = again(t)
    other.versions.undo()
    other.versions.replay()
    with pytest.raises(UndoneError):
        writer.__exit__(None, None, None)
    assert epoch(t, "", "1") == t.version


def test_a_replay_names_only_what_is_undone(t: Table) -> None:
    upsert(t, 1, 1, commit_id="a")
    epoch(t, "", "1")
    assert t.versions.replay().version is None
    for named in ({"applications": ["loader"]}, {"commit_ids": ["a"]}, {"commit_ids": ["b"]}):
        with pytest.raises(OptionError):
            t.versions.replay(**named)
    t.versions.restore(version=0)
    plan = t.versions.replay(dry_run=True)
    assert [each.application for each in plan.applications] == ["loader"]
    assert plan.commit_ids == ("a",)


def test_positions_and_lineage_are_in_checkpoints() -> None:
    """INV-09: a client that opens the table from a checkpoint knows what was undone."""
    table = make("cow", **{"checkpoint.interval": "1"})
    epoch(table, "", "1")
    upsert(table, 1, 1, commit_id="a")
    table.versions.restore(version=0)
    table.versions.replay(applications=["loader"])
    upsert(table, 2, 2)
    known, opened = table._handle.cache.refresh(), again(table)._handle.cache.refresh()
    assert opened.checkpoint == opened.version
    assert (known.lineage, known.streams) == (opened.lineage, opened.streams)
    with pytest.raises(UndoneError):
        again(table).inspect.find_commit("a")
    sound(table)


def test_time_travel_reads_undone_versions_and_times_before_a_restore() -> None:
    clock = SimClock(1_700_000_000_000)
    uri = f"memory://restore-{next(_NUMBERS)}"
    store = MemoryStore(uri, clock=clock)
    definition = define_table("id bigint, v bigint", record_key="id", lock="process")
    create_table(store, sim_ports(clock=clock), definition)
    table = Table(open_handle(store, sim_ports(clock=clock)))
    times = []
    for value in range(1, 4):
        upsert(table, value, value)
        times.append(table.inspect.history(limit=1)[0].completed_ms)
        clock.advance(1)
    table.versions.restore(as_of=times[0])
    assert listed(table) == [(1, 1)]
    assert len(table.scan(as_of=times[1]).to_arrow()) == 2
    assert len(table.scan(as_of=times[2]).to_arrow()) == 3
    assert len(table.scan(version=2).to_arrow()) == 2


# --- beside writers ------------------------------------------------------------------------------

ROWS = pa.table({"id": [1, 2], "v": [5, 5]})


def by_commit_id(table: Table) -> None:
    table.upsert(ROWS, commit_id="one")


def by_epoch(table: Table) -> None:
    after: Position | None = None
    with table.stream("s").writer("upsert", after=after, end="1", on_conflict="raise") as writer:
        assert isinstance(writer, Writer)
        writer.write(ROWS)


Write = Callable[[Table], object]


@pytest.mark.parametrize("write", [by_commit_id, by_epoch])
def test_what_was_let_through_while_it_was_written_says_so_and_is_applied_when_sent_again(
    write: Write,
) -> None:
    """INV-16: somebody sent the same, and a restore undid it and let it be applied again."""
    table = build.make(upsert=rows(2, v=1))

    def meanwhile() -> None:
        write(table)
        table.versions.undo(replay=True)

    with pytest.raises(UndoneError) as caught:
        write(beside(table, "publish", meanwhile))
    assert "send it again" in caught.value.hint
    assert table.scan().count() == 1
    write(table)
    assert table.scan().count() == 2


@pytest.mark.parametrize("write", [by_commit_id, by_epoch])
def test_what_was_undone_while_it_was_written_needs_a_replay(write: Write) -> None:
    """INV-16."""
    table = build.make(upsert=rows(2, v=1))

    def meanwhile() -> None:
        write(table)
        table.versions.undo()

    with pytest.raises(UndoneError) as caught:
        write(beside(table, "publish", meanwhile))
    assert "Table.versions.replay" in caught.value.hint
    with pytest.raises(UndoneError):
        write(table)
    table.versions.replay()
    write(table)
    assert table.scan().count() == 2


def dated(*ids: int) -> pa.Table:
    times = pa.array([0] * len(ids), pa.timestamp("us", "UTC"))
    return pa.table({"id": ids, "at": times, "v": [1] * len(ids)})


def by_predicate(table: Table) -> None:
    table.overwrite(dated(9), where="id = 9", on_conflict="retry")


def by_update(table: Table) -> None:
    table.update({"v": "v + 1"}, where="id < 5", on_conflict="retry")


def by_reads(table: Table) -> None:
    with table.transaction() as block:
        block.scan(where="id < 5").to_arrow()
        block.upsert(dated(9))


@pytest.mark.parametrize("write", [by_predicate, by_update, by_reads])
def test_a_writer_that_meets_a_restore_to_another_layout_and_later_rows_is_refused_by_name(
    write: Write,
) -> None:
    """INV-07: what came after the restore is not judged by the partitions of before it."""
    table = build.make(
        "id bigint, at timestamp, v bigint",
        partition_by="month(at)",
        unique="partition",
        isolation="serializable",
    )
    table.upsert(dated(1, 2))
    version = table.version
    table.layout.repush(partition_by="truncate(4, id)")
    assert version is not None

    def meanwhile() -> None:
        table.versions.restore(version=version)
        table.upsert(dated(3))

    with pytest.raises(IncompatibleConflictError, match="restore"):
        write(beside(table, "publish", meanwhile))
    assert table.scan().to_arrow().num_rows == 3
