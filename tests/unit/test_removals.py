"""Upserts that remove keys among their rows, in order (RFC 0020)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from plait import OptionError, SchemaMismatchError, Table, TransactionClosedError
from plait.errors import BadRecordError, EpochRewoundError, RetryableConflictError
from plait.model.changes import KEYS_INLINE
from tests.support import build
from tests.support.build import keys
from tests.support.forge import decision_at
from tests.support.keyed import TYPES, content, make, rows

each_type = pytest.mark.parametrize("kind", TYPES)


def placed(kind: str, **definition: object) -> Table:
    schema = "id bigint, place string, n double"
    return build.make(schema, partition_by=["place"], table_type=kind, **definition)


def at(place: str | None, *ids: int) -> pa.Table:
    places = pa.array([place] * len(ids), pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "place": places, "n": [0.5] * len(ids)})


@each_type
@pytest.mark.parametrize("size", ["256MiB", "1KiB"])
def test_a_removal_takes_what_came_before_it_and_nothing_that_comes_later(
    kind: str, size: str
) -> None:
    sizes = {"write.bucket.size": size, "write.buffer.size": size}
    table = make(kind, ordering="ts", properties=sizes)
    table.upsert(rows(*[(n, 9, "old") for n in range(400)]))
    with table.writer("upsert") as writer:
        writer.write(rows(*[(n, 99, "before") for n in range(200, 600)]))
        writer.remove(keys(*range(100, 700)))
        writer.write(rows((100, 1, "after"), (500, 2, "after"), (500, 1, "late"), (0, 1, "lost")))
        writer.write(rows((800, 1, "new"), (801, 1, "new")))
        writer.remove(keys(801, 900))
    kept = dict.fromkeys(range(100), "old")
    assert content(table) == {**kept, 100: "after", 500: "after", 800: "new"}
    stats = writer.result.stats
    assert (stats.rows_inserted, stats.rows_updated, stats.rows_deleted) == (2, 1, 299)
    absent = 700 - 400 - 1  # 500 came again
    assert stats.keys_unchanged == absent + len({0, 801, 900})
    assert table.check.verify().problems == ()


@each_type
def test_a_commit_of_removals_alone_is_a_delete_by_key(kind: str) -> None:
    table = make(kind)
    table.upsert(rows((1, 1, "a"), (2, 1, "b"), (3, 1, "c")))
    with table.writer("upsert") as writer:
        writer.remove(keys(1, 2, 3, 4))
    assert content(table) == {}
    assert writer.result.stats.rows_deleted == 3
    assert table.inspect.files().num_rows == 0
    with table.writer("upsert", commit_id="again") as writer:
        writer.remove(keys(1))
    assert writer.result.stats.keys_unchanged == 1
    assert table.check.verify().problems == ()


@each_type
@pytest.mark.parametrize("added", [(), (1_000,), (500, 1_000)])
def test_a_few_removals_find_their_rows_in_a_large_table(kind: str, added: tuple[int, ...]) -> None:
    """Of large files only the keys that came are looked at: those that go are among them."""
    table = make(kind)
    table.upsert(rows(*[(n, 1, "old") for n in range(1_000)]))
    with table.writer("upsert") as writer:
        if added:
            writer.write(rows(*[(n, 1, "new") for n in added]))
        writer.remove(keys(3, 997, 5_000))
    found = content(table)
    assert set(found) == (set(range(1_000)) - {3, 997}) | set(added)
    assert {n for n, text in found.items() if text == "new"} == set(added)
    assert writer.result.stats.rows_deleted == 2


@each_type
def test_change_reads_show_what_became_of_each_key(kind: str) -> None:
    table = make(kind)
    table.upsert(rows((1, 1, "a"), (2, 1, "b"), (3, 1, "c")))
    with table.writer("upsert") as writer:
        writer.write(rows((4, 1, "x"), (5, 1, "x")))
        writer.remove(keys(1, 2, 4))
        writer.write(rows((2, 1, "again")))
    found = table.changes(since=1).to_arrow().to_pylist()
    assert sorted((row["id"], row["_change_type"], row["value"]) for row in found) == [
        (1, "delete", "a"),
        (2, "update_postimage", "again"),
        (2, "update_preimage", "b"),
        (5, "insert", "x"),
    ]


@each_type
def test_a_removal_concerns_its_partition_alone(kind: str) -> None:
    """Also where the partition is null, or not in the record key."""
    table = placed(kind, buckets=2)
    table.upsert(pa.concat_tables([at("a", 1, 2), at("b", 1, 2), at(None, 1, 2)]))
    with table.writer("upsert") as writer:
        writer.write(pa.concat_tables([at("a", 3), at("b", 3)]))
        writer.remove(pa.concat_tables([at("a", 1), at(None, 2), at("b", 3)]))
        writer.write(at(None, 2))
    found = {(row["id"], row["place"]) for row in table.scan().to_arrow().to_pylist()}
    assert found == {(2, "a"), (3, "a"), (1, "b"), (2, "b"), (1, None), (2, None)}
    stats = writer.result.stats
    assert (stats.rows_inserted, stats.rows_updated, stats.rows_deleted) == (1, 1, 1)


@each_type
def test_a_removal_without_its_partition_is_refused_with_a_remedy(kind: str) -> None:
    table = placed(kind)
    table.upsert(at("a", 1))
    with (
        pytest.raises(SchemaMismatchError, match="where they are removed") as caught,
        table.writer("upsert") as writer,
    ):
        writer.remove(keys(1))
    assert "delete(keys=...)" in caught.value.hint
    assert table.scan().count() == 1
    with (
        pytest.raises(BadRecordError, match="must not be null"),
        table.writer("upsert") as writer,
    ):
        writer.remove(pa.table({"id": pa.array([None], pa.int64()), "place": ["a"]}))


@pytest.mark.parametrize("operation", ["insert", "append", "overwrite", "delete"])
def test_only_an_upsert_takes_removals(operation: str) -> None:
    table = make("cow")
    table.upsert(rows((1, 1, "a")))
    with (
        pytest.raises(OptionError, match=r"does not take removals") as caught,
        table.writer(operation) as writer,
    ):
        writer.remove(keys(1))
    assert "writer('upsert')" in caught.value.hint
    with (
        pytest.raises(OptionError, match="missing_columns='keep' does not take removals"),
        table.writer("upsert", missing_columns="keep") as writer,
    ):
        writer.remove(keys(1))
    assert content(table) == {1: "a"}


def test_a_writer_that_has_ended_takes_no_removals_and_a_commit_id_is_applied_once() -> None:
    table = make("cow")
    for value in ("a", "b"):
        with table.writer("upsert", commit_id="once") as writer:
            writer.write(rows((1, 1, value), (2, 1, value)))
            writer.remove(keys(1))
    assert (content(table), writer.result.version) == ({2: "a"}, 1)
    with pytest.raises(TransactionClosedError):
        writer.remove(keys(1))


# --- beside other writers --------------------------------------------------------------------

Act = Callable[[Table], object]
MEANWHILE: dict[str, tuple[Act, bool]] = {
    "the row that goes was changed": (lambda t: t.upsert(rows((1, 2, "theirs"))), True),
    "the row that goes was deleted": (lambda t: t.delete(keys=keys(1)), True),
    "a row that comes was added": (lambda t: t.upsert(rows((4, 2, "theirs"))), True),
    "another row of the bucket was changed": (lambda t: t.upsert(rows((3, 2, "theirs"))), False),
    "a key that was not there was added": (lambda t: t.upsert(rows((9, 2, "theirs"))), False),
}


def change(table: Table, meanwhile: Act, **how: str) -> None:
    with table.writer("upsert", **how) as writer:  # type: ignore[arg-type]  # by name
        writer.remove(keys(1, 9))
        writer.write(rows((4, 1, "ours")))
        meanwhile(table)


@each_type
@pytest.mark.parametrize(("meanwhile", "conflicts"), MEANWHILE.values(), ids=MEANWHILE.keys())
def test_the_keys_that_go_are_in_the_write_set(
    kind: str, meanwhile: Act, *, conflicts: bool
) -> None:
    """INV-07: with those that come."""
    table = make(kind)
    table.upsert(rows((1, 1, "a"), (2, 1, "b"), (3, 1, "c")))
    if conflicts:
        with pytest.raises(RetryableConflictError):
            change(table, meanwhile)
        assert table.inspect.history()[0].action == "rollback"
    else:
        change(table, meanwhile)
        kept = {2: "b", 3: "c", 4: "ours"}
        added = {n: t for n, t in content(table).items() if t == "theirs"}
        assert content(table) == {**kept, **added}
        assert 1 not in content(table)
    change(table, meanwhile, on_conflict="retry")
    assert content(table) == {2: "b", 3: content(table)[3], 4: "ours"} | {
        n: t for n, t in content(table).items() if n == 9
    }
    assert table.check.verify().problems == ()


@each_type
def test_a_later_writer_sees_which_keys_went(kind: str) -> None:
    """INV-07: a key is in the write set by itself, also where no file of the commit holds it."""
    table = make(kind)
    table.upsert(rows((1, 1, "a"), (2, 1, "b"), (3, 1, "c")))
    late = table.writer("upsert").__enter__()
    late.write(rows((2, 5, "late")))
    clash = table.writer("upsert").__enter__()
    clash.write(rows((1, 5, "clash")))
    with table.writer("upsert") as writer:
        writer.remove(keys(1))
        writer.write(rows((7, 1, "new")))
    touched = decision_at(table._handle.store, writer.result.version).changes.touched
    assert touched.select(["keys", "key_count"]).to_pylist() == [
        {"keys": KEYS_INLINE, "key_count": 2}
    ]
    late.__exit__(None, None, None)
    with pytest.raises(RetryableConflictError):
        clash.__exit__(None, None, None)
    assert content(table) == {2: "late", 3: "c", 7: "new"}


@each_type
@pytest.mark.parametrize("named", [False, True])
def test_a_removed_key_that_is_not_there_counts_as_read(kind: str, *, named: bool) -> None:
    """INV-07, RFC 0011: whoever adds it meanwhile would have changed what the removal did."""
    table = make(kind, isolation="snapshot" if named else "serializable")
    table.upsert(rows((2, 1, "b")))
    seen = table.scan() if named else None
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(RetryableConflictError),
        table.writer("upsert", read_from=seen, commit_id="c") as writer,
    ):
        writer.write(rows((5, 1, "gone")))
        writer.remove(keys(1, 5))
        table.upsert(rows((1, 1, "theirs")))
    with table.writer("upsert", read_from=table.scan() if named else None) as writer:
        writer.remove(keys(5))
        table.upsert(rows((1, 2, "theirs")))
    assert content(table) == {1: "theirs", 2: "b"}


# --- streams ----------------------------------------------------------------------------------


@each_type
def test_an_epoch_that_returns_is_known_by_its_removals_too(kind: str) -> None:
    """INV-09: a removal is no row, and a row is no removal."""
    table = make(kind)
    stream, key = table.stream("s"), pa.table({"id": [2]})

    def apply(rows_of: list[int], removed: pa.Table | None) -> int:
        with stream.writer("upsert", after=None, end="1") as epoch:
            epoch.write(rows(*[(n, 1, "a") for n in rows_of]))
            if removed is not None:
                epoch.remove(removed)
        return epoch.result.version

    assert [apply([1, 2], key), apply([2, 1], key)] == [1, 1]
    assert content(table) == {1: "a"}
    for wrong in (None, pa.table({"id": [1]}), pa.table({"id": [2, 2]})):
        with pytest.raises(EpochRewoundError):
            apply([1, 2], wrong)
    bare = build.make("id bigint")
    with bare.stream("s").writer("upsert", after=None, end="1") as epoch:
        epoch.remove(key)
    with (
        pytest.raises(EpochRewoundError),
        bare.stream("s").writer("upsert", after=None, end="1") as epoch,
    ):
        epoch.write(key)
    assert content(table) == {1: "a"}
