"""The hidden column of data files that tells which version wrote a row (RFC 0023).

A file whose rows one commit wrote does not need it: the version that added the file wrote them. A
file with rows of other files has it, and says of each of these which version wrote it. Null is a
row that the file's own commit wrote, whose version is not known while the file is staged.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from plait.model.schema import FIELD_ID, Schema

WRITTEN_COLUMN: Final = "_written"
WRITTEN_ID: Final = 2_000_000_000
"""A field id that no column of a user gets: those count from 1."""
WRITTEN_FIELD: Final = pa.field(
    WRITTEN_COLUMN, pa.int64(), metadata={FIELD_ID: str(WRITTEN_ID).encode()}
)
WRITTEN_OPTION: Final = "rows.written"
"""The property of a table whose files have it."""


def is_written(name: str, schema: Schema) -> bool:
    """Tell whether a name means the hidden column, and no column of the table."""
    return name == WRITTEN_COLUMN and name not in schema.names


def column_of(name: str, schema: Schema) -> tuple[int, pa.Field]:
    """Return the field id and the field of a column of the table, or of the hidden one."""
    if is_written(name, schema):
        return WRITTEN_ID, WRITTEN_FIELD
    return schema.field_id(name), schema.arrow.field(name)


def without_written(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without the hidden column: it counts in no digest."""
    return rows.select([name for name in rows.schema.names if name != WRITTEN_COLUMN])


def unwritten(rows: pa.Table) -> pa.Table:
    """Return rows with the hidden column: the commit that adds their file writes them."""
    return rows.append_column(WRITTEN_FIELD, pa.nulls(rows.num_rows, pa.int64()))
