"""One live file, as a value: what the state's Arrow table says of it, checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from plait.files.faults import corrupt
from plait.model.bucket import Partition, partition_parse
from plait.model.plan import LIVE
from plait.storage.port import check_path


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file with its current deletion vector; one row of LIVE."""

    path: str
    partition: Partition
    bucket: int
    kind: str
    rows: int
    size_bytes: int
    sorted_by_key: bool
    schema_id: int
    footer: int
    """The hash of the file's footer."""
    version: int
    masked: int
    inline: bytes | None = None
    dv_path: str | None = None
    dv_offset: int | None = None
    dv_bytes: int | None = None

    @property
    def live_rows(self) -> int:
        """Rows that a reader sees."""
        return self.rows - self.masked


_COLUMNS = {
    "path": "path",
    "partition": "partition",
    "bucket": "bucket",
    "kind": "kind",
    "rows": "rows",
    "bytes": "size_bytes",
    "sorted": "sorted_by_key",
    "schema_id": "schema_id",
    "footer": "footer",
    "version": "version",
    "masked": "masked",
    "inline": "inline",
    "dv_path": "dv_path",
    "dv_offset": "dv_offset",
    "dv_bytes": "dv_bytes",
}
"""The columns of LIVE, and what they are called here."""
_AT_ONCE = 1024
_MASK = {"masked": "rows"} | {n: n for n in ("inline", "dv_path", "dv_offset", "dv_bytes")}
"""Columns of LIVE that a mask sets, and where they stand in MASKED."""


def unmasked(added: pa.Table, *, version: int) -> pa.Table:
    """Take files as a version added them (ADDED) for live ones without a deletion vector."""
    count = added.num_rows
    known = {"version": pa.repeat(version, count), "masked": pa.repeat(0, count)}
    known |= {name: added[name] for name in added.schema.names}
    columns = [known.get(f.name, pa.nulls(count, f.type)) for f in LIVE]
    return pa.table(columns, names=LIVE.names).cast(LIVE)


def with_masks(files: pa.Table, masked: pa.Table) -> pa.Table:
    """Return live files (LIVE) with the deletion vectors that a commit gave them (MASKED)."""
    masked = masked.combine_chunks()
    at = pc.index_in(files["path"], value_set=masked["path"].combine_chunks())
    hit = pc.is_valid(at)
    for name, source in _MASK.items():
        column = pc.if_else(hit, masked[source].take(at), files[name])
        files = files.set_column(LIVE.get_field_index(name), LIVE.field(name), column)
    return files


def live_files(files: pa.Table) -> Iterator[LiveFile]:
    """Return the files of a LIVE table one by one, in its order.

    Raises:
        CorruptMetadataError: a path leaves the table, or counts make no sense.
    """
    chosen = files.select(list(_COLUMNS)).rename_columns(list(_COLUMNS.values()))
    for start in range(0, chosen.num_rows, _AT_ONCE):
        for row in chosen.slice(start, _AT_ONCE).to_pylist():
            yield _checked(row)


def _checked(row: dict[str, object]) -> LiveFile:
    path, text = str(row["path"]), str(row["partition"])
    check_path(path)
    try:
        partition = partition_parse(text)
    except ValueError as error:
        raise corrupt(path, "a JSON list of partition values", text) from error
    file = LiveFile(**{**row, "partition": partition})  # type: ignore[arg-type]  # LIVE's types
    if not 0 <= file.masked <= file.rows:
        raise corrupt(path, f"at most {file.rows} masked rows", str(file.masked))
    return file
