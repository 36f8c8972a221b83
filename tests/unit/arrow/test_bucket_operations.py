"""What each operation leaves in the table, for both kinds of table, with and without a key."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

from plait.errors import BadRecordError, DuplicateKeyError, OptionError, TransactionClosedError
from plait.model.bucket import partition_parse
from plait.model.changes import BASE, KEYS_ALL, KEYS_FILES, KEYS_INLINE, KEYS_NONE, LOG
from tests.support.livetable import LiveTable

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("v", pa.string()), ("rank", pa.int64())]
)
_NUMBERS = itertools.count()
Make = Callable[..., LiveTable]


@pytest.fixture(params=["cow", "mor"])
def make(request: pytest.FixtureRequest) -> Make:
    def table(**definition: object) -> LiveTable:
        uri = f"memory://operations-{next(_NUMBERS)}"
        definition.setdefault("key", ["id"])
        return LiveTable(uri, SCHEMA, table_type=request.param, **definition)  # type: ignore[arg-type]

    return table


def rows(ids: list[int], v: str = "x", day: str | None = "mon", rank: int | None = 0) -> pa.Table:
    count = len(ids)
    columns = [ids, [day] * count, [v] * count, [rank] * count]
    return pa.table(columns, schema=SCHEMA)


def values(table: LiveTable) -> dict[int, str]:
    found = [(row["id"], row["v"]) for row in table.rows()]
    assert len(dict(found)) == len(found), "INV-08"
    return dict(sorted(found))  # type: ignore[arg-type]


def test_upsert_replaces_and_adds(make: Make) -> None:
    table = make()
    table.write("upsert", rows([1, 2, 3]))
    status = table.write("upsert", rows([2, 4], "y"))
    assert values(table) == {1: "x", 2: "y", 3: "x", 4: "y"}
    assert (status.stats.rows_in, status.stats.rows_inserted, status.stats.rows_updated) == (
        2,
        1,
        1,
    )


def test_of_equal_keys_in_one_input_the_last_wins(make: Make) -> None:
    table = make(buckets=1, options={"write.buffer.size": 1, "write.bucket.size": 1})
    table.write("upsert", rows([1, 1], "a"), rows([1], "b"), *[rows([2], str(i)) for i in range(9)])
    assert values(table) == {1: "b", 2: "8"}


def test_the_greater_ordering_field_wins_whatever_comes_last(make: Make) -> None:
    table = make(ordering="rank", options={"write.buffer.size": 1, "write.bucket.size": 1})
    table.write(
        "upsert", rows([1], "old", rank=5), rows([2], "in", rank=3), rows([2], "late", rank=1)
    )
    status = table.write(
        "upsert", rows([1], "loses", rank=4), rows([2], "ties", rank=3), rows([3], "new", rank=None)
    )
    assert values(table) == {1: "old", 2: "ties", 3: "new"}
    assert (status.stats.rows_inserted, status.stats.rows_updated) == (1, 1)


def test_rows_that_all_lose_change_nothing(make: Make) -> None:
    table = make(ordering="rank")
    table.write("upsert", rows([1, 2], "kept", rank=9))
    status = table.write("upsert", rows([1, 2], "late", rank=1))
    assert values(table) == {1: "kept", 2: "kept"}
    assert status.changes.added.num_rows == status.changes.removed.num_rows == 0
    assert status.changes.touched.num_rows == status.changes.masked.num_rows == 0
    logs = table.spec.layout.table_type == "mor"  # written before anybody knows
    assert bool(status.changes.garbage.num_rows) is logs


def test_insert_refuses_keys_that_are_there_with_a_sample(make: Make) -> None:
    table = make(partition_by=["day"])
    table.write("insert", rows([1, 2]))
    before = table.files
    with pytest.raises(DuplicateKeyError) as caught:
        table.write("insert", rows([5, 2]))
    assert caught.value.keys == [{"id": 2}]
    assert partition_parse(str(caught.value.partition)) == ("mon",)
    assert table.files.equals(before)


def test_insert_skips_keys_that_are_there_on_request(make: Make) -> None:
    table = make()
    table.write("insert", rows([1, 2]))
    status = table.write("insert", rows([2, 3], "y"), on_duplicate="skip")
    assert values(table) == {1: "x", 2: "x", 3: "y"}
    assert status.stats.rows_inserted == 1


def test_a_key_is_unique_in_its_partition_and_free_in_others(make: Make) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1], "a", "mon"), rows([1], "b", "tue"), rows([1], "c", None))
    table.write("upsert", rows([1], "B", "tue"))
    assert sorted((r["day"] or "", r["v"]) for r in table.rows()) == [
        ("", "c"),
        ("mon", "a"),
        ("tue", "B"),
    ]


def test_a_partition_column_may_be_part_of_the_key(make: Make) -> None:
    table = make(key=["day", "id"], partition_by=["day"])
    table.write("upsert", rows([1], "a", "mon"), rows([1], "b", "tue"))
    table.write("delete", rows([1], day="mon"))
    assert [(r["day"], r["v"]) for r in table.rows()] == [("tue", "b")]


def test_delete_by_key_takes_the_keys_out(make: Make) -> None:
    table = make()
    table.write("upsert", rows(list(range(10))))
    status = table.write("delete", pa.table({"id": [3, 4, 77]}))
    assert set(values(table)) == set(range(10)) - {3, 4}
    assert status.stats.rows_deleted == 2
    assert set(status.changes.touched["keys"].to_pylist()) == {KEYS_INLINE}


def test_delete_by_key_reaches_every_partition_unless_told_which(make: Make) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1, 2], day="mon"), rows([1, 2], day="tue"))
    table.write("delete", pa.table({"id": [1], "day": ["mon"]}))
    assert sorted((r["day"], r["id"]) for r in table.rows()) == [("mon", 2), ("tue", 1), ("tue", 2)]
    table.write("delete", pa.table({"id": [2]}))
    assert [(r["day"], r["id"]) for r in table.rows()] == [("tue", 1)]


def test_a_delete_names_the_keys_of_its_rows_where_no_row_is_left_or_a_partition_goes(
    make: Make,
) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1, 2, 3], day="mon"), rows([4, 5], day="tue"))
    for where, count in (("id in (4, 5)", 2), ("day = 'mon'", 3)):
        touched = table.write("delete", where=where).changes.touched
        assert touched.num_rows >= 1
        assert set(touched["keys"].to_pylist()) == {KEYS_INLINE}
        assert sum(touched["key_count"].to_pylist()) == count


def test_delete_by_predicate_takes_matching_rows_out(make: Make) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1, 2, 3], day="mon"), rows([4, 5], day="tue"))
    status = table.write("delete", where="id in (1, 3, 4)")
    assert set(values(table)) == {2, 5}
    assert status.stats.rows_deleted == 3
    touched = status.changes.touched
    assert set(touched["keys"].to_pylist()) == {KEYS_INLINE}
    assert sum(touched["key_count"].to_pylist()) == 3


def test_delete_of_a_whole_partition_reads_no_rows_and_keeps_no_file(make: Make) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1, 2, 3], day="mon"), rows([4], day="tue"))
    status = table.write("delete", where="day = 'mon'")
    assert set(values(table)) == {4}
    assert status.stats.rows_deleted == 3
    assert status.changes.added.num_rows == status.changes.masked.num_rows == 0


def test_delete_of_everything_leaves_no_file(make: Make) -> None:
    table = make()
    table.write("upsert", rows([1, 2, 3]))
    table.write("delete", pa.table({"id": [2]}))
    table.write("delete", where="true")
    assert table.files.num_rows == 0


def test_overwrite_replaces_the_table(make: Make) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1, 2], day="mon"), rows([3], day="tue"))
    status = table.write("overwrite", rows([9], "new", "wed"))
    assert values(table) == {9: "new"}
    assert (status.stats.rows_deleted, status.stats.rows_inserted) == (3, 1)
    assert set(status.changes.touched["keys"].to_pylist()) == {KEYS_ALL}
    touched = {partition_parse(text) for text in status.changes.touched["partition"].to_pylist()}
    assert touched == {("mon",), ("tue",), ("wed",)}


def test_overwrite_with_nothing_empties_the_table(make: Make) -> None:
    table = make()
    table.write("upsert", rows([1, 2]))
    table.write("overwrite")
    assert table.files.num_rows == 0


def test_overwrite_of_partitions_replaces_those_that_rows_come_for(make: Make) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1, 2], day="mon"), rows([3], day="tue"))
    table.write("overwrite", rows([7], "new", "mon"), overwrite="partitions")
    assert values(table) == {3: "x", 7: "new"}


def test_overwrite_by_predicate_replaces_matching_rows(make: Make) -> None:
    table = make()
    table.write("upsert", rows([1, 2, 3, 50]))
    status = table.write("overwrite", rows([2, 4], "new"), where="id < 10")
    assert values(table) == {2: "new", 4: "new", 50: "x"}
    assert (status.stats.rows_deleted, status.stats.rows_inserted) == (3, 2)


def test_overwrite_by_predicate_refuses_rows_outside_of_it(make: Make) -> None:
    table = make()
    table.write("upsert", rows([1, 50]))
    with pytest.raises(BadRecordError):
        table.write("overwrite", rows([2, 60]), where="id < 10")
    assert set(values(table)) == {1, 50}


def test_overwrite_by_predicate_refuses_a_key_that_survives_it(make: Make) -> None:
    table = make()
    table.write("upsert", rows([1], "a"), rows([2], "b"))
    with pytest.raises(DuplicateKeyError):
        table.write("overwrite", rows([1], "b"), where="v = 'b'")
    assert values(table) == {1: "a", 2: "b"}


def test_append_without_a_key_keeps_every_row(make: Make) -> None:
    table = make(key=[], partition_by=["day"])
    status = table.write("append", rows([1, 1, 2]), rows([1], day="tue"))
    table.write("append", rows([1], "again"))
    assert sorted(row["id"] for row in table.rows()) == [1, 1, 1, 1, 2]
    assert set(status.changes.touched["keys"].to_pylist()) == {KEYS_NONE}
    assert status.stats.rows_inserted == 4


def test_appended_files_are_rolled_by_size(make: Make) -> None:
    options = {"file.size.target": "4KiB", "write.bucket.size": "4KiB", "write.buffer.size": "8KiB"}
    table = make(key=[], options=options)
    status = table.write("append", *[rows(list(range(500)), f"batch {i}") for i in range(20)])
    assert len(table.rows()) == 10_000
    sizes = sorted(status.changes.added["bytes"].to_pylist())
    assert 2 <= len(sizes) <= 40
    assert all(size >= 4096 for size in sizes[1:])


def test_appends_to_many_partitions_keep_few_files_open(make: Make) -> None:
    table = make(key=[], partition_by=["day"])
    every = [rows([i], day=f"day {i % 30}") for i in range(300)]
    table.write("append", pa.concat_tables(every))
    assert table.files.num_rows == 30
    assert len(table.rows()) == 300


def test_rows_without_a_key_are_deleted_and_overwritten_by_predicate(make: Make) -> None:
    table = make(key=[], partition_by=["day"])
    table.write("append", rows([1, 1, 2, 3]), rows([1], day="tue"))
    status = table.write("delete", where="id = 1 and day = 'mon'")
    assert sorted(row["id"] for row in table.rows()) == [1, 2, 3]
    assert status.stats.rows_deleted == 2
    table.write("overwrite", rows([2, 2], "new"), where="id = 2")
    assert sorted((row["id"], row["v"]) for row in table.rows()) == [
        (1, "x"),
        (2, "new"),
        (2, "new"),
        (3, "x"),
    ]
    table.write("overwrite", rows([8], day="tue"), overwrite="partitions")
    assert sorted(row["id"] for row in table.rows()) == [2, 2, 3, 8]


@pytest.mark.parametrize("operation", ["upsert", "insert", "delete"])
def test_empty_input_gives_an_empty_status(make: Make, operation: str) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1]))
    table.announced.clear()
    status = table.write(operation, rows([]), rows([]).to_reader())
    assert status.changes.rows == 0
    assert not any(status.stats.to_dict().values())
    assert table.announced == []


def test_a_delete_by_predicate_takes_no_rows(make: Make) -> None:
    with pytest.raises(OptionError):
        make().write("delete", rows([1]), where="id = 1")


def test_rows_after_staging_or_closing_are_refused(make: Make) -> None:
    table = make()
    staging = table.staging("upsert")
    staging.write(rows([1]))
    staging.stage(table.snapshot(), None)
    with pytest.raises(TransactionClosedError):
        staging.write(rows([2]))
    staging.close()
    with pytest.raises(TransactionClosedError):
        staging.stage(table.snapshot(), None)


def test_what_was_touched_is_told_by_the_files_where_they_hold_just_these_keys(make: Make) -> None:
    table = make(buckets=1)
    first = table.write("upsert", rows([1, 2]))
    assert first.changes.touched["keys"].to_pylist() == [KEYS_FILES]
    second = table.write("upsert", rows([2, 3]))
    rewrites = table.spec.layout.table_type == "cow"
    assert second.changes.touched["keys"].to_pylist() == [KEYS_INLINE if rewrites else KEYS_FILES]
    assert second.changes.touched["key_count"].to_pylist() == [2]


def test_the_first_file_of_a_bucket_is_its_base(make: Make) -> None:
    table = make(buckets=1)
    table.write("upsert", rows([1, 2, 3]))
    assert table.files["kind"].to_pylist() == [BASE]
    table.write("upsert", rows([2]))
    kinds = [BASE] if table.spec.layout.table_type == "cow" else [BASE, LOG]
    assert sorted(table.files["kind"].to_pylist()) == kinds
    table.write("overwrite", rows([5]))
    assert table.files["kind"].to_pylist() == [BASE]
