"""What others write to published Iceberg metadata is refused, or undone and told (INV-17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo

from plait import Table
from plait.interop.publication import newest_metadata
from tests.integration.interop.lives import held, make, only_strays, values, version_of
from tests.services.engines import IcebergSpark
from tests.support import build
from tests.support.engines import ICEBERG, comparable

UNDONE: Mapping[str, str] = {
    "INSERT INTO {t} SELECT * FROM {t} LIMIT 1": "append",
    "INSERT OVERWRITE {t} SELECT * FROM {t} LIMIT 1": "overwrite",
    "UPDATE {t} SET text = 'theirs' WHERE id < 9": "overwrite",
    "DELETE FROM {t} WHERE id < 9": "overwrite",
    "DELETE FROM {t}": "delete",
    "MERGE INTO {t} t USING (SELECT 1 AS i) s ON t.id = i WHEN MATCHED THEN DELETE": "overwrite",
    "ALTER TABLE {t} ADD COLUMN theirs INT": "overwrite",
    "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')": "overwrite",
    "ALTER TABLE {t} CREATE TAG theirs": "overwrite",
    "CALL path.system.rewrite_data_files('{t}', options => map('rewrite-all', 'true'))": "replace",
    "CALL path.system.rollback_to_snapshot('{t}', 1)": "append",
}
"""What Spark does, and as what it is told: by the operation of the snapshot that is current."""
REFUSED = (
    "CALL path.system.expire_snapshots('{t}', TIMESTAMP '2999-01-01 00:00:00', 1)",
    "CALL path.system.remove_orphan_files('{t}', TIMESTAMP '2020-01-01 00:00:00')",
    "DROP TABLE {t} PURGE",
)
"""What Spark refuses, because the metadata says that others delete no files."""
BY_PYICEBERG: Mapping[str, Callable[[Any], object]] = {
    "append": lambda table: table.append(table.scan(limit=3).to_arrow()),
    "overwrite": lambda table: table.overwrite(table.scan(limit=3).to_arrow()),
    "overwrite some": lambda table: table.overwrite(
        table.scan(limit=3).to_arrow(), overwrite_filter=EqualTo("id", 1)
    ),
    "delete": lambda table: table.delete("id < 5"),
    "expire": lambda table: table.maintenance.expire_snapshots().by_id(1).commit(),
}


@pytest.fixture(params=["cow", "mor"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Give a published table of several versions."""
    properties = {"publish": "iceberg", "publish.deadline": "1h"}
    table = make(uri=tmp_path / "t", table_type=request.param, properties=properties)
    table.upsert(values(range(50), 1))
    table.upsert(values(range(0, 50, 2), 2))
    table.maintenance.publish()
    return table


def place_of(table: Table) -> str:
    return build.uri_of(table).removeprefix("file://")


def require_equal(table: Table) -> None:
    """Look at what the newest metadata names, and at the table."""
    found = newest_metadata(build.again(table)._handle)
    assert found is not None
    named = [each["snapshot-id"] for each in found[1]["snapshots"]]
    assert named == list(range(1, version_of(table) + 1))
    for version in named:
        assert comparable(ICEBERG["pyiceberg"](found[0], version)) == held(table, version)
    assert only_strays(table)


def require_undone(table: Table, told: str) -> None:
    """Publish, and see that what others did is gone, and was told."""
    assert table.inspect.publications()[0].foreign == 1
    (target,) = table.maintenance.publish().targets
    assert [each.operations for each in target.undone] == [(told,)]
    (status,) = table.inspect.publications()
    assert (status.foreign, status.lag_versions, status.problem) == (0, 0, None)


@pytest.mark.processes
def test_what_spark_writes_by_path_is_undone_or_refused(
    written: Table, iceberg_spark: IcebergSpark
) -> None:
    """One after another, each on what the publication made of the one before."""
    name, wanted = iceberg_spark.name_of(place_of(written)), held(written, 2)
    for sql, told in UNDONE.items():
        iceberg_spark.query(sql.format(t=name))
        require_undone(written, told)
        assert comparable(iceberg_spark.query(f"SELECT * FROM {name}")) == wanted, sql
        assert held(written, 2) == wanted, sql
    for sql in REFUSED:
        with pytest.raises(RuntimeError, match="GC is disabled"):
            iceberg_spark.query(sql.format(t=name))
        assert written.maintenance.publish().idle, sql
    written.upsert(values(range(200, 210), 3))
    written.maintenance.publish()
    require_equal(written)
    for version in (1, 2, 3):
        found = iceberg_spark.read("iceberg", place_of(written), version)
        assert comparable(found) == held(written, version)


@pytest.mark.parametrize("write", BY_PYICEBERG)
def test_what_pyiceberg_writes_through_a_catalog_of_its_own_is_undone(
    written: Table, tmp_path: Path, write: str
) -> None:
    """Its catalog goes on to name it; the metadata of the table never does."""
    found = newest_metadata(written._handle)
    assert found is not None
    catalog = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path))
    catalog.create_namespace("n")
    theirs = catalog.register_table("n.t", found[0])
    BY_PYICEBERG[write](theirs)
    require_undone(written, Path(theirs.metadata_location).name.removesuffix(".metadata.json"))
    require_equal(written)
    written.upsert(values(range(45, 60), 3))
    written.maintenance.publish()
    require_equal(written)
