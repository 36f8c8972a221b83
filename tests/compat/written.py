"""Which version wrote a row: written from ``docs/spec/format.md`` alone, beside ``reader.py``."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.compat.reader import Reader, Row, field_id, require

WRITTEN_ID = 2_000_000_000


def written_versions(reader: Reader, version: int) -> list[tuple[Row, int]]:
    """Return the rows of a version, each with the version that wrote it."""
    found: list[tuple[Row, int]] = []
    for file, mask in reader.live(version):
        table = pq.read_table(pa.BufferReader(reader._read(file["path"])))
        first = min(row["version"] for row in reader.added[file["path"]])
        names = [each.name for each in table.schema if field_id(each) == WRITTEN_ID]
        require(names in ([], ["_written"]), f"{file['path']} has {names}")
        told = table["_written"].to_pylist() if names else [None] * table.num_rows
        known = [number for number in told if number is not None]
        require(max(known, default=0) <= first, f"{file['path']} has rows of the future")
        bounds = [str(min(known)), str(max(known))] if known else [None, None]
        shown = json.loads(file["stats"])[str(WRITTEN_ID)]
        require(shown == [*bounds, len(told) - len(known)], f"{file['path']} has other bounds")
        hidden = reader._hidden(mask, file["rows"]) if mask and mask["rows"] else ()
        for position, row in enumerate(table.to_pylist()):
            if position not in hidden:
                number = row.pop("_written", None)
                found.append((row, first if number is None else number))
    return found
