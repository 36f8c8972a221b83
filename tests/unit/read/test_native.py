"""Scans that DuckDB and Polars read by their own readers have the rows of the scan."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import plait.polars
from plait import Scan, Table
from plait.read import native
from tests.integration.interop.lives import SCHEMA, values
from tests.support.build import LITTLE, make, rows
from tests.support.engines import comparable

TYPES = ["cow", "mor"]


def told_by_duckdb(asked: Scan) -> tuple[pa.Table, str]:
    """Return the rows of a scan by DuckDB, and how it reads them."""
    with duckdb.connect() as connection:
        relation = asked.to_duckdb(connection)
        return relation.to_arrow_table(), relation.explain()


def told_by_polars(asked: Scan) -> tuple[pa.Table, str]:
    """Return the rows of a scan by Polars, and how it reads them; by both of its engines."""
    lazy = plait.polars.scan(asked)
    found = lazy.collect(engine="streaming")
    assert_frame_equal(found, lazy.collect(engine="in-memory"), check_row_order=False)
    assert_frame_equal(found, asked.to_polars(), check_row_order=False)
    assert lazy.collect_schema() == found.schema
    return found.to_arrow(), lazy.explain()


Told = Callable[..., tuple[list[str], list[str], str]]


@pytest.fixture(params=[told_by_duckdb, told_by_polars])
def told(request: pytest.FixtureRequest) -> Told:
    """Return the rows of a scan by another library and by Plait, and how the former reads them."""

    def tell(table: Table, **scan: Any) -> tuple[list[str], list[str], str]:
        asked = table.scan(**scan)
        found, plan = request.param(asked)
        assert found.schema.names == asked.schema.names
        return comparable(found), comparable(asked.to_arrow()), plan

    return tell


def natively(plan: str) -> int:
    """Tell how many times the plan reads Parquet by itself."""
    return len(re.findall("READ_PARQUET|PARQUET_SCAN|Parquet SCAN", plan))


@pytest.fixture(params=TYPES)
def lived(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table of every type, in a directory with awkward characters, whose rows were changed."""
    table = make(
        SCHEMA,
        uri=tmp_path / "it's [a] *? {b}"[: 9 if request.param == "cow" else None],
        buckets=2,
        table_type=request.param,
    )
    table.upsert(values(range(300), 1))
    table.upsert(values(range(100, 140), 2))
    table.delete(where="id < 20 OR id = 299")
    table.upsert(values(range(290, 310), 3))
    return table


def test_every_version_has_the_rows_of_the_scan(lived: Table, told: Told) -> None:
    """INV-04: no row twice, none that is hidden."""
    for version in range(lived.version + 1):
        found, expected, _ = told(lived, version=version)
        assert found == expected, version


def test_files_as_the_table_has_them_are_read_by_the_library_itself(
    tmp_path: Path, told: Told
) -> None:
    for kind in TYPES:
        table = make(SCHEMA, uri=tmp_path / kind, buckets=2, table_type=kind)
        table.upsert(values(range(300), 1))
        table.delete(where="id < 20")
        found, expected, plan = told(table)
        assert found == expected
        assert natively(plan) == 1, plan
        hiding = re.search("ANTI|deletion-vector", plan)
        assert (hiding is not None) == (kind == "mor")
        _, _, narrow = told(table, columns=["text", "id"])
        assert natively(narrow) == 1


