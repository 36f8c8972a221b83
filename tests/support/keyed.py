"""Small tables with a key in one bucket, their rows, and what they hold."""

from __future__ import annotations

import itertools

import pyarrow as pa

from plait import Table

SCHEMA = "id bigint, ts bigint, value string"
TYPES = ["cow", "mor"]
_NAMES = itertools.count()


def make(table_type: str, **definition: object) -> Table:
    arguments: dict[str, object] = {
        "record_key": ["id"],
        "buckets": 1,
        "table_type": table_type,
        **definition,
    }
    return Table.create(f"memory://keyed-{next(_NAMES)}", SCHEMA, **arguments)  # type: ignore[arg-type]  # by name


def rows(*values: tuple[int, int, str]) -> pa.Table:
    ids, times, texts = zip(*values, strict=True)
    return pa.table({"id": ids, "ts": times, "value": texts})


def content(table: Table) -> dict[int, str]:
    found = table.scan().to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "INV-08"
    return {row["id"]: row["value"] for row in found}
