"""A process that changes the columns of tables: each line names a table and a change."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from plait import Table
from plait.services.definition.alter import Alteration
from scripts.column_matrix import ColumnChange
from tests.support import build

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int32()),
        pa.field("w", pa.int32(), nullable=False),
        pa.field("o", pa.string()),
    ]
)
ALTERS: dict[ColumnChange, Callable[[Alteration], Alteration]] = {
    ColumnChange.ADD: lambda change: change.add("n", "int", default=9, after=""),
    ColumnChange.DROP: lambda change: change.drop("w"),
    ColumnChange.RENAME: lambda change: change.rename("w", "x"),
    ColumnChange.RENAME_KEY: lambda change: change.rename("id", "key"),
    ColumnChange.MOVE: lambda change: change.move("w", after=""),
    ColumnChange.WIDEN: lambda change: change.widen("v", "bigint"),
    ColumnChange.RELAX: lambda change: change.allow_null("w"),
    ColumnChange.REQUIRE: lambda change: change.require("v"),
    ColumnChange.CHECK: lambda change: change.add_check("small", "v IS NOT NULL AND v < 100"),
    ColumnChange.GENERATE: lambda change: change.generate("w", "v * 0 + 1"),
    ColumnChange.NOTE: lambda change: change.default("v", 3).comment("w", "a word"),
}
rows = partial(build.rows, schema=SCHEMA, v=0, w=1, o="o")


def change_it(table: Table, change: ColumnChange) -> int:
    """Make a change; return its version."""
    if change is ColumnChange.BROUGHT:
        more = rows(9).append_column("b", pa.array(["theirs"]))
        return table.append(more, evolve="add").version
    result = ALTERS[change](table.alter.columns()).commit()
    assert result is not None
    return result.version


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        version = change_it(Table.open(asked["uri"]), ColumnChange(asked["change"]))
        sys.stdout.write(f"{version}\n")
        sys.stdout.flush()
