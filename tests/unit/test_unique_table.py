"""Tables in which a key names one row in all partitions (RFC 0030)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from plait import Delete, DuplicateKeyError, Insert, OptionError, Table, Update
from plait.definition.features import UNIQUE
from plait.errors import RetryableConflictError
from plait.files.hash import bucket_of, key_hashes
from plait.replicate import Replicas, TableSink
from plait.testing import CountingStore, open_wrapped
from plait.txn.conflict import Judge
from tests.support import build
from tests.support.build import keys, make, uri_of
from tests.support.forge import decision_at
from tests.support.protocol import beside
from tests.support.stream_group import Group

each_type = pytest.mark.parametrize("kind", ["cow", "mor"])
_SCHEMA = "id bigint, place string, n bigint, at bigint"
Content = dict[int, tuple[str, int | None]]


def made(kind: str, **definition: Any) -> Table:
    given = {"partition_by": ["place"], "ordering": "at", "unique": "table", **definition}
    return make(_SCHEMA, table_type=kind, **given)


def rows(*values: tuple[int, str, int, int]) -> pa.Table:
    columns = list(zip(*values, strict=True))
    kinds = [pa.int64(), pa.string(), pa.int64(), pa.int64()]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=["id", "place", "n", "at"])


def content(table: Table, **version: Any) -> Content:
    found = table.scan(**version).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), f"INV-08: {found}"
    return {row["id"]: (row["place"], row["n"]) for row in found}


def counts(stats: Any) -> tuple[int, int, int, int]:
    return stats.rows_inserted, stats.rows_updated, stats.rows_deleted, stats.keys_unchanged


@each_type
def test_an_upsert_moves_a_row_and_an_older_row_moves_nothing(kind: str) -> None:
    table = made(kind)
    table.upsert(rows((1, "a", 1, 1), (2, "a", 1, 5), (3, "b", 1, 1)))
    result = table.upsert(rows((1, "b", 2, 2), (2, "c", 2, 4), (4, "b", 2, 1), (3, "b", 2, 1)))
    assert content(table) == {1: ("b", 2), 2: ("a", 1), 3: ("b", 2), 4: ("b", 2)}
    assert counts(result.stats) == (1, 2, 0, 1)
    assert not table.check.verify().problems


@each_type
def test_a_move_is_one_update_in_the_change_feed(kind: str) -> None:
    table = made(kind)
    table.upsert(rows((1, "a", 1, 1), (2, "a", 1, 1)))
    table.upsert(rows((1, "b", 2, 2)))
    feed = table.changes(since=1).to_arrow().to_pylist()
    assert [(row["_change_type"], row["id"], row["place"]) for row in feed] == [
        ("update_preimage", 1, "a"),
        ("update_postimage", 1, "b"),
    ]


@each_type
def test_of_several_rows_of_a_key_in_one_write_the_greatest_counts_in_whatever_partition(
    kind: str,
) -> None:
    table = made(kind, properties={"write.bucket.size": "1KiB", "write.buffer.size": "1KiB"})
    with table.writer("upsert") as writer:
        for place in "cab":
            writer.write(rows(*[(n, place, n, "abc".index(place)) for n in range(300)]))
    assert content(table) == {n: ("c", n) for n in range(300)}


@each_type
def test_an_insert_of_a_key_that_another_partition_has_is_a_duplicate(kind: str) -> None:
    table = made(kind, ordering=None)
    table.insert(rows((1, "a", 1, 1)))
    with pytest.raises(DuplicateKeyError) as refused:
        table.insert(rows((2, "b", 1, 1), (1, "b", 1, 1)))
    assert refused.value.facts["partition"] == '["a"]'
    with pytest.raises(DuplicateKeyError):
        table.insert(rows((7, "a", 1, 1), (7, "b", 1, 1)))
    stats = table.insert(rows((1, "b", 9, 9), (2, "b", 2, 2)), on_duplicate="skip").stats
    assert counts(stats) == (1, 0, 0, 1)
    assert content(table) == {1: ("a", 1), 2: ("b", 2)}


@each_type
def test_keys_alone_delete_and_remove_a_row_in_any_partition(kind: str) -> None:
    table = made(kind)
    table.upsert(rows((1, "a", 1, 1), (2, "b", 1, 9), (3, "c", 1, 1), (4, "c", 1, 9)))
    assert counts(table.delete(keys=keys(1, 8)).stats) == (0, 0, 1, 1)
    with table.writer("upsert") as writer:
        writer.write(rows((3, "z", 7, 7)))
        writer.remove(keys(2, 3, 4, 77))
        writer.write(rows((4, "d", 2, 0)))
    assert content(table) == {4: ("d", 2)}
    assert counts(writer.result.stats) == (0, 1, 2, 1)


@each_type
def test_a_merge_and_a_partial_upsert_find_a_row_in_any_partition(kind: str) -> None:
    table = made(kind)
    table.upsert(rows((1, "a", 1, 1), (2, "b", 1, 1), (3, "c", 1, 1)))
    source = rows((1, "z", 5, 9), (2, "z", 6, 9), (4, "z", 7, 9))
    table.merge(source, matched=[Delete(when="t.id = 2"), Update()], not_matched=[Insert()])
    assert content(table) == {1: ("z", 5), 3: ("c", 1), 4: ("z", 7)}
    table.merge(source, matched=[Update({"n": "t.n + s.n"})])
    assert content(table) == {1: ("z", 10), 3: ("c", 1), 4: ("z", 14)}
    part = rows((1, "y", 0, 9), (3, "y", 0, 0), (5, "y", 0, 0)).drop_columns(["n"])
    table.upsert(part, missing_columns="keep")
    assert content(table) == {1: ("y", 10), 3: ("c", 1), 4: ("z", 14), 5: ("y", None)}
    table.update({"n": "n + 1"}, where="id = 1")
    assert content(table)[1] == ("y", 11)


@each_type
def test_an_overwrite_replaces_its_place_and_takes_no_key_from_another(kind: str) -> None:
    table = made(kind)
    table.upsert(rows((1, "a", 1, 1), (2, "b", 1, 1), (3, "c", 1, 1)))
    for asked in ({"where": "place = 'a'"}, {"partitions": "dynamic"}):
        with pytest.raises(DuplicateKeyError):
            table.overwrite(rows((2, "a", 2, 2)), **asked)  # type: ignore[arg-type]  # by name
    table.overwrite(rows((4, "a", 2, 2), (2, "b", 3, 0)), partitions="dynamic")
    assert content(table) == {4: ("a", 2), 2: ("b", 3), 3: ("c", 1)}
    table.overwrite(rows((9, "c", 9, 9)), where="place = 'c'")
    assert content(table) == {4: ("a", 2), 2: ("b", 3), 9: ("c", 9)}
    table.overwrite(rows((3, "a", 1, 1), (9, "b", 1, 1)))
    assert content(table) == {3: ("a", 1), 9: ("b", 1)}


@pytest.mark.long(3)
@each_type
@pytest.mark.parametrize("index", ["none", "built", "lagging", "lost", "damaged"])
def test_rows_are_found_among_many_partitions_whatever_became_of_the_index(
    kind: str, index: str
) -> None:
    """INV-08, INV-11: more partitions than files are open at a time."""
    table = made(kind)
    table.upsert(rows(*[(n, f"p{n:02}", 1, 1) for n in range(40)]))
    if index != "none":
        table.index.create()
    table.upsert(rows(*[(n, f"p{(n + 7) % 40:02}", 2, 2) for n in range(0, 40, 3)]))
    if index == "built":
        table.index.build()
    if index in ("lost", "damaged"):
        store = table._handle.store
        store.delete([each.path for each in store.list(".meta/index")])
    if index == "lost":  # else the client takes it for whole
        table = build.again(table)
    table.upsert(rows(*[(n, "q", 3, 3) for n in range(20, 60)]))
    model = {n: (f"p{n:02}", 1) for n in range(40)}
    model |= {n: (f"p{(n + 7) % 40:02}", 2) for n in range(0, 40, 3)}
    assert content(table) == model | dict.fromkeys(range(20, 60), ("q", 3))
    assert not table.check.verify().problems


@each_type
@pytest.mark.parametrize("policy", ["key", "file_group"])
def test_one_key_in_two_partitions_is_a_conflict_of_writers_at_once(kind: str, policy: str) -> None:
    """INV-07, INV-08: also under snapshot isolation, and for a key that nobody had."""
    table = made(kind, policy=policy)
    other = beside(table, "publish", lambda: table.upsert(rows((1, "a", 1, 1))))
    with pytest.raises(RetryableConflictError) as met:
        other.upsert(rows((1, "b", 2, 2)))
    assert "different partitions" in met.value.message
    assert content(table) == {1: ("a", 1)}
    again = beside(table, "publish", lambda: table.upsert(rows((1, "c", 3, 3))))
    again.upsert(rows((1, "b", 2, 9)), on_conflict="retry")
    assert content(table) == {1: ("b", 2)}


@each_type
def test_a_key_that_comes_into_a_partition_where_both_wrote_is_a_conflict(kind: str) -> None:
    """INV-08: other keys are the same in the partition that both wrote in."""
    table = made(kind, buckets=1)
    table.upsert(rows((1, "a", 1, 1), (2, "b", 1, 1)))
    other = beside(table, "publish", lambda: table.upsert(rows((9, "b", 1, 1))))
    with pytest.raises(RetryableConflictError):
        other.upsert(rows((9, "a", 2, 9), (2, "b", 2, 2)))
    assert content(table) == {1: ("a", 1), 2: ("b", 1), 9: ("b", 1)}


@each_type
@pytest.mark.parametrize("policy", ["file_group", "merge"])
def test_what_is_done_again_is_done_again_in_every_partition(kind: str, policy: str) -> None:
    """INV-08: they meet in one bucket, and a key of another one came into a third."""
    table = made(kind, policy=policy, buckets=2)
    ids: dict[int, list[int]] = {0: [], 1: []}
    for key in range(1, 30):
        bucket = int(bucket_of(key_hashes(keys(key), ["id"]), 2)[0])
        ids[bucket].append(key)
    (one, other, *_), (far, *_) = ids[0], ids[1]
    theirs = rows((one, "a", 1, 1), (far, "c", 1, 1))
    client = beside(table, "publish", lambda: table.upsert(theirs))
    client.upsert(rows((other, "a", 2, 2), (far, "b", 2, 2)), on_conflict="retry")
    assert content(table) == {one: ("a", 1), other: ("a", 2), far: ("b", 2)}


@each_type
def test_an_overwrite_that_finds_its_place_empty_when_it_is_done_again_removes_nothing(
    kind: str,
) -> None:
    """INV-04, INV-08."""
    table = made(kind, buckets=2)
    table.upsert(rows((1, "a", 1, 1), (2, "a", 1, 1), (3, "a", 1, 1), (4, "a", 1, 1)))
    leave = rows(*[(n, "b", 2, 2) for n in range(1, 5)])
    client = beside(table, "publish", lambda: table.upsert(leave))
    client.overwrite(rows((9, "a", 3, 3)), where="place = 'a'", on_conflict="retry")
    assert content(table) == dict.fromkeys(range(1, 5), ("b", 2)) | {9: ("a", 3)}
    assert not table.check.verify().problems


@each_type
def test_keys_that_no_decision_tells_are_looked_for_too(kind: str) -> None:
    """INV-08, INV-11: who replaces whole partitions says only which buckets were written."""
    table = made(kind)
    table.index.create()
    table.upsert(rows((1, "a", 1, 1), (9, "b", 1, 1)))
    with table.writer("overwrite", partitions="dynamic") as writer:
        writer.write(rows((2, "b", 1, 1)))
    table.upsert(rows((2, "c", 2, 2)))
    assert content(table) == {1: ("a", 1), 2: ("c", 2)}


@pytest.mark.long(2)
@each_type
@pytest.mark.parametrize("act", ["upsert", "delete", "remove"])
def test_a_write_by_key_opens_only_files_of_partitions_that_may_have_it(
    kind: str, act: str
) -> None:
    """INV-08: the index tells them."""
    table = made(kind)
    table.upsert(rows(*[(n, f"p{n:02}", 1, 1) for n in range(30)]))
    table.index.create()
    uri = uri_of(table)
    counted, store = open_wrapped(uri, CountingStore)
    assert counted.version
    store.reset()
    if act == "upsert":
        counted.upsert(rows((7, "p07", 2, 2)))
    elif act == "delete":
        counted.delete(keys=keys(7, 99))
    else:
        with counted.writer("upsert") as writer:
            writer.remove(keys(7, 99))
    opened = {call.path for call in store.calls if call.operation == "open_input"}
    assert len([path for path in opened if path.endswith(".parquet")]) <= 2
    model = {n: (f"p{n:02}", 1) for n in range(30) if n != 7}
    assert content(table) == model | ({7: ("p07", 2)} if act == "upsert" else {})


@each_type
def test_other_keys_in_another_partition_are_no_conflict(kind: str) -> None:
    table = made(kind, buckets=1)
    table.upsert(rows((1, "a", 1, 1)))
    other = beside(
        table,
        "publish",
        lambda: table.upsert(rows((2, "b", 1, 1))),
        lambda: table.overwrite(rows((3, "c", 1, 1)), where="place = 'c'"),
        lambda: table.delete(where="place = 'd'"),
    )
    assert other.upsert(rows((1, "a", 2, 2))).rebased == 0
    assert content(table) == {1: ("a", 2), 2: ("b", 1), 3: ("c", 1)}


@each_type
def test_a_part_of_a_transaction_leaves_no_partition_out_for_those_after_it(kind: str) -> None:
    """A writer would look only where the index says that its keys are."""
    table = made(kind)
    table.upsert(rows((1, "a", 1, 1), (2, "b", 1, 1), (3, "c", 1, 1)))
    table.index.create()
    with table.transaction() as tx:
        tx.upsert(rows((1, "a", 2, 2)))
        assert tx.scan().count() == 3
        tx.upsert(rows((2, "c", 2, 2)))
    assert content(table) == {1: ("a", 2), 2: ("c", 2), 3: ("c", 1)}
    assert not table.check.verify().problems


@each_type
def test_services_and_a_restore_leave_each_key_once(kind: str) -> None:
    """INV-08, INV-14."""
    table = made(kind)
    for place in "abca":
        table.upsert(rows(*[(n, place, 1, table.version) for n in range(4)]))
    table.maintenance.compact(full=True)
    table.maintenance.cluster(order_by=["n"])
    assert content(table) == dict.fromkeys(range(4), ("a", 1))
    table.versions.restore(version=2)
    assert content(table) == dict.fromkeys(range(4), ("b", 1))
    table.upsert(rows((0, "z", 1, 99)))
    assert content(table)[0] == ("z", 1)
    assert not table.check.verify().problems


@each_type
def test_a_repush_and_a_writer_that_meets_it_leave_each_key_once(kind: str) -> None:
    """INV-08: rows that moved while it was open are in their last place alone."""
    table = made(kind)
    table.upsert(rows(*[(n, "ab"[n % 2], 1, 1) for n in range(6)]))

    def lay_out() -> None:
        table.upsert(rows((0, "c", 2, 2), (1, "c", 2, 2)))
        table.layout.repush(buckets=3)

    other = beside(table, "publish", lay_out)
    other.upsert(rows((1, "d", 3, 3), (2, "d", 3, 3), (9, "d", 3, 3)), on_conflict="retry")
    expected = {n: ("ab"[n % 2], 1) for n in range(6)} | {0: ("c", 2)}
    assert content(table) == expected | dict.fromkeys((1, 2, 9), ("d", 3))
    table.upsert(rows((0, "e", 4, 4)))
    assert content(table)[0] == ("e", 4)
    assert not table.check.verify().problems


@each_type
def test_the_writers_of_a_group_commit_move_rows(kind: str) -> None:
    """INV-08, INV-09: what a writer hands over is divided when the coordinator commits it."""
    table = made(kind, properties={"write.bucket.size": "16KiB", "write.buffer.size": "64KiB"})
    table.upsert(rows(*[(n, "a", 1, 1) for n in range(100)]))
    group = Group(table, "upsert")
    group.join("a", "b")
    many = rows(*[(n, "b", 2, 2) for n in range(60)])
    group.writers["a"].write(many, source="a", start="", end="1", removals=keys(*range(90, 100)))
    group.writers["b"].write(rows((70, "c", 2, 2)), source="b", start="", end="1")
    assert group.epoch() is not None
    group.close()
    expected = dict.fromkeys(range(60, 90), ("a", 1)) | dict.fromkeys(range(60), ("b", 2))
    assert content(table) == expected | {70: ("c", 2)}


@each_type
def test_verify_finds_a_key_that_lives_in_two_partitions(kind: str) -> None:
    """INV-07, INV-08."""
    table = made(kind)
    other = beside(table, "publish", lambda: table.upsert(rows((1, "a", 1, 1))))
    with mock.patch.object(Judge, "in_other_partitions", return_value=frozenset()):
        other.upsert(rows((1, "b", 2, 2)))
    found = {each.invariant: each.message for each in table.check.verify().problems}
    assert found.keys() == {"INV-07", "INV-08"}
    assert "different partitions" in found["INV-07"]
    assert "id = 1" in found["INV-08"]


def test_only_writers_must_know_the_feature_and_a_key_that_decides_the_partition_needs_none() -> (
    None
):
    """RFC 0029."""
    table = made("cow")
    table.upsert(rows((1, "a", 1, 1)))
    decision = decision_at(table._handle.store, 1)
    assert UNIQUE in decision.writer_features
    assert UNIQUE not in decision.features
    plain = make(_SCHEMA, record_key=["id", "place"], partition_by=["place"], unique="table")
    for place in "ab":
        plain.upsert(rows((1, place, 1, 1)))
    assert plain.scan().to_arrow().num_rows == 2
    assert not plain._handle.cache.known().table.spec.unique_in_table
    with pytest.raises(OptionError) as refused:
        make(_SCHEMA, record_key=(), unique="table")
    assert refused.value.facts["key"] == "unique"


@pytest.mark.parametrize(
    ("write", "key"),
    [
        (lambda t: t.merge(rows((1, "a", 1, 1)), not_matched_by_source=[Delete()]), "not_matched"),
        (lambda t: t.alter.set({"unique": "partition"}), "unique"),
        (lambda t: t.update({"place": "'z'"}, where="id = 1"), "values"),
        (
            lambda t: t.writer("upsert", replicas=Replicas([TableSink("s", "memory://nowhere")])),
            "replicas",
        ),
    ],
    ids=["by source", "another rule", "update of the partition", "replicas"],
)
def test_what_is_not_possible_is_refused_before_anything_is_written(
    write: Callable[[Table], object], key: str
) -> None:
    table = made("cow")
    table.upsert(rows((1, "a", 1, 1)))
    with pytest.raises(OptionError) as refused:
        write(table)
    assert str(refused.value.facts["key"]).startswith(key)
    assert refused.value.hint
    assert table.version == 1
