"""The reader by which schedules, crashes and histories are judged reads as engines do (INV-17)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.integration.interop.lives import acts
from tests.integration.interop.lives import shown as shown_by
from tests.support import build
from tests.support.build import rows
from tests.support.engines import ICEBERG, comparable
from tests.support.published import Shown, iceberg_numbers, published


@pytest.mark.parametrize("deletes", ["positions", "vectors"])
def test_the_reader_of_the_tests_sees_what_engines_see(tmp_path: Path, deletes: str) -> None:
    properties = {
        "publish": "delta,iceberg",
        "publish.deadline": "1h",
        "publish.iceberg.deletes": deletes,
        "checkpoint.interval": 3,
    }
    table = build.make(uri=tmp_path / "t", table_type="mor", buckets=2, properties=properties)
    draw, every = Random(deletes), acts()
    table.upsert(rows(range(40), v=1))
    for name in ("upsert", "column", "update", "delete", "compact", "upsert again", "delete"):
        every[name](table, draw)
    table.maintenance.publish()
    store, seen = table._handle.plain_store, set[str]()
    newest = f"metadata/v{iceberg_numbers(store)[-1]}.metadata.json"
    for name, shown in published(store):
        assert isinstance(shown, Shown)
        if name.startswith("_delta_log"):
            found = shown_by(table, "deltalake", shown.version)
        elif name == newest:
            found = comparable(ICEBERG["pyiceberg"](f"file://{tmp_path}/t/{name}", shown.version))
        else:
            continue
        seen.add(name.partition("/")[0])
        names = table.scan(version=shown.version).schema.names
        mine = [dict(zip(names, row, strict=True)) for row in shown.rows(store)]
        assert sorted(repr(dict(sorted(row.items()))) for row in mine) == found, name
    assert seen == {"_delta_log", "metadata"}
