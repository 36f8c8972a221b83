"""A struct that is null has no members, also where a member may not be null (RFC 0027)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from plait import Insert, Table, Update
from tests.support.build import make

MEMBERS = [pa.field("a", pa.int64(), nullable=False), pa.field("t", pa.string(), nullable=False)]
S = pa.struct(MEMBERS)
KINDS = {
    "struct": S,
    "in a struct": pa.struct([pa.field("s", S), pa.field("r", S, nullable=False)]),
    "list": pa.list_(S),
    "map": pa.map_(pa.string(), S),
    "list in a struct": pa.struct([pa.field("l", pa.list_(S), nullable=False)]),
}
ROWS = pa.table({"id": [1, 2], "v": [1, 1]})


def made(table_type: str, columns: str = "id bigint, v bigint") -> Table:
    return make(columns, buckets=1, table_type=table_type)


ACTS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(ROWS, missing_columns="keep"),
    "upsert of another": lambda t: t.upsert(
        pa.table({"id": [3], "v": [3]}), missing_columns="keep"
    ),
    "update": lambda t: t.update({"v": "v + 1"}),
    "delete": lambda t: t.delete(where="id = 1"),
    "merge": lambda t: t.merge(
        pa.table({"id": [2, 7], "v": [5, 5]}), matched=[Update()], not_matched=[Insert()]
    ),
    "compact": lambda t: t.maintenance.compact(full=True),
    "cluster": lambda t: (t.alter.set({"cluster.by": "v"}), t.maintenance.cluster()),
    "repush": lambda t: t.layout.repush(buckets=2),
    "what was read": lambda t: t.upsert(t.scan().to_arrow()),
    "as pandas": lambda t: t.upsert(t.scan().to_pandas()),
    "as polars": lambda t: t.scan().to_polars(),
}


@pytest.mark.long(20)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_without_the_struct_are_written_and_read(table_type: str, kind: str, act: str) -> None:
    table = made(table_type)
    table.upsert(ROWS)
    table.alter.columns().add("x", KINDS[kind]).commit()
    ACTS[act](table)
    assert table.scan().to_arrow()["x"].null_count == table.scan().count()
    assert not table.check.verify(data=True).problems


@pytest.mark.long(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_bring_the_column_and_nulls_in_it(table_type: str, kind: str) -> None:
    """Whatever lies below the null: Arrow takes nulls there."""
    table = made(table_type)
    table.upsert(ROWS)
    brought = pa.table({"id": [2, 3], "v": [2, 2], "x": pa.nulls(2, KINDS[kind])})
    table.upsert(brought, evolve="add")
    table.update({"v": "v + 1"})
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    table.upsert(table.scan().to_arrow())
    assert table.scan().to_arrow()["x"].null_count == 3


def test_a_member_that_may_not_be_null_is_still_refused() -> None:
    table = made("cow")
    table.upsert(ROWS)
    table.alter.columns().add("x", S).commit()
    given = pa.StructArray.from_arrays([pa.array([1, None]), pa.array(["a", "b"])], ["a", "t"])
    with pytest.raises(Exception, match="null") as caught:
        table.upsert(ROWS.append_column("x", given))
    assert type(caught.value).__name__ == "BadRecordError"


@pytest.mark.parametrize("kind", ["list", "map", "list in a struct"])
def test_a_slice_of_rows_is_written_as_it_is(kind: str) -> None:
    """Rows that share memory with it do not come along."""
    row = {"a": 1, "t": "x"}
    values = {
        "list": [[row], None, [row, None], []],
        "map": [[("k", row)], None, [("k", None)], []],
        "list in a struct": [{"l": [row]}, None, {"l": [None]}, {"l": []}],
    }[kind]
    table = made("cow", "id bigint")
    table.alter.columns().add("x", KINDS[kind]).commit()
    whole = pa.table({"id": range(4), "x": pa.array(values, KINDS[kind])})
    table.append(whole.slice(1, 2))
    found = {row["id"]: row["x"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {1: values[1], 2: values[2]}
