"""DuckDB reads every published version (INV-17); the older one, whose extensions are packages."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.interop.publication import newest_metadata
from tests.integration.interop.lives import PUBLISHED, held, make, values
from tests.services.engines import DuckDB
from tests.support import build
from tests.support.engines import comparable

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Give a table of many files with hidden rows, and a plain file with its rows."""
    place_of = tmp_path_factory.mktemp("bounds")
    table = make(uri=place_of / "t", table_type="mor", buckets=8, properties=PUBLISHED)
    for part in range(6):
        table.append(values(range(part * 200, part * 200 + 200), part))
    table.delete(where="id > 1000")
    pq.write_table(table.scan().to_arrow(), place_of / "rows.parquet")
    return f"{place_of}/t", f"{place_of}/rows.parquet"


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_version_is_read_alike_by_duckdb(tmp_path: Path, duckdb: DuckDB, kind: str) -> None:
    table = make(uri=tmp_path / "t", table_type=kind, properties=PUBLISHED)
    table.upsert(values(range(10_000), 1))
    table.upsert(values(range(0, 10_000, 2), 2))  # several vectors in one file
    table.upsert(values(range(1, 10_000, 3), 3))
    table.delete(where="whole < 0")
    table.maintenance.compact(full=True)
    table.versions.restore(version=2)
    newest = table.upsert(values(range(9_990, 10_050), 4)).version
    place_of = build.uri_of(table).removeprefix("file://")
    for version in range(newest + 1):
        sql = f"SELECT * FROM delta_scan('{place_of}', version = {version})"
        assert comparable(duckdb.query(sql)) == held(table, version), version


@pytest.mark.parametrize(
    ("kind", "deletes"), [("cow", "positions"), ("mor", "positions"), ("mor", "vectors")]
)
def test_every_version_is_read_alike_as_iceberg(
    tmp_path: Path, duckdb: DuckDB, kind: str, deletes: str
) -> None:
    """Of two vectors in one Puffin file, DuckDB would apply one to the other's data file."""
    properties = {"publish": "iceberg", "publish.iceberg.deletes": deletes}
    table = make(uri=tmp_path / "t", table_type=kind, properties=properties)
    table.upsert(values(range(12_000), 1))
    table.upsert(values(range(0, 12_000, 2), 2))
    table.upsert(values(range(1, 12_000, 3), 3))
    table.alter.columns().rename("text", "words").widen("whole", "bigint").commit()
    table.delete(where="whole < 0")
    table.maintenance.publish()
    found = newest_metadata(table._handle)
    assert found is not None
    for snapshot in found[1]["snapshots"]:
        version = snapshot["snapshot-id"]
        sql = f"SELECT * FROM iceberg_scan('{found[0]}', snapshot_from_id = {version})"
        assert comparable(duckdb.query(sql)) == held(table, version), version
    place_of = build.uri_of(table).removeprefix("file://")
    counted = duckdb.query(f"SELECT count(*) AS n FROM iceberg_scan('{place_of}')")
    assert counted["n"].to_pylist() == [table.scan().count()]


@pytest.mark.parametrize(
    "where",
    [
        "id = 77",
        "id BETWEEN 500 AND 510",
        "whole > 2000000000",
        "text LIKE 'éé%'",
        "text > 'é'",
        "real < 2",
        "single = CAST(0.1 AS FLOAT)",
        "money >= 9000000.01",
        "\"at\" > TIMESTAMPTZ '2026-03-01 00:00:00.000001+00'",
        "local <= TIMESTAMP '2026-01-08 00:00:00.000001'",
        "day < DATE '1920-05-05'",
        "tiny IS NULL",
        "flag",
    ],
)
def test_bounds_skip_no_row(read: tuple[str, str], duckdb: DuckDB, where: str) -> None:
    place_of, rows = read
    found = duckdb.query(f"SELECT id FROM delta_scan('{place_of}') WHERE {where}")
    wanted = duckdb.query(f"SELECT id FROM read_parquet('{rows}') WHERE {where}")
    assert sorted(found["id"].to_pylist()) == sorted(wanted["id"].to_pylist())
    assert len(found)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_widened_and_renamed_columns_are_read_alike(
    tmp_path: Path, duckdb: DuckDB, kind: str
) -> None:
    ddl = "id bigint, a int, b float, c decimal(9,2), d date, e struct<x: smallint>"
    properties = {**PUBLISHED, "checkpoint.interval": 2}
    table = build.make(ddl, uri=tmp_path / "t", table_type=kind, properties=properties)

    def given(*ids: int) -> pa.Table:
        found = [
            {
                "id": key,
                "a": key,
                "b": key / 10,
                "c": Decimal(key) / 100,
                "d": dt.date(2026, 1, 1) + dt.timedelta(days=key),
                "e": {"x": key},
            }
            for key in ids
        ]
        names = table.scan().schema.names
        first = pa.Table.from_pylist(found)
        return first.rename_columns(names).cast(table.scan().schema)

    table.upsert(given(*range(40)))
    change = table.alter.columns().widen("a", "bigint").widen("b", "double")
    change.widen("c", "decimal(12,4)").widen("e.x", "int").commit()
    table.upsert(given(*range(30, 60)))
    table.alter.columns().widen("d", "timestamp_ntz").rename("a", "aa").commit()
    table.upsert(given(*range(50, 70)))
    table.delete(where="id < 3")
    newest = table.versions.restore(version=1).version
    for version in range(newest + 1):
        sql = f"SELECT * FROM delta_scan('{tmp_path}/t', version = {version})"
        assert comparable(duckdb.query(sql)) == held(table, version), version
    for where, column in (("b = CAST(0.7 AS FLOAT)", "b"), ("d >= TIMESTAMP '2026-02-01'", "d")):
        sql = f"SELECT id FROM delta_scan('{tmp_path}/t', version = {newest - 1}) WHERE {where}"
        whole = table.scan(version=newest - 1).to_arrow()
        pq.write_table(whole, tmp_path / "whole.parquet")
        wanted = f"SELECT id FROM read_parquet('{tmp_path}/whole.parquet') WHERE {where}"
        found = sorted(duckdb.query(sql)["id"].to_pylist())
        assert found == sorted(duckdb.query(wanted)["id"].to_pylist()), column
        assert found