def test_columns_that_changed_are_read_by_plait(lived: Table, told: Told) -> None:
    """Names, types and defaults of the version, in files from before and from after."""
    alter = lived.alter.columns().rename("text", "said").add("n", "bigint", default=7)
    alter.widen("whole", "bigint").drop("flag").commit()
    found, expected, plan = told(lived)
    assert (found, natively(plan)) == (expected, 0)
    fresh = lived.scan(where="id > 250").to_arrow()
    lived.upsert(fresh)
    lived.alter.columns().add("pair.z", "int").add("flag", "string").commit()
    found, expected, _ = told(lived)
    assert found == expected
    found, expected, plan = told(lived, columns=["id", "real", "money"])
    assert found == expected


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("kind", TYPES)
def test_files_that_have_columns_which_were_dropped_stand_beside_others(
    tmp_path: Path, told: Told, kind: str, before: int, after: int
) -> None:
    """Whichever comes first: a library may take the columns of the first file for all."""
    columns = "id bigint, a bigint, b bigint"
    table = make(columns, uri=tmp_path / "t", partition_by="a", table_type=kind)
    table.upsert(rows(range(9), a=before, b=2))
    table.delete(where="id = 3")
    table.alter.columns().drop("b").commit()
    table.upsert(rows(range(10, 19), a=after))
    table.alter.columns().add("b", "string").commit()
    for columns in (None, ["id", "a"], ["a"]):
        found, expected, plan = told(table, columns=columns)
        assert found == expected, columns
        assert (natively(plan) > 0) == (columns is not None)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_predicate_of_the_query_sees_visible_rows_alone(tmp_path: Path, table_type: str) -> None:
    table = make(uri=tmp_path / "t", table_type=table_type, buckets=3)
    table.upsert(rows(range(5_000), v=lambda key: key % 100))
    table.delete(where="v = 7")
    table.upsert(rows(range(0, 5_000, 11), v=7))
    scanned = table.scan()
    with duckdb.connect() as connection:
        scanned.to_duckdb(connection).create_view("trips")
        for query in ("v = 7", "id BETWEEN 40 AND 90 AND v <> 7", "id % 11 = 0", "v IS NULL"):
            asked = connection.execute(f"SELECT id FROM trips WHERE {query} ORDER BY id").fetchall()
            with duckdb.connect() as other:
                other.register("rows", scanned.to_arrow())
                wanted = other.execute(f"SELECT id FROM rows WHERE {query} ORDER BY id").fetchall()
            assert asked == wanted, query


def test_a_predicate_of_the_scan_is_kept(lived: Table, told: Told) -> None:
    found, expected, plan = told(lived, where="tiny > 10")
    assert (found, natively(plan)) == (expected, 0)


def test_a_limit_of_the_scan_is_kept(lived: Table) -> None:
    with duckdb.connect() as connection:
        assert len(lived.scan(limit=5).to_duckdb(connection).fetchall()) == 5


def test_files_are_kept_as_long_as_a_relation_or_a_view(tmp_path: Path) -> None:
    """INV-05: also where every file is read by DuckDB."""
    table = make(uri=tmp_path / "t", properties=LITTLE)
    table.upsert(rows(range(20), v=0))
    with duckdb.connect() as connection:
        table.scan().to_duckdb(connection).create_view("kept")
        table.upsert(rows(range(20), v=1))
        table.maintenance.compact(full=True)
        table.maintenance.clean()
        assert connection.execute("SELECT DISTINCT v FROM kept").fetchall() == [(0,)]


def test_columns_named_as_duckdb_names_places_are_read_by_plait(tmp_path: Path, told: Told) -> None:
    table = make("id bigint, file_row_number bigint", uri=tmp_path / "t", table_type="mor")
    table.upsert(rows(range(9), file_row_number=5))
    table.delete(where="id = 0")
    for columns in (None, ["id"]):
        found, expected, plan = told(table, columns=columns)
        assert (found, natively(plan)) == (expected, 0)


def test_many_files_or_hidden_rows_are_read_by_plait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    table = make(uri=tmp_path / "t", table_type="mor", buckets=2)
    table.upsert(rows(range(100), v=0))
    table.delete(where="id < 30")
    for limit, value in (("HIDDEN_MAX", 16), ("MASKED_ROWS_MAX", 60)):
        with monkeypatch.context() as patched:
            patched.setattr(native, limit, value)
            found, expected, plan = told(table)
        assert (found, natively(plan)) == (expected, 1)
    monkeypatch.setattr(native, "FILES_MAX", 1)
    found, expected, plan = told(table)
    assert (found, natively(plan)) == (expected, 0)


