"""You see a table take rows, a correction of one of them, and a late row that changes nothing.

It prints:

    version 1: Oslo 3.0, Lima 5.0
    version 2: Oslo 3.0, Lima 7.5
    version 2: Oslo 3.0, Lima 7.5
"""

from __future__ import annotations

import pyarrow as pa

from plait import Table


def flights(*rows: tuple[int, str, float, int]) -> pa.Table:
    """Return rows of flights."""
    names = ("id", "city", "delay", "revision")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


table = Table.create(
    "memory://first-upsert",
    "id bigint, city string, delay double, revision bigint",
    record_key=["id"],  # an upsert replaces the row that has its key
    ordering="revision",  # of two rows with one key the greater revision wins
)

for batch in (
    flights((1, "Oslo", 3.0, 0), (2, "Lima", 5.0, 0)),
    flights((2, "Lima", 7.5, 2)),
    flights((2, "Lima", 6.0, 1)),  # an older revision that arrives late: nothing to commit
):
    result = table.upsert(batch)
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    print(f"version {result.version}:", ", ".join(f"{r['city']} {r['delay']}" for r in rows))
