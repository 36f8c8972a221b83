"""What each operation tells of what it did, for both kinds of table, with and without a key.

What it leaves in the table is compared with a dict in ``tests/property/test_writer_model.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

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


FILLED = (rows([1, 2], day="mon"), rows([3], day="tue"))
OPERATIONS: dict[str, tuple[str, Any, dict[str, str], tuple[int, int, int], set[int]]] = {
    "upsert": ("upsert", rows([2, 4]), {}, (1, 1, 0), {1, 2, 3, 4}),
    "insert that skips": (
        "insert",
        rows([2, 4]),
        {"on_duplicate": "skip"},
        (1, 0, 0),
        {1, 2, 3, 4},
    ),
    "delete by key": ("delete", pa.table({"id": [3, 77]}), {}, (0, 0, 1), {1, 2}),
    "delete by predicate": ("delete", None, {"where": "id in (1, 3)"}, (0, 0, 2), {2}),
    "delete of a partition": ("delete", None, {"where": "day = 'mon'"}, (0, 0, 2), {3}),
    "delete of every row": ("delete", None, {"where": "true"}, (0, 0, 3), set()),
    "overwrite": ("overwrite", rows([9], day="wed"), {}, (1, 0, 3), {9}),
    "overwrite with nothing": ("overwrite", None, {}, (0, 0, 3), set()),
    "overwrite of partitions": (
        "overwrite",
        rows([7]),
        {"overwrite": "partitions"},
        (1, 0, 2),
        {3, 7},
    ),
    "overwrite by predicate": (
        "overwrite",
        rows([2, 4]),
        {"where": "id <> 3"},
        (2, 0, 2),
        {2, 3, 4},
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_counts_its_rows_and_names_the_keys_that_it_touched(
    make: Make, name: str
) -> None:
    operation, data, how, counted, left = OPERATIONS[name]
    table = make(partition_by=["day"])
    table.write("upsert", *FILLED)
    status = table.write(operation, *([] if data is None else [data]), **how)
    stats, changes = status.stats, status.changes
    assert (stats.rows_inserted, stats.rows_updated, stats.rows_deleted) == counted
    assert set(values(table)) == left
    assert stats.rows_in == (0 if data is None else data.num_rows)
    if operation == "delete":
        assert set(changes.touched["keys"].to_pylist()) == {KEYS_INLINE}
        assert sum(changes.touched["key_count"].to_pylist()) == max(counted)
    if name in ("overwrite", "overwrite with nothing"):
        assert set(changes.touched["keys"].to_pylist()) == {KEYS_ALL}
        places = {partition_parse(text) for text in changes.touched["partition"].to_pylist()}
        assert places == {("mon",), ("tue",)} | ({("wed",)} if left else set())
    if name in ("delete of a partition", "delete of every row"):
        assert changes.added.num_rows == changes.masked.num_rows == 0, "no row is read"
    assert table.files.num_rows or not left, "no file of nothing"


def test_rows_that_all_lose_change_nothing(make: Make) -> None:
    table = make(ordering="rank")
    table.write("upsert", rows([1, 2], "kept", rank=9))
    status = table.write("upsert", rows([1, 2], "late", rank=1))
    assert values(table) == {1: "kept", 2: "kept"}
    assert status.changes.added.num_rows == status.changes.removed.num_rows == 0
    assert status.changes.touched.num_rows == status.changes.masked.num_rows == 0
    logs = table.spec.layout.table_type == "mor"  # written before anybody knows
    assert bool(status.changes.garbage.num_rows) is logs
    some = table.write("upsert", rows([1], rank=4), rows([2], rank=9), rows([3], rank=None))
    assert (some.stats.rows_inserted, some.stats.rows_updated) == (1, 1)


def test_rows_that_are_refused_leave_the_table_as_it_is(make: Make) -> None:
    table = make(partition_by=["day"])
    table.write("insert", rows([1], "a"), rows([2], "b"))
    before = table.files
    with pytest.raises(DuplicateKeyError) as caught:
        table.write("insert", rows([5, 2]))
    assert caught.value.keys == [{"id": 2}]
    assert partition_parse(str(caught.value.partition)) == ("mon",)
    with pytest.raises(DuplicateKeyError):
        table.write("overwrite", rows([1], "b"), where="v = 'b'")
    with pytest.raises(BadRecordError):
        table.write("overwrite", rows([2, 60]), where="id < 10")
    with pytest.raises(OptionError):
        table.write("delete", rows([1]), where="id = 1")
    assert table.files.equals(before)


def test_rows_without_a_key_are_kept_all_and_deleted_and_overwritten_by_predicate(
    make: Make,
) -> None:
    table = make(key=[], partition_by=["day"])
    status = table.write("append", rows([1, 1, 2, 3]), rows([1], day="tue"))
    assert set(status.changes.touched["keys"].to_pylist()) == {KEYS_NONE}
    assert status.stats.rows_inserted == 5
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


def test_appended_files_are_rolled_by_size_and_few_where_partitions_are_many(make: Make) -> None:
    options = {"file.size.target": "4KiB", "write.bucket.size": "4KiB", "write.buffer.size": "8KiB"}
    table = make(key=[], options=options)
    status = table.write("append", *[rows(list(range(500)), f"batch {i}") for i in range(20)])
    assert len(table.rows()) == 10_000
    sizes = sorted(status.changes.added["bytes"].to_pylist())
    assert 2 <= len(sizes) <= 40
    assert all(size >= 4096 for size in sizes[1:])
    divided = make(key=[], partition_by=["day"])
    divided.write("append", pa.concat_tables([rows([i], day=f"day {i % 30}") for i in range(300)]))
    assert (divided.files.num_rows, len(divided.rows())) == (30, 300)


@pytest.mark.parametrize("operation", ["upsert", "insert", "delete"])
def test_empty_input_gives_an_empty_status(make: Make, operation: str) -> None:
    table = make(partition_by=["day"])
    table.write("upsert", rows([1]))
    table.announced.clear()
    status = table.write(operation, rows([]), rows([]).to_reader())
    assert status.changes.rows == 0
    assert not any(status.stats.to_dict().values())
    assert table.announced == []


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


def test_the_first_file_of_a_bucket_is_its_base_and_files_of_just_its_keys_name_them(
    make: Make,
) -> None:
    table = make(buckets=1)
    rewrites = table.spec.layout.table_type == "cow"
    first = table.write("upsert", rows([1, 2]))
    assert first.changes.touched["keys"].to_pylist() == [KEYS_FILES]
    assert table.files["kind"].to_pylist() == [BASE]
    second = table.write("upsert", rows([2, 3]))
    assert second.changes.touched["keys"].to_pylist() == [KEYS_INLINE if rewrites else KEYS_FILES]
    assert second.changes.touched["key_count"].to_pylist() == [2]
    assert sorted(table.files["kind"].to_pylist()) == ([BASE] if rewrites else [BASE, LOG])
    table.write("overwrite", rows([5]))
    assert table.files["kind"].to_pylist() == [BASE]
