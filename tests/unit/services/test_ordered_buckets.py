"""Buckets that are in an order of columns: every operation finds keys in them as in any other."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Delete, Insert, Table, Update
from plait.errors import DuplicateKeyError, OptionError
from plait.model.order import KEY_ORDER, NO_ORDER, Order
from tests.support import build
from tests.support.protocol import beside

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("x", pa.int64()), ("y", pa.int64())]
)
KEYS = {"number": ["id"], "text": ["name"], "both": ["name", "id"]}
ROWS = 3_000
BY = {"cluster.by": "x,y", "cluster.after": "0s"}
ORDER = Order(("x", "y"), "hilbert").id
SMALL = {"write.buffer.size": "1MiB", "write.bucket.size": "64KiB"}
"""So that 64 KiB are sorted at a time, and files are sorted by key through runs."""


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each file in an order many row groups, and a key index of several blocks."""
    monkeypatch.setattr("plait.arrow.output.ORDERED_GROUP_ROWS", 40)
    monkeypatch.setattr("plait.files.key_index.BLOCK_ENTRIES", 200)


def rows(ids: object, seed: int) -> pa.Table:
    chance, ids = np.random.default_rng(seed), list(ids)  # type: ignore[call-overload]
    x, y = (chance.integers(0, 10_000, len(ids)) for _ in range(2))
    return pa.table([ids, [f"n{each:07d}" for each in ids], x, y], schema=SCHEMA)


@cache
def _made(table_type: str, key: str, properties: tuple[tuple[str, object], ...]) -> Table:
    table = build.make(
        SCHEMA,
        record_key=KEYS[key],
        buckets=2,
        table_type=table_type,
        properties={**SMALL, **dict(properties)},
    )
    chance = np.random.default_rng(7)
    table.insert(rows(chance.permutation(ROWS), 0))
    table.upsert(rows(range(0, ROWS, 10), 1))
    table.delete(where="id BETWEEN 14 AND 40")
    return table


def make(table_type: str, key: str = "number", **properties: object) -> Table:
    """Give a table of two buckets of its own, in which some rows are replaced and some are gone."""
    return build.copy_of(_made(table_type, key, tuple(properties.items())))


def content(table: Table) -> pa.Table:
    return table.scan().to_arrow().sort_by("id")


def orders(table: Table) -> list[int]:
    return table.inspect.files()["order"].to_pylist()


def changed(table: Table, since: int) -> list[tuple[object, ...]]:
    names = ["_change_type", *SCHEMA.names]
    found = table.changes(since=since).to_arrow().select(names).to_pylist()
    return sorted(tuple(row.values()) for row in found)


NEW = rows(range(2_900, 3_100), 5)
FEW = rows((3, 30, 14, 5_000), 6)
WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(NEW),
    "upsert of a few": lambda t: t.upsert(FEW),
    "upsert of all": lambda t: t.upsert(rows(range(ROWS), 8)),
    "insert": lambda t: t.insert(rows(range(9_000, 9_050), 2)),
    "insert that skips": lambda t: t.insert(NEW, on_duplicate="skip"),
    "delete where": lambda t: t.delete(where="x < 2000"),
    "delete keys": lambda t: t.delete(keys=NEW.select(["id", "name"])),
    "delete a few keys": lambda t: t.delete(keys=FEW.select(["id", "name"])),
    "delete a key where": lambda t: t.delete(where="id = 50 AND x >= 0"),
    "update": lambda t: t.update({"y": "y + 1"}, where="x > 9000"),
    "merge": lambda t: t.merge(
        NEW, matched=[Delete(when="s.x < 3000"), Update({"x": "t.x + s.x"})], not_matched=[Insert()]
    ),
    "merge of a few": lambda t: t.merge(
        FEW, matched=[Update({"x": "s.x"}, when="t.y > 10")], not_matched=[Insert()]
    ),
    "merge by source": lambda t: t.merge(
        NEW, matched=[Update()], not_matched_by_source=[Delete(when="t.y < 500")]
    ),
    "overwrite where": lambda t: t.overwrite(FEW.slice(1, 1), where="id = 30"),
    "overwrite": lambda t: t.overwrite(NEW),
}


