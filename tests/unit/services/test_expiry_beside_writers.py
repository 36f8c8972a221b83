"""Nobody fails because of an expiry, and an expiry waits for nobody."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from plait import Table
from plait.errors import RetryableConflictError, SchemaMismatchError
from plait.model.instant import Operation
from plait.model.request import WriteRequest
from plait.txn.transaction import OptimisticTransaction
from tests.support.build import again
from tests.support.expiry import (
    KINDS,
    NEW,
    OLD,
    TYPES,
    YOUNG,
    content,
    filled,
    ids,
    make,
    rows,
    sound,
)
from tests.support.forge import forge_schema
from tests.support.protocol import beside

WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows((1, NEW, "b", 9), (2, NEW, "a", 9), (99, NEW, "b", 9))),
    "upsert of the expired": lambda t: t.upsert(rows((0, NEW, "a", 9), (4, NEW, "a", 9))),
    "delete keys": lambda t: t.delete(keys=rows((1, NEW, "b", 0), (4, NEW, "a", 0)).select(["id"])),
    "delete where": lambda t: t.delete(where="id < 9"),
    "update": lambda t: t.update({"v": "v + 100"}, where="id < 11 and ts > '2800-01-01'"),
    "overwrite where": lambda t: t.overwrite(rows((3, NEW, "b", 9)), where="id = 3"),
    "overwrite": lambda t: t.overwrite(rows((3, NEW, "b", 9))),
    "insert": lambda t: t.append(rows((77, NEW, "b", 9), (78, NEW, "a", 9))),
    "merge away": lambda t: t.delete(where="true"),
}
WITHOUT_KEY = ("delete where", "update", "overwrite where", "overwrite", "insert", "merge away")
CASES = [
    *((kind, True, write) for kind in TYPES for write in WRITES),
    *((kind, False, write) for kind in TYPES for write in WITHOUT_KEY),
]


@cache
def one_by_one(
    table_type: str, keyed: bool, isolation: str, steps: tuple[str, ...]
) -> list[tuple[int, str, int]]:
    """Return the rows of a table on which nobody meets: many tests compare with the same ones."""
    table = filled(make(table_type, keyed=keyed, isolation=isolation))
    for step in steps:
        table.maintenance.expire() if step == "expire" else WRITES[step](table)
    return content(table)


@pytest.mark.long(40)
@pytest.mark.slow
@pytest.mark.parametrize(("table_type", "keyed", "write"), CASES)
@pytest.mark.parametrize("moved", ["", "before", "after", "around"])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_writer_that_meets_an_expiry_goes_on(
    table_type: str, keyed: bool, write: str, moved: str, isolation: str
) -> None:
    """INV-15: the rows are those of the expiry and then the write, also among compactions."""
    definition = {"isolation": isolation, "properties": {"commit.retries": 0}}
    table = filled(make(table_type, keyed=keyed, **definition))

    def meanwhile() -> None:
        if moved in ("before", "around"):
            table.maintenance.compact(full=True)
        assert table.maintenance.expire().rows_deleted == 6
        if moved in ("after", "around"):
            table.maintenance.compact(full=True)

    WRITES[write](beside(table, "publish", meanwhile))
    assert content(table) == one_by_one(table_type, keyed, isolation, ("expire", write))
    assert table.inspect.history()[0].operation != "expire"
    if keyed or write != "insert":  # rows that are added without a key stand in nobody's way
        assert table.inspect.history()[0].base == table.version - 1
    if table_type == "mor" and not moved:
        assert "rebased" not in table.inspect.history()[0].client
    sound(table)


@pytest.mark.long(8)
@pytest.mark.parametrize(("table_type", "keyed", "write"), CASES)
def test_an_expiry_that_meets_a_writer_is_drafted_anew(
    table_type: str, keyed: bool, write: str
) -> None:
    """INV-07, INV-15: it takes away what is old there, and repeats no reading."""
    table = filled(make(table_type, keyed=keyed))
    service = beside(table, "publish", lambda: WRITES[write](table))
    service.maintenance.expire()
    table.maintenance.expire()  # rows in files that came since are left to the next run
    assert content(table) == one_by_one(table_type, keyed, "snapshot", (write, "expire"))
    sound(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_whole_files_that_expire_are_nothing_that_a_writer_misses(table_type: str) -> None:
    """INV-15: it hid rows of files that are gone, or all rows of them."""
    table = make(table_type)
    table.upsert(rows(*((i, OLD, "a", 0) for i in range(9))))
    table.upsert(rows(*((i, NEW, "a", 0) for i in range(20, 25))))
    writer = beside(table, "publish", table.maintenance.expire)
    writer.upsert(rows((1, NEW, "a", 1), (20, NEW, "a", 1)))
    assert content(table) == sorted(
        [(1, "a", 1), (20, "a", 1), *((i, "a", 0) for i in range(21, 25))]
    )
    whole = beside(table, "publish", table.maintenance.expire)
    whole.delete(where="true")
    assert content(table) == []
    sound(table)


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_a_compaction_that_meets_an_expiry_hides_what_is_gone(table_type: str, keyed: bool) -> None:
    """INV-14: and the other way round."""
    table = filled(make(table_type, keyed=keyed))
    table.delete(keys=rows((1, NEW, "b", 0)).select(["id"])) if keyed else None
    report = beside(table, "publish", table.maintenance.expire).maintenance.compact(full=True)
    if (table_type, keyed) == ("cow", True):  # a bucket is one file: nothing to compact
        assert report.commits == ()
        table.maintenance.expire()
    assert ids(table) == YOUNG[keyed:]
    sound(table)
    table = filled(make(table_type, keyed=keyed))
    beside(table, "publish", lambda: table.maintenance.compact(full=True)).maintenance.expire()
    table.maintenance.expire()
    assert ids(table) == YOUNG
    sound(table)


def test_an_expiry_stops_when_the_time_to_live_is_changed_meanwhile() -> None:
    """What may expire is what the table says at the version before the decision."""
    table = filled(make())
    plan = table.maintenance.expire(dry_run=True)
    for ttl in (None, "ts 60d"):
        table.alter.set_ttl("ts 30d")
        service = beside(table, "publish", lambda ttl=ttl: table.alter.set_ttl(ttl))
        assert service.maintenance.expire().commits == ()
    assert table.maintenance.expire(plan).commits == ()
    assert len(ids(table)) == 22
    sound(table)


def test_a_partition_that_gets_a_young_row_meanwhile_stays() -> None:
    """INV-15: nothing of it goes, for its time is not over any more."""
    table = make(partition_by=["p"], ttl="ts 30d partition")
    table.append(rows((1, OLD, "a", 0), (2, OLD, "b", 0)))
    service = beside(table, "publish", lambda: table.append(rows((3, NEW, "a", 0))))
    service.maintenance.expire()
    assert ids(table) == [1, 3]
    sound(table)


@pytest.mark.parametrize(
    ("table_type", "ttl", "left"),
    [
        ("cow", "ts 30d row", True),
        ("cow", "ts 30d partition", True),
        ("mor", "ts 30d partition", True),
        ("mor", "ts 30d row", False),
    ],
)
def test_a_partition_where_a_living_writer_would_do_work_again_is_left_to_the_next_run(
    table_type: str, ttl: str, left: bool
) -> None:
    """INV-15: by its pending record; a writer that only hides rows loses nothing."""
    table = make(table_type, partition_by=["p"], ttl=ttl)
    table.append(rows((1, OLD, "a", 0), (2, OLD, "b", 0)))
    request = WriteRequest(Operation.UPSERT, partitions=(("a",),))
    writer = OptimisticTransaction.begin(table._handle, request)
    report = table.maintenance.expire()
    assert report.plan.left == ((("a",),) if left else ())
    assert ids(table) == ([1] if left else [])
    writer.abort("done", wrote=False)
    table.maintenance.expire()
    assert ids(table) == []
    sound(table)


def test_a_single_writer_and_an_expiry_are_no_rivals_nor_are_two_expiries() -> None:
    """INV-15: each begins beside the other."""
    table = filled(make("mor", concurrency="single_writer", failed_writes="eager"))
    other = again(table)
    beside(table, "publish", lambda: other.upsert(rows((1, NEW, "b", 5)))).maintenance.expire()
    table.append(rows((70, OLD, "a", 0)))
    beside(table, "publish", other.maintenance.expire).upsert(rows((2, NEW, "a", 6)))
    assert ids(table) == YOUNG
    table.append(rows((71, OLD, "a", 0)))
    assert beside(table, "publish", table.maintenance.expire).maintenance.expire().commits == ()
    assert ids(table) == YOUNG
    sound(table)


def test_a_query_that_cannot_be_run_again_keeps_the_expired_rows_until_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-15: an executor's rows may not come again; the writer commits all the same."""
    from plait.arrow.staging import ArrowStaging

    stage = ArrowStaging.stage

    def once(self: ArrowStaging, snapshot: object, buckets: object) -> object:
        if buckets is not None:
            message = "the query gives other rows"
            raise RetryableConflictError(message)
        return stage(self, snapshot, buckets)  # type: ignore[arg-type]

    table = filled(make())
    writer = beside(table, "publish", table.maintenance.expire)
    with monkeypatch.context() as patch:
        patch.setattr(ArrowStaging, "stage", once)
        writer.upsert(rows(*((i, NEW, "b", 9) for i in (1, 2, 3, 5))))
    assert {i: v for i, _, v in content(table)}[1] == 9
    table.maintenance.expire()
    assert ids(table) == YOUNG
    sound(table)


