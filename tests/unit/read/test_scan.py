"""Scans: every row that is wanted, none that is hidden, in bounded memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait.errors import (
    CorruptMetadataError,
    MissingDependencyError,
    PredicateError,
    SchemaMismatchError,
)
from plait.read import scan as scan_module
from plait.read.scan import DEPTH, WIDTH_MAX
from tests.unit.read.conftest import Build, Built

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("x", pa.float64()), ("tag", pa.string())]
)


def rows(count: int, start: int = 0) -> pa.Table:
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "day": [f"d{value % 3}" for value in ids],
            "x": [None if value % 5 == 0 else value / 2 for value in ids],
            "tag": [f"tag-{value % 7}" for value in ids],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(build: Build) -> Built:
    made = build(SCHEMA, key=["id"], partition_by=["day"], buckets=4, group_rows=16)
    made.add(rows(600))
    return made


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


def test_scan_gives_every_row_with_every_value(table: Built) -> None:
    found = table.scan().to_arrow().sort_by("id")
    assert found.schema.equals(SCHEMA)
    assert found.schema.field("id").metadata is None
    assert found.equals(rows(600))


def test_scan_gives_the_columns_asked_for_in_that_order(table: Built) -> None:
    found = table.scan(columns=["tag", "id"]).to_arrow()
    assert found.column_names == ["tag", "id"]
    assert ids(found) == list(range(600))
    assert table.scan(columns=[]).to_arrow().num_rows == 600


def test_what_the_table_has_not_is_refused_before_anything_is_read(table: Built) -> None:
    with pytest.raises(SchemaMismatchError, match="did you mean 'tag'") as caught:
        table.scan(columns=["tga"])
    assert caught.value.column == "tga"
    with pytest.raises(SchemaMismatchError):
        table.scan(columns=["id", "id"])
    with pytest.raises(PredicateError):
        table.scan("nope = 1")


PREDICATES = [
    ("id = 17", pc.field("id") == 17),
    ("id IN (3, 599, 1000)", pc.field("id").isin([3, 599, 1000])),
    ("id >= 590", pc.field("id") >= 590),
    ("day = 'd1' AND id < 100", (pc.field("day") == "d1") & (pc.field("id") < 100)),
    ("day = 'd1' OR id = 2", (pc.field("day") == "d1") | (pc.field("id") == 2)),
    ("day = 'nowhere'", pc.field("day") == "nowhere"),
    ("x IS NULL", pc.field("x").is_null()),
    ("NOT (x > 10)", pc.field("x") <= 10),
    ("tag LIKE 'tag-3%'", pc.field("tag") == "tag-3"),
    ("x > 290 AND tag = 'tag-1'", (pc.field("x") > 290) & (pc.field("tag") == "tag-1")),
    ("false", pc.scalar(False)),
    ("true", pc.scalar(True)),
]  # fmt: skip


@pytest.mark.long(16)
@pytest.mark.parametrize(("text", "expression"), PREDICATES, ids=[text for text, _ in PREDICATES])
@pytest.mark.parametrize("columns", [None, ["tag"], ["id"], ["day", "x"]], ids=str)
def test_predicate_as_text_and_as_expression_selects_exactly_the_rows(
    table: Built, text: str, expression: pc.Expression, columns: Sequence[str] | None
) -> None:
    expected = rows(600).filter(expression)
    names = list(columns or SCHEMA.names)
    for where in (text, expression):
        scan = table.scan(where, columns)
        found = scan.to_arrow()
        assert found.column_names == names
        order = [(name, "ascending") for name in names]
        assert found.sort_by(order).equals(expected.select(names).sort_by(order))
        assert scan.count() == expected.num_rows


def test_hidden_rows_are_never_given_nor_counted(build: Build) -> None:
    table = build(SCHEMA, group_rows=16)
    table.add(rows(100), masked=[0, 15, 16, 17, *range(40, 64), 99])
    expected = [1, *range(1, 15), *range(18, 40), *range(64, 99)][1:]
    assert ids(table.scan().to_arrow()) == expected
    assert table.scan().count() == len(expected)
    assert ids(table.scan("id < 20").to_arrow()) == [*range(1, 15), 18, 19]
    assert ids(table.scan("id = 16").to_arrow()) == []
    assert table.scan("id >= 0", ["tag"]).to_arrow().num_rows == len(expected)


def test_predicate_is_never_evaluated_on_hidden_rows(build: Build) -> None:
    """A row that was deleted because a computation fails on it must not fail scans for ever."""
    table = build(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.add(pa.table({"a": [4, 1, 9], "b": [2, 0, 3]}), masked=[1])
    where = pc.divide(pc.field("a"), pc.field("b")) == 2  # an error where b is 0
    assert table.scan(where).to_arrow().to_pylist() == [{"a": 4, "b": 2}]


@pytest.mark.parametrize("hidden", [0, 5], ids=["no file", "a file of hidden rows"])
def test_empty_table_gives_no_rows_with_the_right_schema(build: Build, hidden: int) -> None:
    table = build(SCHEMA)
    if hidden:
        table.add(rows(hidden), masked=range(hidden))
    assert table.scan("id = 1").to_arrow().schema.equals(SCHEMA)
    assert table.scan().to_reader().read_all().num_rows == 0
    assert table.scan().count() == table.scan("id > 0").count() == 0


def test_nan_is_greater_than_every_number_whatever_the_bounds_say(build: Build) -> None:
    table = build(pa.schema([("x", pa.float64())]))
    table.add(pa.table({"x": [1.0, math.nan, 2.0]}))
    assert table.scan("x > 100").count() == 1
    assert table.scan("x < 100").count() == 2


def test_large_scan_reads_ahead_and_keeps_the_order_of_its_files(
    table: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = table.scan().to_arrow()
    monkeypatch.setattr(scan_module, "_GROUP_ROWS", 50)
    assert table.scan().to_arrow().equals(expected)
    assert table.scan("id >= 300").count() == 300
    reader = table.scan().to_reader()
    assert reader.schema.equals(SCHEMA)
    assert reader.read_next_batch().num_rows > 0
    reader.close()


def test_scan_holds_few_batches_however_slow_the_consumer(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("v", pa.binary())])
    table = build(schema, group_rows=100)
    part = pa.table({"v": [b"%09d" % n * 1000 for n in range(1000)]}, schema=schema)
    for _ in range(12):
        table.add(part)
    monkeypatch.setattr(scan_module, "_GROUP_ROWS", 1000)
    before = pa.total_allocated_bytes()
    peak = 0
    for batch in table.scan().to_reader():
        assert batch.nbytes < 1_500_000
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert peak < WIDTH_MAX * (DEPTH + 3) * 1_500_000


def test_file_with_fewer_rows_than_declared_is_named(table: Built) -> None:
    for row in table.rows:
        row["rows"] = int(str(row["rows"])) + 1
    with pytest.raises(CorruptMetadataError, match="rows") as caught:
        table.scan().to_arrow()
    assert caught.value.path in {row["path"] for row in table.rows}


def test_error_of_a_file_is_raised_at_its_place_also_when_read_ahead(
    table: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "_GROUP_ROWS", 50)
    path = str(table.scan().plan.files["path"][6].as_py())
    Path(table.store.location(path)).unlink()
    with pytest.raises(CorruptMetadataError) as caught:
        table.scan().to_arrow()
    assert caught.value.path == path


def test_other_libraries_see_the_same_rows(table: Built) -> None:
    scan = table.scan("id < 10", ["id", "tag"])
    expected = scan.to_arrow().sort_by("id").to_pylist()
    assert scan.to_polars().sort("id").to_dicts() == expected
    assert pl.DataFrame(scan).sort("id").to_dicts() == expected
    assert scan.to_pandas().sort_values("id").to_dict("records") == expected
    relation = scan.to_duckdb(duckdb.connect())
    for _ in range(2):  # a relation can be executed more than once
        assert relation.order("id").fetchall() == [tuple(row.values()) for row in expected]


def test_missing_library_is_named_with_what_to_install(
    table: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingDependencyError, match="pip install") as caught:
        table.scan().to_polars()
    assert caught.value.library == "polars"


def test_scan_says_what_it_reads(table: Built) -> None:
    scan = table.scan("id = 1", ["tag"])
    assert scan.version == 7
    assert scan.schema.names == ["tag"]
    assert repr(scan) == "Scan(version=7, columns=['tag'], where='id = 1')"
