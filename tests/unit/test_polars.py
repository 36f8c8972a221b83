"""``plait.polars.scan``: a LazyFrame into which columns, predicates and limits are pushed."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import plait.polars
from plait import MissingDependencyError, OptionError, Table
from plait.expr.tree import TRUE, Predicate
from plait.polars import implied_by
from tests.support.build import LITTLE, make, rows, uri_of
from tests.support.opened import opened_files

TYPES = ["cow", "mor"]


def changed(table_type: str) -> Table:
    table = make("id bigint, v double, s string", table_type=table_type, buckets=4)
    table.upsert(rows(range(100), v=float, s=str))
    table.upsert(rows(range(0, 100, 3), v=-1.0, s="x"))
    table.delete(where="id < 10")
    table.alter.columns().rename("s", "text").add("n", "bigint", default=7).commit()
    return table


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the data files that are opened."""
    return opened_files(monkeypatch)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("table_type", TYPES)
def test_a_lazy_frame_has_the_rows_of_the_scan(table_type: str, engine: Any) -> None:
    """INV-04."""
    table = changed(table_type)
    frame = table.scan().to_polars()
    for source in (uri_of(table), table, table.scan()):
        lazy = plait.polars.scan(source)
        assert lazy.collect_schema() == frame.schema
        found = lazy.collect(engine=engine)
        assert_frame_equal(found, frame, check_row_order=False)
    lazy = plait.polars.scan(table)
    assert lazy.select(pl.len()).collect(engine=engine).item() == frame.height
    assert lazy.head(7).collect(engine=engine).height == 7
    few = lazy.filter(pl.col("id") > 50).head(7).collect(engine=engine)
    assert few.height == few.filter(pl.col("id") > 50).height == 7
    assert lazy.head(3).filter(pl.col("id") >= 0).collect(engine=engine).height == 3
    grouped = lazy.group_by("text").agg(pl.col("v").sum(), pl.col("n").max())
    expected = frame.group_by("text").agg(pl.col("v").sum(), pl.col("n").max())
    assert_frame_equal(grouped.collect(engine=engine), expected, check_row_order=False)
    joined = lazy.join(lazy.select("id", w="v"), on="id").collect(engine=engine)
    assert joined.height == frame.height


def test_columns_versions_and_scans_are_taken() -> None:
    table = changed("mor")
    assert plait.polars.scan(table, ["v", "id"]).collect().columns == ["v", "id"]
    assert plait.polars.scan(table, "v").collect().columns == ["v"]
    assert plait.polars.scan(table.scan(["id", "v"]), "v").collect().columns == ["v"]
    assert plait.polars.scan(table, version=1).collect().height == 100
    assert plait.polars.scan(table.scan(where="id < 12")).collect().height == 2
    with pytest.raises(OptionError) as caught:
        plait.polars.scan(table.scan(limit=2))
    assert caught.value.key == "limit"


@pytest.mark.parametrize(
    ("option", "value"),
    [("version", 0), ("as_of", "2026-01-01"), ("storage_options", {}), ("allow", "x")],
)
def test_an_option_that_does_not_apply_is_refused(option: str, value: Any) -> None:
    """Else a version would be read that is not the one that was asked for."""
    table = changed("cow")
    sources = [table.scan()] if option in ("version", "as_of") else [table.scan(), table]
    for source in sources:
        with pytest.raises(OptionError, match=option) as caught:
            plait.polars.scan(source, **{option: value})
        assert caught.value.key == option


@pytest.mark.parametrize("table_type", TYPES)
def test_a_predicate_opens_the_files_that_may_match_alone(
    table_type: str, paths: list[str]
) -> None:
    table = changed(table_type)
    lazy, every = plait.polars.scan(table), table.scan().plan.files_total
    paths.clear()
    assert lazy.filter(pl.col("id") == 12).select("v").collect().rows() == [(-1.0,)]
    assert 0 < len(set(paths)) <= every // 2
    paths.clear()
    assert lazy.filter(pl.col("v") > 1e6).collect().height == 0
    assert paths == []
    lazy.head(1).collect()
    assert len(paths) == 1


def test_what_is_not_understood_prunes_nothing() -> None:
    schema = changed("cow").schema
    for predicate in (
        pl.col("id").cast(pl.String) == "1",
        pl.col("id") == pl.col("n"),
        (pl.col("id") == 1) | pl.col("text").str.contains("x"),
        pl.col("v").is_nan(),
        pl.col("v").round() == 1,
        pl.lit(1) == 1,
        ~(pl.col("id") % 2 == 0),
        pl.col("nowhere") == 1,
    ):
        assert implied_by(predicate, schema) == TRUE, predicate
    long = pl.col("id") == 0
    for each in range(1_500):
        long = long | (pl.col("text") == str(each))
    assert implied_by(long, schema) == TRUE


def test_what_is_understood_may_prune(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars hands down a predicate in which columns and literals have their types."""
    told: list[Predicate] = []

    def noted(predicate: pl.Expr, schema: pa.Schema) -> Predicate:
        told.append(implied_by(predicate, schema))
        return told[-1]

    monkeypatch.setattr(plait.polars, "implied_by", noted)
    lazy = plait.polars.scan(changed("cow"))
    for predicate in (
        pl.col("id") > 3,
        pl.col("text").is_null(),
        pl.col("text").is_in(["x", "y"]),
        ~pl.col("id").is_in([1, 2]),
        pl.col("id").is_between(1, 5, closed="left"),
        (pl.col("id") == 1) & (pl.col("v").round() == 1),
    ):
        told.clear()
        lazy.filter(predicate).collect()
        assert told
        assert TRUE not in told, predicate


def test_a_lazy_frame_keeps_its_files_until_it_is_dropped() -> None:
    """INV-05: and so do the frames that were made of it."""
    table = make(properties=LITTLE)
    table.upsert(rows(range(20), v=0))
    lazy = plait.polars.scan(table)
    made = lazy.filter(pl.col("id") > 3)
    table.upsert(rows(range(20), v=1))
    table.maintenance.clean()
    assert lazy.collect()["v"].to_list() == [0] * 20
    del lazy
    gc.collect()
    assert len(table.inspect.readers()) == 1
    assert made.collect().height == 16
    del made
    gc.collect()
    assert table.inspect.readers() == ()


def test_the_module_imports_polars_only_when_it_is_called() -> None:
    code = "import sys, plait.polars; assert 'polars' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_polars_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingDependencyError) as caught:
        plait.polars.scan(table)
    assert caught.value.library == "polars"