def test_a_redo_because_of_an_expiry_is_not_counted_and_needs_no_leave() -> None:
    """INV-15: no retry is allowed, and none is used up."""
    table = filled(make(properties={"commit.retries": 0}))
    result = beside(table, "publish", table.maintenance.expire).upsert(rows((1, NEW, "b", 9)))
    assert result.rebased == 1
    assert table.inspect.history()[0].client["redone"] == 0
    sound(table)


def test_large_vectors_and_shares_of_work_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.files.deletion.INLINE_BYTES_MAX", 8)
    for kind in TYPES:
        table = make(kind, partition_by=["p"], properties={"services.task.size": "1b"})
        filled(table)
        report = beside(
            table, "publish", lambda t=table: t.upsert(rows((1, NEW, "b", 4)))
        ).maintenance.expire()
        assert len(report.commits) == (2 if kind == "mor" else 1)  # a file that is gone is left
        table.maintenance.expire()
        assert ids(table) == YOUNG
        sound(table)


# --- restores ------------------------------------------------------------------------------


def test_a_restore_shows_the_expiry_that_it_undoes() -> None:
    """What it brings back has expired all the same, and goes with the next expiry."""
    table = filled(make("mor"))
    table.append(rows((60, NEW, "a", 0)))
    table.maintenance.expire()
    plan = table.versions.undo(dry_run=True)
    undone = ["expire", "insert"]
    assert [each.operation for each in plan.reverted] == undone
    before = table.versions.restore(plan).version - 1
    assert 0 in ids(table)
    back = table.versions.restore(version=before, dry_run=True).returned
    assert [each.operation for each in back] == undone
    plan = table.maintenance.expire(dry_run=True)
    table.maintenance.expire()
    assert ids(table) == YOUNG
    sound(table)
    forge_schema(table._handle.store, lambda arrow: arrow.remove(arrow.get_field_index("ts")))
    with pytest.raises(SchemaMismatchError):  # a restore took its column away
        table.maintenance.expire(plan)
    assert table.inspect.timeline().pending == ()
