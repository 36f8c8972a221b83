"""Compaction changes no row, and no writer notices it: neither fails, waits or starts again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plait import Table
from plait.errors import CorruptMetadataError, RetryableConflictError
from plait.model.decision import SCOPE_TABLE, Reserved, Scope
from plait.model.instant import Operation
from plait.txn.reservation import publish_reservation
from tests.support.build import again
from tests.support.compacting import content, expected, files, filled, make, rows, sound
from tests.support.forge import forge_schema
from tests.support.protocol import beside


def test_compaction_leaves_one_file_a_bucket_and_changes_no_row_of_any_version() -> None:
    """INV-14, INV-04: now, in the past, and in the change feed."""
    table = make()
    held = filled(table)
    before = {v: content(table, v) for v in range(table.version + 1)}
    changes = table.changes(since=0).to_arrow()
    assert files(table) > 4
    report = table.maintenance.compact()
    assert files(table) == 2
    assert report.files_removed > report.files_added == 2
    assert content(table) == expected(held)
    assert {v: content(table, v) for v in before} == before
    assert table.changes(since=0).to_arrow() == changes
    assert table.changes(since=table.version - 1).count() == dict.fromkeys(
        ("insert", "delete", "update_preimage", "update_postimage"), 0
    )
    sound(table)
    assert table.maintenance.compact(full=True, dry_run=True).tasks == ()
    assert table.maintenance.compact().commits == ()


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
    plain, table = make(isolation=isolation), make(isolation=isolation)
    for each in (plain, table):
        each.alter.set({"compact.log.percent": 100_000, "compact.hidden.percent": 100})
        filled(each)
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
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_writer_of_a_table_without_a_key_follows_its_rows(write: str, table_type: str) -> None:
    """INV-14, INV-15: small files are merged while a writer hides rows of them."""
    tables = [make(table_type, keyed=False), make(table_type, keyed=False)]
    for table in tables:
        for at in range(10):
            table.append(rows(*((at * 4 + i, "a", at) for i in range(4))))
    plain, table = tables
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
    plain, table = make(keyed=keyed), make(keyed=keyed)
    for each in (plain, table):
        if keyed:
            filled(each)
        else:
            for at in range(10):
                each.append(rows(*((at * 4 + i, "a", at) for i in range(4))))
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
    table = make()
    held = filled(table)
    second = beside(table, "publish", lambda: table.maintenance.compact(full=True))
    report = second.maintenance.compact(full=True)
    assert report.commits == ()
    assert content(table) == expected(held)
    assert files(table) == 2
    assert not table.inspect.timeline().pending
    sound(table)


def test_what_is_done_again_and_what_is_followed_meet_in_one_commit() -> None:
    """INV-07, INV-15: another writer in one bucket, a compaction in both."""
    table = make()
    filled(table)
    plain = make()
    filled(plain)
    plain.upsert(rows((1, "a", 5)))
    plain.upsert(rows(*((i, "a", 7) for i in range(2, 30))))

    def meanwhile() -> None:
        table.maintenance.compact(full=True)
        table.upsert(rows((1, "a", 5)))
        table.maintenance.compact(full=True)

    writer = beside(table, "publish", meanwhile)
    result = writer.upsert(rows(*((i, "a", 7) for i in range(2, 30))))
    assert result.rebased == 1
    assert content(table) == content(plain)
    sound(table)


def test_a_conflict_with_a_writer_is_still_one() -> None:
    """INV-07: the rows that a compaction moved may be changed by others too."""
    table = make()
    filled(table)

    def meanwhile() -> None:
        table.maintenance.compact(full=True)
        table.upsert(rows((2, "a", 5)))

    writer = beside(table, "publish", meanwhile)
    with pytest.raises(RetryableConflictError):
        writer.upsert(rows((2, "a", 6)))
    assert (2, "a", 5) in content(table)
    sound(table)


def test_a_lost_row_map_costs_the_work_of_a_bucket_and_nothing_else(monkeypatch) -> None:
    """INV-11: what cannot be followed is done again."""
    monkeypatch.setattr("plait.files.row_map.INLINE_BYTES_MAX", 8)
    table = make()
    filled(table)
    plain = make()
    filled(plain)
    WRITES["delete where"](plain)

    def meanwhile() -> None:
        table.maintenance.compact(full=True)
        store = table._handle.store
        maps = [i.path for i in store.list("data") if i.path.endswith(".map.bin")]
        assert maps
        store.delete(maps)

    writer = beside(table, "publish", meanwhile)
    assert WRITES["delete where"](writer).rebased == 2
    assert content(table) == content(plain)
    assert not table.check.verify(history=True).problems


def test_a_compaction_is_no_rival_on_a_table_for_one_writer() -> None:
    """INV-15: a writer begins beside it, and it begins beside a writer."""
    table = make(concurrency="single_writer", failed_writes="eager")
    held = filled(table)

    def write() -> None:
        again(table).upsert(rows((1, "a", 5)))

    report = beside(table, "publish", write).maintenance.compact(full=True)
    assert len(report.commits) == 1
    writer = beside(table, "publish", lambda: table.maintenance.compact(full=True))
    writer.upsert(rows((2, "a", 6)))
    assert content(table) == expected({**held, 1: 5, 2: 6})
    sound(table)


def test_maps_are_condemned_with_the_rewrite_and_kept_for_writers_that_began_before(
    monkeypatch,
) -> None:
    """INV-05: a clean spares the map while a pending writer may follow it."""
    monkeypatch.setattr("plait.files.row_map.INLINE_BYTES_MAX", 8)
    table = make()
    table.alter.set({"clean.retain.time": "0s", "clean.retain.versions": 1})
    held = filled(table)
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
    assert content(table) == expected({**held, 2: 6})
    sound(table)


def test_a_compaction_names_what_its_readers_must_know() -> None:
    table = make()
    filled(table)
    table.maintenance.compact(full=True)
    decision = table._handle.cache.timeline.find(table.version)
    assert decision is not None
    assert decision.operation is Operation.COMPACT
    assert decision.action.value == "compaction"
    assert "row-maps-1" in decision.features
    assert "row-maps-1" not in table._handle.cache.timeline.find(1).features


def test_masks_that_a_commit_carried_and_then_did_again_are_condemned(monkeypatch) -> None:
    """INV-06: no file is left that nobody names; the redo takes another path than the carry."""
    monkeypatch.setattr("plait.files.deletion.INLINE_BYTES_MAX", 8)
    table = make()
    held = filled(table)

    def others() -> None:
        table.upsert(rows(*((i, "a", 5) for i in range(3, 9))))

    writer = beside(table, "publish", lambda: table.maintenance.compact(full=True), others)
    assert writer.upsert(rows((1, "a", 6), (2, "a", 6))).rebased == 2
    assert table.check.foreign() == ()
    assert content(table) == expected({**held, **dict.fromkeys(range(3, 9), 5), 1: 6, 2: 6})
    sound(table)


def test_masks_that_a_commit_carried_and_then_gave_up_are_removed(monkeypatch) -> None:
    """INV-06: as above, of a commit that rolls itself back."""
    monkeypatch.setattr("plait.files.deletion.INLINE_BYTES_MAX", 8)
    table = make()
    filled(table)
    acts = (
        lambda: table.maintenance.compact(full=True),
        lambda: table.upsert(rows(*((i, "a", 5) for i in range(3, 9)))),
        lambda: table.upsert(rows((1, "a", 5))),
    )
    with pytest.raises(RetryableConflictError):
        beside(table, "publish", *acts).upsert(rows((1, "a", 6), (2, "a", 6)))
    assert table.check.foreign() == ()
    sound(table)


@pytest.mark.parametrize("retries", [0, 20])
def test_a_lost_row_map_is_not_counted_as_a_lost_round(monkeypatch, retries: int) -> None:
    """INV-15: a service is never why a commit has no attempt left."""
    monkeypatch.setattr("plait.files.row_map.INLINE_BYTES_MAX", 8)
    table = make()
    table.alter.set({"commit.retries": retries})
    filled(table)
    store = table._handle.store

    def meanwhile() -> None:
        table.maintenance.compact(full=True)
        store.delete([i.path for i in store.list("data") if i.path.endswith(".map.bin")])

    beside(table, "publish", meanwhile).delete(where="id < 9")
    assert content(table)[0][0] == 9


def test_a_compaction_behind_a_reservation_makes_none() -> None:
    """INV-15: a reservation makes writers wait, so a service has none."""
    table = make()
    table.alter.set({"commit.reserve.after": 1})
    held = filled(table)
    writer = table.writer("upsert")
    writer.__enter__()
    reserved = Reserved(writer.instant, Scope(SCOPE_TABLE))
    publish_reservation(table._handle, reserved, since=table.version)
    service = beside(table, "wait", lambda: table.maintenance.rollback(str(writer.instant)))
    assert len(service.maintenance.compact(full=True).commits) == 1
    operations = [entry.operation for entry in table.inspect.history(4)]
    assert operations == ["compact", "rollback", "reserve", "delete"]
    assert content(table) == expected(held)
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
    table = make()
    held = filled(table)
    before = table.version
    forge_schema(table._handle.store, lambda arrow: arrow.remove(arrow.get_field_index("place")))
    service = beside(table, "publish", lambda: table.versions.restore(version=before))
    assert service.maintenance.compact(full=True).commits == ()
    assert content(again(table)) == expected(held)


def test_a_compaction_whose_own_map_is_gone_says_so_and_leaves_nothing(monkeypatch) -> None:
    """INV-11: it is no conflict, since nobody was in its way."""
    monkeypatch.setattr("plait.files.row_map.INLINE_BYTES_MAX", 8)
    table = make()
    filled(table)
    store = table._handle.store

    def meanwhile() -> None:
        table.upsert(rows((1, "a", 9)))
        store.delete([i.path for i in store.list("data") if i.path.endswith(".map.bin")])

    with pytest.raises(CorruptMetadataError):
        beside(table, "publish", meanwhile).maintenance.compact(full=True)
    assert table.inspect.history()[0].operation == "rollback"
    assert not table.inspect.timeline().pending
    assert table.check.foreign() == ()


def test_two_compactions_of_other_files_of_a_bucket_leave_what_the_next_one_merges() -> None:
    """INV-14: each keeps the rows that the other did not copy."""
    table = make()
    held = filled(table)

    def meanwhile() -> None:
        table.upsert(rows((1, "a", 8), (2, "a", 8)))
        table.maintenance.compact(full=True)

    beside(
        table, "publish", meanwhile, lambda: table.upsert(rows((3, "a", 9)))
    ).maintenance.compact(full=True)
    assert content(table) == expected({**held, 1: 8, 2: 8, 3: 9})
    table.maintenance.compact(full=True)
    assert files(table) == 2
    sound(table)
