"""Rows of one key in one write: refused, or one of them wins by a rule that is written down."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import DuplicateKeyError, Table
from tests.support import build
from tests.support.build import rows

EVERY = pytest.mark.parametrize("kind", ["cow", "mor"])
ADDING = pytest.mark.parametrize("operation", ["insert", "append", "overwrite"])
ROWS = pa.table({"id": [7, 7, 8, 7], "v": [1, 3, 0, 2]})


def make(kind: str, **how: object) -> Table:
    return build.make(buckets=1, table_type=kind, **how)


@EVERY
@ADDING
def test_adding_one_key_several_times_without_an_ordering_column_is_refused(
    kind: str, operation: str
) -> None:
    table = make(kind)
    with pytest.raises(DuplicateKeyError) as error:
        getattr(table, operation)(ROWS)
    assert error.value.keys == [{"id": 7}]
    assert "upsert" in error.value.hint
    assert table.scan().count() == 0


@EVERY
@ADDING
def test_rows_of_one_key_are_found_across_the_batches_of_a_writer(
    kind: str, operation: str
) -> None:
    small = {"write.buffer.size": "256KiB", "write.bucket.size": "64KiB"}
    table = make(kind, properties=small)
    writer = table.writer(operation).__enter__()
    writer.write(rows(range(12_000), v=1))
    writer.write(rows(77, v=1))
    with pytest.raises(DuplicateKeyError):
        writer.__exit__(None, None, None)
    assert table.scan().count() == 0


@EVERY
@ADDING
def test_adding_one_key_several_times_keeps_the_greatest_by_the_ordering_column(
    kind: str, operation: str
) -> None:
    table = make(kind, ordering="v")
    getattr(table, operation)(ROWS)
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [0, 3]


@EVERY
def test_insert_that_skips_duplicates_takes_the_first_row_of_each_key(kind: str) -> None:
    table = make(kind)
    table.insert(ROWS, on_duplicate="skip")
    with table.writer("insert", on_duplicate="skip") as writer:
        writer.write(pa.table({"id": [7, 9], "v": [100, 1]}))
        writer.write(pa.table({"id": [9, 9], "v": [2, 3]}))
    found = table.scan().to_arrow().sort_by("id")
    assert found["v"].to_pylist() == [1, 0, 1]


@EVERY
def test_upsert_of_one_key_several_times_keeps_the_last_row_that_came(kind: str) -> None:
    table = make(kind)
    with table.writer("upsert") as writer:
        writer.write(ROWS)
        writer.write(pa.table({"id": [8, 8], "v": [4, 5]}))
    found = table.scan().to_arrow().sort_by("id")
    assert found["v"].to_pylist() == [2, 5]
