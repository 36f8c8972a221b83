"""Spark, DuckDB and pyiceberg read by name from ``tablectl serve-catalog``, and write nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError

from plait import Catalog
from plait.catalog.rest import IcebergRest
from plait.catalog.server import CatalogServer, Listening
from tests.integration.interop.lives import held, only_strays, values, version_of
from tests.services.engines import DuckDB, Engine, IcebergSpark
from tests.support import build
from tests.support.engines import comparable

NAMES = (
    "DROP TABLE {t}",
    "CREATE TABLE {c}.sales.new (a INT)",
    "CREATE SCHEMA {c}.new",
    "ALTER TABLE {t} ADD COLUMN theirs INT",
    "INSERT INTO {t} SELECT * FROM {t} LIMIT 1",
    "DELETE FROM {t} WHERE id < 9",
    "UPDATE {t} SET text = 'theirs' WHERE id < 9",
)
MERGE = "MERGE INTO {t} t USING (SELECT 1 AS id) s ON (t.id = s.id) WHEN MATCHED THEN DELETE"
BY_SPARK = (
    *NAMES,
    MERGE,
    "INSERT OVERWRITE {t} SELECT * FROM {t} LIMIT 1",
    "TRUNCATE TABLE {t}",
    "ALTER TABLE {t} RENAME TO {c}.sales.other",
    "ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled' = 'true')",
    "ALTER TABLE {t} CREATE TAG theirs",
    "CALL {c}.system.rewrite_data_files('sales.trips', options => map('rewrite-all', 'true'))",
    "CALL {c}.system.rollback_to_snapshot('sales.trips', 1)",
    "CALL {c}.system.expire_snapshots(table => 'sales.trips', retain_last => 1)",
    "CALL {c}.system.remove_orphan_files(table => 'sales.trips')",
    "DROP TABLE {t} PURGE",
)
BY_PYICEBERG: Mapping[str, Callable[[Any], object]] = {
    "append": lambda table: table.append(table.scan(limit=3).to_arrow()),
    "overwrite": lambda table: table.overwrite(table.scan(limit=3).to_arrow()),
    "delete": lambda table: table.delete("id < 5"),
    "expire": lambda table: table.maintenance.expire_snapshots().by_id(1).commit(),
}


@pytest.fixture
def served(lake: Catalog) -> Iterator[str]:
    """Serve the catalog; give its address."""
    with CatalogServer(IcebergRest(lake), Listening(port=0)) as server:
        yield server.url


def require_whole(catalog: Catalog, engine: Engine, name: str, travel: str) -> None:
    """Compare every version in an engine, before and after a commit."""
    trips = catalog.table("sales.trips")
    for step in range(2):
        newest = version_of(trips)
        assert comparable(engine.query(f"SELECT * FROM {name}")) == held(trips, newest)
        for version in range(1, newest + 1):
            sql = f"SELECT * FROM {name} {travel.format(version)}"
            assert comparable(engine.query(sql)) == held(trips, version), version
        trips.upsert(values(range(390, 420), step))


def require_refused(catalog: Catalog, write: Callable[[], object], what: str) -> None:
    """See that a write fails, and that the table and its publication are as they were."""
    trips = catalog.table("sales.trips")
    version = version_of(trips)
    wanted = held(trips, version)
    with pytest.raises((RuntimeError, RESTError, NotImplementedError)):
        write()
    assert [entry.name for entry in catalog.tables()] == ["sales.trips"], what
    assert catalog.namespaces() == ("sales", "stock"), what
    assert (version_of(trips), held(build.again(trips), version)) == (version, wanted), what
    assert trips.inspect.publications()[0].foreign == 0, what
    assert only_strays(trips)


@pytest.mark.processes
def test_spark_reads_by_name_and_changes_nothing(
    lake: Catalog, served: str, iceberg_spark: IcebergSpark
) -> None:
    lake.table("sales.trips").versions.savepoint("kept")
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": served,
        ".cache-enabled": "false",
    }.items():
        iceberg_spark.query(f"SET `spark.sql.catalog.lake{key}` = {value}")
    require_whole(lake, iceberg_spark, "lake.sales.trips", "VERSION AS OF {}")
    tagged = iceberg_spark.query("SELECT * FROM lake.sales.trips VERSION AS OF 'kept'")
    assert comparable(tagged) == held(lake.table("sales.trips"), 3)
    for sql in BY_SPARK:
        given = sql.format(t="lake.sales.trips", c="lake")
        require_refused(lake, lambda sql=given: iceberg_spark.query(sql), sql)


@pytest.mark.processes
def test_duckdb_reads_by_name_and_changes_nothing(
    lake: Catalog, served: str, duckdb: DuckDB
) -> None:
    options = f"TYPE iceberg, ENDPOINT '{served}', AUTHORIZATION_TYPE 'none'"
    duckdb.query(f"ATTACH 'lake' AS lake ({options}, ACCESS_DELEGATION_MODE 'none')")
    try:
        require_whole(lake, duckdb, "lake.sales.trips", "AT (VERSION => {})")
        for sql in (*NAMES, MERGE):
            given = sql.format(t="lake.sales.trips", c="lake")
            require_refused(lake, lambda sql=given: duckdb.query(sql), sql)
    finally:
        duckdb.query("DETACH lake")


@pytest.mark.parametrize("write", BY_PYICEBERG)
def test_pyiceberg_writes_no_rows(lake: Catalog, served: str, write: str) -> None:
    table = RestCatalog("lake", uri=served).load_table("sales.trips")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what pyiceberg would have to rewrite
        require_refused(lake, lambda: BY_PYICEBERG[write](table), write)
