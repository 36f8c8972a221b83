"""A repush puts rows in the order that the table is to have, and loses none of them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Table
from plait.model.order import KEY_ORDER, NO_ORDER, Order
from tests.support import build

BY_X = Order(("x", "id"), "sort").id


def large(**how: object) -> Table:
    """Make a table whose rows lie in another order by ``x`` than by ``id``."""
    table = build.make("id bigint, x bigint", **{"buckets": 2, **how})
    table.append(build.rows(range(400), x=lambda n: n * 7919 % 400))
    table.append(build.rows(range(400, 500), x=lambda n: n % 50))
    table.delete(where="id between 20 and 30")
    return table


def orders(table: Table) -> set[int]:
    return set(
        table._handle.cache.refresh().snapshot(table._handle.store).files["order"].to_pylist()
    )


@pytest.mark.parametrize(
    "how",
    [{"table_type": "cow"}, {"table_type": "mor"}, {"record_key": (), "buckets": None}],
    ids=["cow", "mor", "unkeyed"],
)
def test_rows_lie_in_the_order_that_a_repush_was_told(how: dict[str, object]) -> None:
    """INV-04: each file says that it is in the order, and its rows are."""
    table = large(**how)
    before = table.scan().to_arrow().sort_by("id")
    report = table.layout.repush(sort_by=["x", "id"], rows_per_task=150)
    assert orders(table) == {BY_X}
    assert "sort" in report.seconds
    for path in table.inspect.files()["path"].to_pylist():
        with table._handle.store.filesystem().open_input_file(path) as file:
            found = pq.read_table(file).select(["x", "id"])
        assert found.equals(found.sort_by([("x", "ascending"), ("id", "ascending")]))
    assert table.scan().to_arrow().sort_by("id").equals(before)
    assert table.scan(where="x < 10").count() == len([x for x in before["x"].to_pylist() if x < 10])
    assert not table.check.verify(data=True).problems
    assert table.properties["cluster.by"] == "x,id"
    assert table.properties["cluster.kind"] == "sort"


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_merges_into_rows_in_an_order_of_columns_find_their_keys(table_type: str) -> None:
    """INV-08: a merge needs the order of keys, and makes it."""
    table = large(table_type=table_type)
    table.layout.repush(sort_by="x", buckets=3)
    expected = {row["id"]: row["x"] for row in table.scan().to_arrow().to_pylist()}
    table.upsert(pa.table({"id": [1, 250, 499, 900], "x": [-1, -2, -3, -4]}))
    table.delete(keys=pa.table({"id": [2, 3]}))
    expected.update({1: -1, 250: -2, 499: -3, 900: -4})
    del expected[2], expected[3]
    assert {r["id"]: r["x"] for r in table.scan().to_arrow().to_pylist()} == expected
    table.layout.repush(sort_by=())
    assert orders(table) <= {KEY_ORDER, NO_ORDER}
    assert {r["id"]: r["x"] for r in table.scan().to_arrow().to_pylist()} == expected


def test_a_repush_keeps_the_order_that_the_table_has() -> None:
    """Without it, scans would read every file until each bucket is clustered again."""
    table = large(properties={"cluster.by": "x,id", "cluster.kind": "sort"})
    table.maintenance.cluster()
    table.layout.repush(buckets=5)
    assert orders(table) == {BY_X}
