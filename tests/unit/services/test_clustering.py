"""Clustering changes no row, skips files afterwards, and no writer notices it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from plait import Table
from plait.errors import OptionError
from tests.support import build
from tests.support.protocol import beside

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.float64()), ("day", pa.string())])
ROWS = 4_000
WRITES: dict[str, Callable[[Table], object]] = {
    "delete": lambda t: t.delete(where="x < 400"),
    "update": lambda t: t.update({"day": "'changed'"}, where="y > 0.9"),
    "overwrite where": lambda t: t.overwrite(rows(1, day="n").slice(0, 3), where="day = 'n'"),
    "append": lambda t: t.append(rows(3, day="m").slice(0, 5)),
}


def rows(seed: int, *, day: str = "a") -> pa.Table:
    chance = np.random.default_rng(seed)
    columns = [chance.permutation(ROWS), chance.random(ROWS), [day] * ROWS]
    return pa.table(columns, schema=SCHEMA)


@cache
def _made(table_type: str) -> Table:
    table = build.make(
        SCHEMA,
        record_key=(),
        table_type=table_type,
        properties={"file.size.target": "4KiB", "write.buffer.size": "4MiB"},
    )
    whole = rows(0)
    for start in range(0, ROWS, 1_000):
        table.append(whole.slice(start, 1_000))
    return table


def make(table_type: str = "mor", **properties: object) -> Table:
    """Give a table of four files of its own."""
    table = build.copy_of(_made(table_type))
    if properties:
        table.alter.set(properties)
    return table


def content(table: Table) -> pa.Table:
    order = [("x", "ascending"), ("y", "ascending"), ("day", "ascending")]
    return table.scan().to_arrow().sort_by(order)


def files(table: Table, where: str) -> int:
    from plait.read.plan import plan_scan

    return int(plan_scan(table._handle.cache.snapshot(), where=where).files.num_rows)


@pytest.mark.parametrize("kind", ["sort", "zorder", "hilbert"])
def test_clustering_changes_no_row_and_boxes_meet_few_files(kind: str) -> None:
    """INV-14, INV-04: of every version; predicates on the columns skip files."""
    table = make()
    now, version = content(table), table.version
    report = table.maintenance.cluster(order_by=["x", "y"], kind=kind)
    assert len(report.commits) == 1
    assert content(table) == now
    assert table.scan(version=version).to_arrow().num_rows == ROWS
    assert table.changes(since=version).count()["insert"] == 0
    every = files(table, "x >= 0")
    assert every > 6
    assert files(table, "x < 200") <= every // 2
    if kind != "sort":
        assert files(table, "x < 400 AND y < 0.1") <= every // 3
    assert not table.check.verify().problems
    assert not table.check.verify(history=True).problems


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_writer_goes_on_over_a_clustering(write: str, table_type: str) -> None:
    """INV-14, INV-15: rows are followed into several targets, in any order."""
    plain, table = make(table_type), make(table_type)
    WRITES[write](plain)
    writer = beside(table, "publish", lambda: table.maintenance.cluster(order_by=["x", "y"]))
    assert WRITES[write](writer).rebased == 0  # type: ignore[attr-defined]
    assert content(table) == content(plain)
    assert not table.check.verify().problems
    assert not table.check.verify(history=True).problems


@pytest.mark.parametrize("write", WRITES)
def test_a_clustering_goes_on_over_a_writer(write: str) -> None:
    """INV-14, INV-15: it copies nothing again."""
    plain, table = make(), make()
    WRITES[write](plain)
    report = beside(table, "publish", lambda: WRITES[write](table)).maintenance.cluster(
        order_by=["y"], kind="sort"
    )
    assert [each.rebased for each in report.commits] == [0]
    assert table.inspect.history()[0].operation == "cluster"
    assert content(table) == content(plain)
    assert not table.check.verify().problems


def test_a_target_of_which_every_row_is_gone_is_left_out() -> None:
    """INV-14: and whoever hides its rows once more does no harm."""
    table = make()
    clustering = beside(table, "publish", lambda: table.delete(where="x < 2000"))
    clustering.maintenance.cluster(order_by="x", kind="sort")
    assert table.scan().count() == ROWS // 2
    every = table._handle.cache.snapshot().files
    assert all(
        m < r for m, r in zip(*(every[n].to_pylist() for n in ("masked", "rows")), strict=True)
    )
    assert not table.check.verify().problems


def test_a_compaction_and_a_clustering_at_once_harm_nobody() -> None:
    """And a partition is divided by the task size."""
    table = make(**{"compact.small.files": 2})
    now = content(table)
    beside(table, "publish", lambda: table.maintenance.compact(full=True)).maintenance.cluster(
        order_by=["x", "y"]
    )
    assert content(table) == now
    assert not table.check.verify().problems
    table.alter.set({"services.task.size": "40KiB"})
    plan = table.maintenance.cluster(order_by="x", kind="sort", dry_run=True)
    assert len(plan.tasks) > 1
    assert len(table.maintenance.cluster(plan).commits) == len(plan.tasks)
    assert content(table) == now


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [(["nobody"], "sort", "nobody"), (["x"], "spiral", "spiral"), ([], "sort", "column")],
)
def test_what_is_no_order_is_refused_before_anything_is_written(
    columns: list[str], kind: str, message: str
) -> None:
    table = make()
    with pytest.raises(OptionError, match=message):
        table.maintenance.cluster(order_by=columns, kind=kind)
    assert table.version == 4


def test_a_column_may_have_the_name_of_the_one_that_sorts() -> None:
    """INV-14: runs on the local disk have a column more, which is told by its position."""
    table = build.make("place bigint, x bigint", record_key=())
    for start in (0, 100):
        ids = list(range(start, start + 100))
        table.append(pa.table({"place": ids, "x": [-id_ for id_ in ids]}))
    table.maintenance.cluster(order_by=["x"], kind="sort")
    assert table.scan().to_arrow().to_pylist() == [
        {"place": id_, "x": -id_} for id_ in range(199, -1, -1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sort", "hilbert"])
def test_clustered_files_are_of_the_target_size_however_small_the_buffer_is(kind: str) -> None:
    """INV-14: else a compaction would call them small, and `optimize` would never be done."""
    table = build.make(
        "x bigint, y bigint, text string",
        record_key=(),
        properties={
            "file.size.target": "32KiB",
            "write.buffer.size": "256KiB",
            "cluster.by": "x, y",
            "cluster.kind": kind,
        },
    )
    text = "the same long text in each row, which takes next to nothing in a file " * 4
    chance = np.random.default_rng(5)
    for _ in range(8):
        columns = {name: chance.permutation(3_000) for name in ("x", "y")}
        table.append(pa.table({**columns, "text": [text] * 3_000}))
    before = table.scan().to_arrow().sort_by([("x", "ascending"), ("y", "ascending")])
    reports = [table.maintenance.optimize() for _ in range(4)]
    assert not reports[0].idle
    assert reports[-1].compaction is not None
    assert reports[-1].compaction.commits == ()
    assert reports[-1].clustering is not None
    assert reports[-1].clustering.commits == ()
    sizes = table.inspect.files()["bytes"].to_pylist()
    assert len(sizes) <= 2 * sum(sizes) // (32 << 10)
    after = table.scan().to_arrow().sort_by([("x", "ascending"), ("y", "ascending")])
    assert after == before
    assert not table.check.verify().problems
