"""What is done again after a conflict rests on one snapshot, whole."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import RetryableConflictError

SCHEMA = "id bigint, place string, value bigint"


def rows(*values: tuple[int, str, int]) -> pa.Table:
    ids, places, numbers = zip(*values, strict=True)
    return pa.table({"id": list(ids), "place": list(places), "value": list(numbers)})


def make(name: str, table_type: str) -> Table:
    return Table.create(
        f"memory://redo-{name}-{table_type}",
        SCHEMA,
        record_key=["id"],
        partition_by=["place"],
        table_type=table_type,
    )


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_redo_asks_again_where_nothing_was_done_before(table_type: str) -> None:
    """INV-07: a bucket that the base left alone is in no window; the redo looks at it anew."""
    table = make("idle", table_type)
    table.upsert(rows((2, "b", 0)))
    with table.writer("delete", where="value >= 0", on_conflict="retry"):
        table.insert(rows((50, "z", 1)))
        table.upsert(rows((2, "b", 1)))
    assert table.history()[0].base == 3
    assert table.scan().count() == 0


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_overwrites_of_one_predicate_conflict_also_in_empty_partitions(table_type: str) -> None:
    """INV-07: no serial order would leave the rows of both."""
    table = make("predicate", table_type)
    where = "place >= 'a'"
    second = table.writer("overwrite", where=where).__enter__()
    second.write(rows((2, "b", 0)))
    table.overwrite(rows((1, "a", 0)), where=where)
    with pytest.raises(RetryableConflictError):
        second.__exit__(None, None, None)
    assert table.scan().to_arrow()["id"].to_pylist() == [1]
    with table.writer("overwrite", where=where, on_conflict="retry") as third:
        third.write(rows((3, "c", 0)))
        table.overwrite(rows((4, "d", 0)), where=where)
    assert table.scan().to_arrow()["id"].to_pylist() == [3]
