"""Small tables with a key in one bucket, their rows, and what they hold."""

from __future__ import annotations

from functools import partial

from plait import Table
from tests.support import build

SCHEMA = "id bigint, ts bigint, value string"
TYPES = ["cow", "mor"]
rows = partial(build.tuples, "id ts value")


def make(table_type: str, **definition: object) -> Table:
    return build.make(SCHEMA, **{"buckets": 1, "table_type": table_type, **definition})


def content(table: Table) -> dict[int, str]:
    found = table.scan().to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "INV-08"
    return {row["id"]: row["value"] for row in found}
