"""Spark with Delta Lake reads every published version (INV-17), and can write none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.spark.java import find_java
from tests.integration.interop.lives import (
    PUBLISHED,
    commits,
    held,
    make,
    only_strays,
    values,
    version_of,
)
from tests.services.engines import DeltaSpark
from tests.services.jars import find_jars, in_ci
from tests.support import build
from tests.support.engines import comparable

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not in_ci() and (find_jars("delta") is None or find_java(os.environ) is None),
        reason="python -m tests.services.jars was not run, or there is no Java",
    ),
]

WRITES = {
    "INSERT": "INSERT INTO {t} SELECT * FROM {t} LIMIT 1",
    "INSERT OVERWRITE": "INSERT OVERWRITE {t} SELECT * FROM {t} LIMIT 1",
    "UPDATE": "UPDATE {t} SET text = 'theirs' WHERE id < 9",
    "DELETE": "DELETE FROM {t} WHERE id < 9",
    "MERGE": "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "OPTIMIZE": "OPTIMIZE {t}",
    "VACUUM": "VACUUM {t}",
    "RESTORE": "RESTORE {t} TO VERSION AS OF 1",
    "ALTER": "ALTER TABLE {t} ADD COLUMN theirs INT",
    "SET": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "DROP FEATURE": "ALTER TABLE {t} DROP FEATURE plait",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    jars = find_jars("delta")
    assert jars is not None, "in CI the jars of Delta Lake must be there"
    with DeltaSpark(tmp_path_factory.mktemp("spark"), jars) as process:
        yield process


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_version_is_read_alike_by_spark(tmp_path: Path, spark: DeltaSpark, kind: str) -> None:
    table = make(uri=tmp_path / "t", table_type=kind, properties=PUBLISHED)
    table.upsert(values(range(6_000), 1))
    table.upsert(values(range(0, 6_000, 2), 2))  # several vectors in one file
    table.delete(where="tiny < 0")
    table.maintenance.compact(full=True)
    newest = table.versions.restore(version=2).version
    for version in range(newest + 1):
        found = spark.query(f"SELECT * FROM delta.`{tmp_path}/t` VERSION AS OF {version}")
        assert comparable(found) == held(table, version), version


def test_spark_can_write_nothing(tmp_path: Path, spark: DeltaSpark) -> None:
    """INV-17: the feature that it does not know keeps it out, also of deleting files."""
    table = make(uri=tmp_path / "t", table_type="mor", properties=PUBLISHED)
    table.upsert(values(range(50), 1))
    table.upsert(values(range(0, 50, 2), 2))
    wanted, numbers = held(table, version_of(table)), commits(table)
    for name, sql in WRITES.items():
        with pytest.raises(RuntimeError, match=r"DeltaUnsupportedTableFeature|plait"):
            spark.query(sql.format(t=f"delta.`{tmp_path}/t`"))
        assert commits(table) == numbers, name
    assert held(build.again(table), version_of(table)) == wanted
    assert only_strays(table)