@pytest.mark.long(8)
@pytest.mark.slow
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_every_operation_does_the_same_in_a_bucket_that_is_in_an_order(
    write: str, table_type: str
) -> None:
    """INV-08, INV-14: rows, counts and changes are those of the table that is sorted by key."""
    key = "both" if "keys" in write else list(KEYS)[list(WRITES).index(write) % 3]
    plain, table = make(table_type, key), make(table_type, key, **BY)
    table.maintenance.cluster()
    assert orders(table) == [ORDER, ORDER]
    assert content(table) == content(plain)
    with pytest.raises(DuplicateKeyError):
        table.insert(rows([50], 3))
    since, base = table.version, plain.version
    told = [WRITES[write](each).stats for each in (plain, table)]  # type: ignore[attr-defined]
    assert (told[0].rows_inserted, told[0].rows_updated, told[0].rows_deleted) == (
        told[1].rows_inserted,
        told[1].rows_updated,
        told[1].rows_deleted,
    )
    assert content(table) == content(plain)
    assert changed(table, since) == changed(plain, base)
    for service in (table.maintenance.cluster, lambda: table.maintenance.compact(full=True)):
        service()
        assert content(table) == content(plain)
    assert set(orders(table)) == {ORDER}
    assert not table.check.verify().problems
    assert not table.check.verify(history=True).problems


@pytest.mark.long(8)
@pytest.mark.slow
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_writer_and_a_clustering_of_buckets_do_not_notice_each_other(
    write: str, table_type: str
) -> None:
    """INV-14, INV-15: whoever is first, nothing is staged or copied again."""
    plain, first, second = (make(table_type, **BY) for _ in range(3))
    WRITES[write](plain)
    writer = beside(first, "publish", first.maintenance.cluster)
    assert WRITES[write](writer).rebased == 0  # type: ignore[attr-defined]
    report = beside(second, "publish", lambda: WRITES[write](second)).maintenance.cluster()
    assert all(commit.rebased == 0 for commit in report.commits)
    for table in (first, second):
        assert content(table) == content(plain)
        assert not table.check.verify().problems
        assert not table.check.verify(history=True).problems


def groups(table: Table, low: int, high: int) -> tuple[int, int]:
    """Count the row groups in which a range of ``x`` can lie, and all of them."""
    met = every = 0
    for path in table.inspect.files()["path"].to_pylist():
        footer = pq.read_metadata(pa.BufferReader(table._handle.store.find(path)))
        for number in range(footer.num_row_groups):
            bounds = footer.row_group(number).column(2).statistics
            every += 1
            met += bounds.min <= high and bounds.max >= low
    return met, every


