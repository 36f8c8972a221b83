"""A process of the quickstart that reads with Arrow instead of Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from examples.quickstart.roles import CORRECTION_MINUTES, ORDERING, SOURCE_DDL, Role
from examples.quickstart.source import load_source
from examples.quickstart.worker import main


def arrow_rows(role: Role, csv: str) -> pa.Table:
    """Give the rows of a role."""
    table = load_source(Path(csv), SOURCE_DDL)
    rows = table.filter(pc.field(role.column) == pc.scalar(role.value))
    for column, expression in role.changes:
        if expression.isdigit():
            changed = pa.repeat(pa.scalar(int(expression), pa.int32()), rows.num_rows)
        else:
            changed = pc.add(rows[column], pa.scalar(CORRECTION_MINUTES, pa.int32()))
        rows = rows.set_column(rows.column_names.index(column), column, changed)
    return rows.append_column(
        ORDERING, pa.repeat(pa.scalar(role.revision, pa.int32()), rows.num_rows)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], arrow_rows))
