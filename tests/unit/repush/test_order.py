"""A repush puts rows in the order that the table is to have, and loses none of them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import OptionError, SchemaError, Table
from plait.model.order import KEY_ORDER, NO_ORDER, Order
from tests.support import build
from tests.support.repush_steps import (
    FIRST,
    again,
    content,
    disturbed,
    killed,
    make,
    nothing_is_left,
    rows,
)

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


def repush(table: Table) -> object:
    return table.layout.repush(buckets=3, sort_by=["p", "v"], rows_per_task=4)


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


@pytest.mark.long(1)
@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_repush_that_sorts_is_finished_by_the_same_call_after_a_kill(table_type: str) -> None:
    """INV-04, INV-06: and nothing is lost or left."""
    for nth in range(8, 600, 11):
        table = make(table_type=table_type)
        came = killed(table, nth, repush)
        assert content(again(table)) == FIRST
        repush(again(table))
        assert content(again(table)) == FIRST
        assert orders(again(table)) == {Order(("p", "v"), "sort").id}
        nothing_is_left(table)
        if not came:
            return
    pytest.fail("the repush has no end")


@pytest.mark.slow
def test_a_repush_that_sorts_beside_a_writer_and_another_repush_follows_the_writer() -> None:
    def both(other: Table, phase: str) -> None:
        other.upsert(rows(3, 20, v=7))
        repush(other)

    expected = sorted([*(row for row in FIRST if row[0] != 3), (3, "x", 7), (20, "x", 7)])
    for _table, client, _ in disturbed(make, both, step=3):
        repush(client)
        if content(again(client)) != FIRST:
            assert content(again(client)) == expected
        nothing_is_left(client)


@pytest.mark.parametrize(
    "wanted",
    [
        {"sort_by": "nothing"},
        {"sort_by": ["p", "p"]},
        {"sort_by": "p", "properties": {"cluster.by": "v"}},
        {"sort_by": "p", "properties": {"cluster.kind": "zorder"}},
    ],
)
def test_an_order_that_the_table_cannot_have_is_refused_before_anything_is_written(
    wanted: dict[str, object],
) -> None:
    table = make()
    with pytest.raises((OptionError, SchemaError)):
        table.layout.repush(**wanted)  # type: ignore[arg-type]  # wrong on purpose
    assert table.version == 4