def test_a_range_meets_few_row_groups_of_a_bucket() -> None:
    """1 % of the values: at most two of many, where all were met before."""
    table = build.make(
        SCHEMA,
        buckets=1,
        properties={"cluster.by": "x", "cluster.kind": "sort", "write.buffer.size": "1MiB"},
    )
    table.insert(rows(range(100_000), 0))
    met, every = groups(table, 5_000, 5_100)
    assert met == every
    table.maintenance.cluster()
    met, every = groups(table, 5_000, 5_100)
    assert every > 30
    assert met <= 2
    table.alter.set({"write.buffer.size": "256MiB"})
    table.maintenance.cluster(order_by="x", kind="zorder")
    assert groups(table, 0, 10_000)[1] == -(-100_000 // 16_384)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_restore_of_a_version_before_a_clustering_brings_its_files_back(table_type: str) -> None:
    """INV-05, INV-14: and a compaction sorts by key once the order was dropped."""
    table = make(table_type, **BY)
    then, version = content(table), table.version
    table.maintenance.cluster()
    table.upsert(NEW)
    table.versions.restore(version=version)
    assert content(table) == then
    assert ORDER not in orders(table)
    table.maintenance.cluster()
    assert content(table) == then
    table.upsert(NEW)
    table.alter.set({"cluster.by": ""})
    now = content(table)
    table.maintenance.compact(full=True)
    assert set(orders(table)) == {KEY_ORDER}
    assert content(table) == now
    assert not table.check.verify().problems


def test_an_update_of_another_column_keeps_the_order_and_one_of_its_own_does_not() -> None:
    """A delete keeps it too, and an upsert sorts its bucket by key."""
    table = make("cow", **{**BY, "cluster.by": "x"})
    table.maintenance.cluster()
    order = Order(("x",), "hilbert").id
    for act, after in (
        (lambda: table.update({"y": "y + 1"}, where="x >= 0"), order),
        (lambda: table.delete(where="x < 100"), order),
        (lambda: table.update({"x": "10000 - x"}, where="x >= 0"), NO_ORDER),
        (lambda: table.upsert(rows(range(100), 2)), KEY_ORDER),
    ):
        act()
        assert orders(table) == [after, after]


def test_cluster_puts_in_order_only_what_is_not_in_it() -> None:
    """Without columns; with columns it writes everything anew, once."""
    table = make("cow", **BY)
    assert len(table.maintenance.cluster(dry_run=True).tasks) == 2
    table.maintenance.cluster()
    assert not table.maintenance.cluster(dry_run=True).tasks
    assert len(table.maintenance.cluster(order_by="y", dry_run=True).tasks) == 2
    table.alter.set({"cluster.kind": "zorder"})
    assert len(table.maintenance.cluster(dry_run=True).tasks) == 2
    assert len(table.maintenance.cluster(where="id = 7", dry_run=True).tasks) <= 2


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_optimize_clusters_what_falls_due_and_then_has_nothing_to_do(table_type: str) -> None:
    table = make(table_type, **BY)
    now = content(table)
    report = table.maintenance.optimize()
    assert report.clustering is not None
    assert set(orders(table)) == {ORDER}
    assert content(table) == now
    again = table.maintenance.optimize()
    assert again.clustering is not None
    assert not again.clustering.commits
    assert not again.compaction.commits


def test_optimize_leaves_alone_what_is_nearly_in_order_or_has_just_been_written() -> None:
    """And a compaction merges logs by key, and leaves the base in order."""
    table = make("mor", **{**BY, "compact.log.percent": 100, "compact.hidden.percent": 100})
    table.maintenance.cluster()
    table.upsert(FEW)
    assert not table.maintenance.optimize().clustering.commits  # type: ignore[union-attr]
    busy = make("cow", **{**BY, "cluster.after": "1h"})
    assert not busy.maintenance.optimize().clustering.commits  # type: ignore[union-attr]
    assert make("cow").maintenance.optimize().clustering is None
    for seed in range(3):
        table.upsert(rows(range(40), seed))
    now = content(table)
    table.maintenance.compact()
    assert sorted(orders(table)) == [KEY_ORDER, KEY_ORDER, ORDER, ORDER]
    assert content(table) == now


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"cluster.by": "nobody"}, "nobody"),
        ({"cluster.by": "x,x"}, "'x'"),
        ({"cluster.kind": "spiral"}, "spiral"),
    ],
)
def test_an_order_that_there_cannot_be_is_never_recorded(
    properties: dict[str, str], message: str
) -> None:
    table = make("cow")
    with pytest.raises(OptionError, match=message):
        table.alter.set(properties)
    with pytest.raises(OptionError, match=message):
        make("cow", **properties)
    with pytest.raises(OptionError, match=r"cluster\.by"):
        table.maintenance.cluster()


def test_appended_files_are_put_in_order_and_those_in_order_stay() -> None:
    """Without a record key; a compaction of small files puts them in order too."""
    table = build.make(SCHEMA, record_key=(), properties=BY)
    for seed in range(3):
        table.append(rows(range(100), seed))
    table.maintenance.cluster()
    before = set(table.inspect.files()["path"].to_pylist())
    table.append(rows(range(100), 4))
    assert [len(task.sources) for task in table.maintenance.cluster(dry_run=True).tasks] == [1]
    table.maintenance.cluster()
    assert before < set(table.inspect.files()["path"].to_pylist())
    table.maintenance.compact(full=True)
    assert orders(table) == [ORDER]
    assert table.scan().count() == 400
