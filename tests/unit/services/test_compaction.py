"""Compaction changes no row, and no writer notices it: neither fails, waits or starts again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from plait import Table
from plait.errors import CorruptMetadataError, RetryableConflictError
from plait.model.decision import SCOPE_TABLE, Reserved, Scope
from plait.model.instant import Operation
from plait.txn.reservation import publish_reservation
from tests.support.build import again, copy_of
from tests.support.compacting import content, expected, files, filled, make, rows, sound
from tests.support.forge import forge_schema
from tests.support.protocol import beside

HELD = {i: max(v for v in range(5) if v == 0 or i % (v + 1) == 0) for i in range(35)}
"""What a table holds that was filled."""


@cache
def _made(keyed: bool, isolation: str) -> Table:
    table = make(keyed=keyed, isolation=isolation)
    if keyed:
        assert filled(table) == HELD
        return table
    for at in range(10):
        table.append(rows(*((at * 4 + i, "a", at) for i in range(4))))
    return table


def full(*, keyed: bool = True, isolation: str = "snapshot") -> Table:
    """Give a table of its own with several files a bucket, or without a key with small files."""
    return copy_of(_made(keyed, isolation))


def lose_maps(table: Table) -> None:
    store = table._handle.store
    maps = [i.path for i in store.list("data") if i.path.endswith(".map.bin")]
    assert maps
    store.delete(maps)


@pytest.fixture
def maps_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.files.row_map.INLINE_BYTES_MAX", 8)


def test_compaction_leaves_one_file_a_bucket_and_changes_no_row_of_any_version() -> None:
    """INV-14, INV-04: now, in the past, and in the change feed."""
    table = full()
    before = {v: content(table, v) for v in range(table.version + 1)}
    changes = table.changes(since=0).to_arrow()
    assert files(table) > 4
    report = table.maintenance.compact()
    assert files(table) == 2
    assert report.files_removed > report.files_added == 2
    assert content(table) == expected(HELD)
    assert {v: content(table, v) for v in before} == before
    assert table.changes(since=0).to_arrow() == changes
    assert table.changes(since=table.version - 1).count() == dict.fromkeys(
        ("insert", "delete", "update_preimage", "update_postimage"), 0
    )
    sound(table)
    assert table.maintenance.compact(full=True, dry_run=True).tasks == ()
    assert table.maintenance.compact().commits == ()
    decision = table._handle.cache.timeline.find(table.version)
    assert decision is not None
    assert (decision.operation, decision.action.value) == (Operation.COMPACT, "compaction")
    assert "row-maps-1" in decision.features
    assert "row-maps-1" not in table._handle.cache.timeline.find(1).features


WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows((1, "a", 9), (2, "a", 9), (99, "a", 9))),
    "delete keys": lambda t: t.delete(keys=rows((1, "a", 0), (2, "a", 0)).select(["id"])),
    "delete where": lambda t: t.delete(where="id < 9"),
    "update": lambda t: t.update({"value": "value + 100"}, where="id < 20"),
    "overwrite where": lambda t: t.overwrite(rows((3, "b", 9)), where="id = 3"),
    "overwrite": lambda t: t.overwrite(rows((3, "b", 9))),
    "insert skip": lambda t: t.insert(rows((3, "b", 9), (77, "b", 9)), on_duplicate="skip"),
}
WITHOUT_KEY = ("delete where", "update", "overwrite where", "overwrite")


@pytest.mark.long(8)
@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_writer_goes_on_over_a_compaction_and_does_nothing_again(
    write: str, several: bool, isolation: str
) -> None:
    """INV-14, INV-15: the rows are those of the same write without a compaction."""
    plain, table = full(isolation=isolation), full(isolation=isolation)
    table.alter.set({"compact.log.percent": 100_000, "compact.hidden.percent": 100})
    WRITES[write](plain)

    def compact() -> None:
        if several:  # the logs into one first, then that one into the base
            assert len(table.maintenance.compact().commits) == 1
        assert len(table.maintenance.compact(full=True).commits) == 1

    writer = beside(table, "publish", compact)
    result = WRITES[write](writer)
    assert content(table) == content(plain)
    assert result.rebased == 0
    decision = table._handle.cache.timeline.find(result.version)
    assert decision is not None
    assert result.stats.files_removed == decision.changes.removed.num_rows
    newest = table.inspect.history()[0]
    assert newest.operation != "compact"
    assert newest.base == newest.version - 1
    sound(table)


@pytest.mark.parametrize("write", WITHOUT_KEY)
def test_a_writer_of_a_table_without_a_key_follows_its_rows(write: str) -> None:
    """INV-14, INV-15: small files are merged while a writer hides rows of them."""
    plain, table = full(keyed=False), full(keyed=False)
    WRITES[write](plain)
    writer = beside(table, "publish", table.maintenance.compact)
    assert WRITES[write](writer).rebased == 0
    assert table.inspect.history()[1].operation == "compact"
    assert content(table) == content(plain)
    sound(table)


@pytest.mark.parametrize(
    ("write", "keyed"), [*((w, True) for w in WRITES), *((w, False) for w in WITHOUT_KEY)]
)
def test_a_compaction_goes_on_over_a_writer_and_copies_nothing_again(
    write: str, keyed: bool
) -> None:
    """INV-14, INV-15: what was hidden meanwhile is hidden in its files."""
    plain, table = full(keyed=keyed), full(keyed=keyed)
    WRITES[write](plain)
    service = beside(table, "publish", lambda: WRITES[write](table))
    report = service.maintenance.compact()
    assert content(table) == content(plain)
    assert all(each.attempts == 2 for each in report.commits)
    for each in report.commits:
        decision = table._handle.cache.timeline.find(each.version)
        assert decision is not None
        assert each.stats.files_removed == decision.changes.removed.num_rows
        assert each.stats.files_added == decision.changes.added.num_rows
    if write != "overwrite":
        assert table.inspect.history()[0].operation == "compact"
    else:
        assert report.commits == ()
        assert not table.inspect.timeline().pending
    sound(table)


def test_two_compactions_at_once_harm_nobody() -> None:
    """INV-14: the second finds that its sources are gone, and takes its files back."""
    table = full()
    second = beside(table, "publish", lambda: table.maintenance.compact(full=True))
    report = second.maintenance.compact(full=True)
    assert report.commits == ()
    assert content(table) == expected(HELD)
    assert files(table) == 2
    assert not table.inspect.timeline().pending
    sound(table)


def test_what_is_done_again_and_what_is_followed_meet_in_one_commit() -> None:
    """INV-07, INV-15: another writer in one bucket, a compaction in both."""
    table = full()

    def meanwhile() -> None:
        table.maintenance.compact(full=True)
        table.upsert(rows((1, "a", 5)))
        table.maintenance.compact(full=True)

    writer = beside(table, "publish", meanwhile)
    assert writer.upsert(rows(*((i, "a", 7) for i in range(2, 30)))).rebased == 1
    assert content(table) == expected({**HELD, 1: 5, **dict.fromkeys(range(2, 30), 7)})
    sound(table)


def test_a_compaction_is_no_rival_on_a_table_for_one_writer() -> None:
    """INV-15: a writer begins beside it, and it begins beside a writer."""
    table = make(concurrency="single_writer", failed_writes="eager")
    filled(table)

    def write() -> None:
        again(table).upsert(rows((1, "a", 5)))

    report = beside(table, "publish", write).maintenance.compact(full=True)
    assert len(report.commits) == 1
    writer = beside(table, "publish", lambda: table.maintenance.compact(full=True))
    writer.upsert(rows((2, "a", 6)))
    assert content(table) == expected({**HELD, 1: 5, 2: 6})
    sound(table)


@pytest.mark.usefixtures("maps_in_files")
def test_maps_are_condemned_with_the_rewrite_and_kept_for_writers_that_began_before() -> None:
    """INV-05: a clean spares the map while a pending writer may follow it."""
    table = make()
    table.alter.set({"clean.retain.time": "0s", "clean.retain.versions": 1})
    filled(table)
    store = table._handle.store

    def maps() -> list[str]:
        return [i.path for i in store.list("data") if i.path.endswith(".map.bin")]

    def meanwhile() -> None:
        table.maintenance.compact(full=True)
        again(table).maintenance.clean()
        assert maps()

    writer = beside(table, "publish", meanwhile)
    result = writer.upsert(rows((2, "a", 6)))
    assert result.rebased == 0
    table.maintenance.clean()
    table.maintenance.clean()
    assert maps() == []
    assert content(table) == expected({**HELD, 2: 6})
    sound(table)


@pytest.mark.parametrize("given_up", [False, True])
def test_masks_that_a_commit_carried_and_then_did_again_are_condemned(
    monkeypatch: pytest.MonkeyPatch, *, given_up: bool
) -> None:
    """INV-06, INV-07: no file is left that nobody names, also of a commit that rolls back.

    The redo takes another path than the carry; rows that a compaction moved can be changed by
    others too, and are in conflict then.
    """
    monkeypatch.setattr("plait.files.deletion.INLINE_BYTES_MAX", 8)
    table = full()
    acts = [
        lambda: table.maintenance.compact(full=True),
        lambda: table.upsert(rows(*((i, "a", 5) for i in range(3, 9)))),
        *([lambda: table.upsert(rows((1, "a", 5)))] if given_up else []),
    ]
    writer, after = beside(table, "publish", *acts), {**HELD, **dict.fromkeys(range(3, 9), 5)}
    if given_up:
        with pytest.raises(RetryableConflictError):
            writer.upsert(rows((1, "a", 6), (2, "a", 6)))
        assert content(table) == expected({**after, 1: 5})
    else:
        assert writer.upsert(rows((1, "a", 6), (2, "a", 6))).rebased == 2
        assert content(table) == expected({**after, 1: 6, 2: 6})
    assert table.check.foreign() == ()
    sound(table)


@pytest.mark.usefixtures("maps_in_files")
@pytest.mark.parametrize("retries", [0, 20])
def test_a_lost_row_map_is_not_counted_as_a_lost_round(retries: int) -> None:
    """INV-11, INV-15: what cannot be followed is done again; no attempt is lost by a service."""
    table = full()
    table.alter.set({"commit.retries": retries})

    def meanwhile() -> None:
        table.maintenance.compact(full=True)
        lose_maps(table)

    assert beside(table, "publish", meanwhile).delete(where="id < 9").rebased == 2
    assert content(table) == expected({i: v for i, v in HELD.items() if i >= 9})
    assert not table.check.verify(history=True).problems


def test_a_compaction_behind_a_reservation_makes_none() -> None:
    """INV-15: a reservation makes writers wait, so a service has none."""
    table = make()
    filled(table)
    table.alter.set({"commit.reserve.after": 1})
    writer = table.writer("upsert")
    writer.__enter__()
    reserved = Reserved(writer.instant, Scope(SCOPE_TABLE))
    publish_reservation(table._handle, reserved, since=table.version)
    service = beside(table, "wait", lambda: table.maintenance.rollback(str(writer.instant)))
    assert len(service.maintenance.compact(full=True).commits) == 1
    operations = [entry.operation for entry in table.inspect.history(4)]
    assert operations == ["compact", "rollback", "reserve", "property"]
    assert content(table) == expected(HELD)
    sound(table)


def test_a_writer_keeps_what_the_target_of_a_compaction_hides_already() -> None:
    """INV-14: a row went while the compaction ran, before the writer began, in another source."""
    table = make()
    table.upsert(rows(*((i, "a", 0) for i in range(40))))
    table.upsert(rows(*((i, "a", 0) for i in range(40, 60))))
    writer = table.writer("upsert")
    acts = (
        lambda: table.delete(keys=rows(*((i, "a", 0) for i in range(50, 60))).select(["id"])),
        writer.__enter__,
    )
    assert beside(table, "publish", *acts).maintenance.compact(full=True).commits[0].attempts == 2
    writer.write(rows((1, "a", 5)))
    writer.__exit__(None, None, None)
    assert writer.result.rebased == 0
    assert content(table) == expected({**dict.fromkeys(range(50), 0), 1: 5})
    sound(table)


def test_a_compaction_gives_up_when_a_restore_brings_columns_back() -> None:
    """INV-14: it copied without a column that was dropped, and that the table has again."""
    table = full()
    before = table.version
    forge_schema(table._handle.store, lambda arrow: arrow.remove(arrow.get_field_index("place")))
    service = beside(table, "publish", lambda: table.versions.restore(version=before))
    assert service.maintenance.compact(full=True).commits == ()
    assert content(again(table)) == expected(HELD)


@pytest.mark.usefixtures("maps_in_files")
def test_a_compaction_whose_own_map_is_gone_says_so_and_leaves_nothing() -> None:
    """INV-11: it is no conflict, since nobody was in its way."""
    table = full()

    def meanwhile() -> None:
        table.upsert(rows((1, "a", 9)))
        lose_maps(table)

    with pytest.raises(CorruptMetadataError):
        beside(table, "publish", meanwhile).maintenance.compact(full=True)
    assert table.inspect.history()[0].operation == "rollback"
    assert not table.inspect.timeline().pending
    assert table.check.foreign() == ()


def test_two_compactions_of_other_files_of_a_bucket_leave_what_the_next_one_merges() -> None:
    """INV-14: each keeps the rows that the other did not copy."""
    table = full()

    def meanwhile() -> None:
        table.upsert(rows((1, "a", 8), (2, "a", 8)))
        table.maintenance.compact(full=True)

    beside(
        table, "publish", meanwhile, lambda: table.upsert(rows((3, "a", 9)))
    ).maintenance.compact(full=True)
    assert content(table) == expected({**HELD, 1: 8, 2: 8, 3: 9})
    table.maintenance.compact(full=True)
    assert files(table) == 2
    sound(table)


# --- what a compaction takes on -------------------------------------------------------------------


def test_the_policy_merges_logs_first_and_everything_when_logs_are_heavy() -> None:
    table = make()
    table.alter.set({"compact.log.percent": 100_000, "compact.hidden.percent": 90})
    table.upsert(rows(*((i, "a", 0) for i in range(400))))
    for value in range(3):
        table.upsert(rows(*((i, "a", value) for i in range(20 * value, 20 * value + 20))))
    reasons = {task.reason for task in table.maintenance.compact(dry_run=True).tasks}
    assert reasons == {"several log files"}
    table.maintenance.compact()
    kinds = table._handle.cache.snapshot().files["kind"].to_pylist()
    assert sorted(kinds) == ["base", "base", "log", "log"]
    assert table.maintenance.compact(dry_run=True).tasks == ()
    table.alter.set({"compact.log.percent": 1})
    assert {task.reason for task in table.maintenance.compact(dry_run=True).tasks} == {"log files"}
    table.maintenance.compact()
    assert files(table) == 2
    sound(table)


def test_full_rewrites_the_only_file_of_a_partition_if_a_row_of_it_is_hidden() -> None:
    table = make(keyed=False)
    table.append(rows(*((i, "a", 0) for i in range(100))))
    assert table.maintenance.compact(full=True, dry_run=True).tasks == ()
    table.delete(where="id = 7")
    assert table.maintenance.compact(dry_run=True).tasks == ()
    assert len(table.maintenance.compact(full=True).commits) == 1
    assert table.maintenance.compact(full=True, dry_run=True).tasks == ()
    assert len(content(table)) == 99


@pytest.mark.parametrize("size", ["1GiB", "1"])
def test_a_plan_that_names_files_twice_copies_their_rows_once(size: str) -> None:
    """INV-14: a plan is never trusted."""
    table = full()
    table.alter.set({"services.task.size": size})
    plan = table.maintenance.compact(full=True, dry_run=True)
    table.maintenance.compact(replace(plan, tasks=plan.tasks * 2))
    assert content(table) == expected(HELD)
    sound(table)


@pytest.mark.slow
def test_small_appends_rewrite_a_row_a_few_times_and_leave_few_files() -> None:
    """A file is merged with smaller ones only: else each eighth append would write all again."""
    table = make(keyed=False)
    moved = 0
    for at in range(150):
        table.append(rows(*((at * 20 + i, "a", at) for i in range(20))))
        moved += table.maintenance.compact().rows_moved
        assert files(table) <= 8
    assert moved <= 6 * 150 * 20
    assert len(content(table)) == 150 * 20
    sound(table)
