"""Scans that DuckDB reads by its own reader: the rows of the scan, whatever the files are like."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from plait import Table
from plait.read import native
from tests.integration.interop.lives import SCHEMA, values
from tests.support.build import LITTLE, make, rows
from tests.support.engines import comparable

TYPES = ["cow", "mor"]


def told(table: Table, **scan: Any) -> tuple[list[str], list[str], str]:
    """Return the rows of a scan by DuckDB and by Plait, and how DuckDB reads them."""
    asked = table.scan(**scan)
    with duckdb.connect() as connection:
        relation = asked.to_duckdb(connection)
        found = relation.to_arrow_table()
        plan = relation.explain()
    assert found.schema.names == asked.schema.names
    return comparable(found), comparable(asked.to_arrow()), plan


def natively(plan: str) -> int:
    """Tell how many times the plan reads Parquet by itself."""
    return len(re.findall("READ_PARQUET|PARQUET_SCAN", plan.upper()))


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


def test_every_version_has_the_rows_of_the_scan(lived: Table) -> None:
    """INV-04: no row twice, none that is hidden."""
    for version in range(lived.version + 1):
        found, expected, _ = told(lived, version=version)
        assert found == expected, version


def test_files_as_the_table_has_them_are_read_by_duckdb_itself(tmp_path: Path) -> None:
    for kind in TYPES:
        table = make(SCHEMA, uri=tmp_path / kind, buckets=2, table_type=kind)
        table.upsert(values(range(300), 1))
        table.delete(where="id < 20")
        found, expected, plan = told(table)
        assert found == expected
        assert natively(plan) == 1, plan
        assert ("ANTI" in plan) == (kind == "mor")
        _, _, narrow = told(table, columns=["text", "id"])
        assert natively(narrow) == 1


def test_columns_that_changed_are_read_by_plait(lived: Table) -> None:
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


def test_files_that_have_columns_which_were_dropped_stand_beside_others(tmp_path: Path) -> None:
    table = make("id bigint, a bigint, b bigint", uri=tmp_path / "t", partition_by="a")
    table.upsert(rows(range(9), a=1, b=2))
    table.alter.columns().drop("b").commit()
    table.upsert(rows(range(10, 19), a=2))
    table.alter.columns().add("b", "string").commit()
    for columns in (None, ["id", "a"], ["a"]):
        found, expected, plan = told(table, columns=columns)
        assert found == expected, columns
        assert natively(plan) == (columns is not None)


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


def test_a_predicate_or_a_limit_of_the_scan_is_kept(lived: Table) -> None:
    found, expected, plan = told(lived, where="tiny > 10")
    assert (found, natively(plan)) == (expected, 0)
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


def test_columns_named_as_duckdb_names_places_are_read_by_plait(tmp_path: Path) -> None:
    table = make("id bigint, file_row_number bigint", uri=tmp_path / "t", table_type="mor")
    table.upsert(rows(range(9), file_row_number=5))
    table.delete(where="id = 0")
    for columns in (None, ["id"]):
        found, expected, plan = told(table, columns=columns)
        assert (found, natively(plan)) == (expected, 0)


def test_many_files_or_hidden_rows_are_read_by_plait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(uri=tmp_path / "t", table_type="mor", buckets=2)
    table.upsert(rows(range(100), v=0))
    table.delete(where="id < 30")
    monkeypatch.setattr(native, "HIDDEN_MAX", 16)
    found, expected, _ = told(table)
    assert found == expected
    monkeypatch.setattr(native, "FILES_MAX", 1)
    found, expected, plan = told(table)
    assert (found, natively(plan)) == (expected, 0)


def test_a_duckdb_that_may_not_open_files_gets_them_from_plait(tmp_path: Path) -> None:
    table = make(uri=tmp_path / "t", upsert=rows(range(9), v=0))
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        assert len(table.scan().to_duckdb(connection).fetchall()) == 9
