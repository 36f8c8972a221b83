"""A Delta table of many files: one checkpoint, and no data file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peer_metadata import FILE_BYTES, FILE_ROWS, Pair


def build(
    uri: str, columns: str, places: Sequence[int], bounds: Sequence[Pair], commits: int
) -> None:
    """Write a Delta checkpoint with these files."""
    log = Path(uri, "_delta_log")
    log.mkdir(parents=True)
    kinds = {"int": "integer", "bigint": "long"}
    pairs = [column.split() for column in columns.split(", ")]
    fields = [
        {"name": name, "type": kinds.get(kind, kind), "nullable": True, "metadata": {}}
        for name, kind in pairs
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    nulls = {name: 0 for name, _ in pairs}
    numbers = {"day", "id", "c", "a", "b"}

    def typed(values: dict[str, str]) -> dict[str, object]:
        return {k: float(v) if k in numbers else v for k, v in values.items() if k != "day"}

    def stats(pair: Pair) -> str:
        told = {"numRecords": FILE_ROWS, "minValues": typed(pair[0]), "maxValues": typed(pair[1])}
        return json.dumps({**told, "nullCount": nulls})

    text = pa.map_(pa.string(), pa.string())
    add = pa.struct(
        [
            pa.field("path", pa.string()),
            pa.field("partitionValues", text),
            pa.field("size", pa.int64()),
            pa.field("modificationTime", pa.int64()),
            pa.field("dataChange", pa.bool_()),
            pa.field("stats", pa.string()),
        ]
    )
    added = [
        {
            "path": f"day={day}/part-{n:09d}-c000.snappy.parquet",
            "partitionValues": [("day", str(day))],
            "size": FILE_BYTES,
            "modificationTime": 0,
            "dataChange": False,
            "stats": stats(bounds[n]),
        }
        for n, day in enumerate(places)
    ]
    meta = {
        "id": "0", "format": {"provider": "parquet", "options": []}, "schemaString": schema,
        "partitionColumns": ["day"], "configuration": [], "createdTime": 0,
    }  # fmt: skip
    formats = pa.struct([("provider", pa.string()), ("options", text)])
    kind = pa.struct(
        [
            *(("id", pa.string()), ("format", formats), ("schemaString", pa.string())),
            *(("partitionColumns", pa.list_(pa.string())), ("configuration", text)),
            ("createdTime", pa.int64()),
        ]
    )
    protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
    first = [{"minReaderVersion": 1, "minWriterVersion": 2}, None]
    none = [None] * len(added)
    rows = pa.table(
        {
            "protocol": pa.array([*first, *none], protocol),
            "metaData": pa.array([None, meta, *none], kind),
            "add": pa.array([None, None, *added], add),
        }
    )
    last = commits - 1
    path = log / f"{last:020d}.checkpoint.parquet"
    pq.write_table(rows, path, row_group_size=1 << 16)
    told = {"version": last, "size": rows.num_rows, "sizeInBytes": path.stat().st_size}
    (log / "_last_checkpoint").write_text(json.dumps(told))


def plan(uri: str) -> dict[str, object]:
    """Open the table and plan a scan of one partition."""
    from deltalake import DeltaTable

    files = DeltaTable(uri).file_uris(partition_filters=[("day", "=", "7")])
    return {"files_read": len(files)}
