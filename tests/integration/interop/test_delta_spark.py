"""Spark with Delta Lake can write no published table (INV-17)."""

from __future__ import annotations

from pathlib import Path

import pytest

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
from tests.support import build

pytestmark = pytest.mark.processes

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


def test_spark_can_write_nothing(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    """INV-17: the feature that it does not know keeps it out, also of deleting files."""
    table = make(uri=tmp_path / "t", table_type="mor", properties=PUBLISHED)
    table.upsert(values(range(50), 1))
    table.upsert(values(range(0, 50, 2), 2))
    wanted, numbers = held(table, version_of(table)), commits(table)
    for name, sql in WRITES.items():
        with pytest.raises(RuntimeError, match=r"DeltaUnsupportedTableFeature|plait"):
            delta_spark.query(sql.format(t=f"delta.`{tmp_path}/t`"))
        assert commits(table) == numbers, name
    assert held(build.again(table), version_of(table)) == wanted
    assert only_strays(table)