def test_a_duckdb_that_may_not_open_files_gets_them_from_plait(tmp_path: Path) -> None:
    table = make(uri=tmp_path / "t", upsert=rows(range(9), v=0))
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        assert len(table.scan().to_duckdb(connection).fetchall()) == 9


@pytest.mark.parametrize("table_type", TYPES)
def test_polars_pushes_its_work_into_the_files(tmp_path: Path, table_type: str) -> None:
    table = make(SCHEMA, uri=tmp_path / "t", table_type=table_type, buckets=2)
    table.upsert(values(range(300), 1))
    table.delete(where="id < 20")
    lazy, frame = plait.polars.scan(table), table.scan().to_polars()
    few = lazy.filter(pl.col("id") > 270).select("id", "money")
    assert "PROJECT 2/16 COLUMNS" in few.explain()
    assert "SELECTION" in few.explain()
    assert "ESTIMATED ROWS" in few.explain(), "joins would not be ordered by size"
    assert_frame_equal(
        few.collect(), frame.filter(pl.col("id") > 270).select("id", "money"), check_row_order=False
    )
    assert lazy.head(7).collect().height == 7
    assert lazy.tail(7).collect().height == 7
    assert lazy.slice(270).collect().height == 10
    assert lazy.with_row_index().select("index").collect()["index"].to_list() == list(range(280))
    assert lazy.select(pl.len()).collect().item() == 280
    assert lazy.head(3).filter(pl.col("id") >= 0).collect().height == 3
    assert lazy.select(pl.col("id").min(), pl.col("id").max().alias("b")).collect().row(0) == (
        *(20, 299),
    )
    joined = lazy.join(lazy.select("id", again="money"), on="id").collect()
    assert joined.height == 280


@pytest.mark.parametrize("table_type", TYPES)
def test_a_frame_of_polars_keeps_its_files(tmp_path: Path, table_type: str) -> None:
    """INV-05: also where Polars reads every file; and so do the frames that were made of it."""
    table = make(uri=tmp_path / "t", table_type=table_type, properties=LITTLE)
    table.upsert(rows(range(20), v=0))
    table.delete(where="id = 3")
    lazy = plait.polars.scan(table)
    made = lazy.filter(pl.col("id") > 3).select("v")
    table.upsert(rows(range(20), v=1))
    table.maintenance.compact(full=True)
    table.maintenance.clean()
    assert lazy.collect()["v"].to_list() == [0] * 19
    del lazy
    gc.collect()
    assert len(table.inspect.readers()) == 1
    assert made.collect().height == 16
    del made
    gc.collect()
    assert table.inspect.readers() == ()


def test_columns_may_have_any_names(tmp_path: Path, told: Told) -> None:
    """Polars takes some texts for patterns of names, and this module adds a column of its own."""
    names = ["id", "^.*$", "a.b", "_plait", 'quo"te', "plait_row", "*"]
    table = make(pa.schema([(n, pa.int64()) for n in names]), uri=tmp_path / "t", table_type="mor")
    table.upsert(pa.table({name: [1, 2, 3] for name in names}))
    table.delete(where="id = 2")
    for columns in (None, ["*", "_plait"], ["^.*$"], ["a.b", "id"]):
        found, expected, plan = told(table, columns=columns)
        assert (found, natively(plan)) == (expected, 1)


def test_a_polars_that_hides_no_rows_gets_them_from_plait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its argument for that is private: it may be gone, or do something else."""
    table = make(uri=tmp_path / "t", table_type="mor", buckets=2)
    table.upsert(rows(range(100), v=0))
    table.delete(where="id < 30")
    plain = pl.scan_parquet

    def gone(*places: Any, **options: Any) -> Any:
        if "_deletion_files" in options:
            raise TypeError("no such argument")
        return plain(*places, **options)

    def ignored(*places: Any, **options: Any) -> Any:
        options.pop("_deletion_files", None)
        return plain(*places, **options)

    for other in (gone, ignored):
        plait.polars._hides_rows.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(pl, "scan_parquet", other)
            assert plait.polars.scan(table).select(pl.len()).collect().item() == 70
    plait.polars._hides_rows.cache_clear()
    assert plait.polars._hides_rows()
