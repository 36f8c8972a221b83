"""The process of ``tests.services.engines.Reader``: one version a line, its rows into a file.

Its libraries are in a directory of their own. deltalake and pyiceberg are those of the environment.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

CHDB = (
    "output_format_arrow_string_as_string = 0",  # it has one type for text and bytes
    "session_timezone = 'UTC'",
)


def _datafusion(table: object) -> pa.Table:
    context: Any = importlib.import_module("datafusion").SessionContext()
    context.register_table("t", table)
    return context.sql("SELECT * FROM t").to_arrow_table()


def _datafusion_delta(place: str, version: int) -> pa.Table:
    return _datafusion(deltalake.DeltaTable(place, version=version))


def _datafusion_iceberg(place: str, version: int) -> pa.Table:
    """Read metadata whose newest version is the one that is asked for: it knows no other."""
    said = json.loads(Path(StaticTable.from_metadata(place).metadata_location).read_bytes())
    (snapshot,) = [each for each in said["snapshots"] if each["snapshot-id"] == version]
    said |= {"current-snapshot-id": version, "current-schema-id": snapshot["schema-id"]}
    said["refs"] = {"main": {"snapshot-id": version, "type": "branch"}}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "v1.metadata.json")
        file.write_text(json.dumps(said))
        return _datafusion(StaticTable.from_metadata(file.as_uri()))


def _daft_delta(place: str, version: int) -> pa.Table:
    daft: Any = importlib.import_module("daft")
    return daft.read_deltalake(place, version=version).to_arrow()


def _daft_iceberg(place: str, version: int) -> pa.Table:
    daft: Any = importlib.import_module("daft")
    table = StaticTable.from_metadata(place)
    return daft.read_iceberg(table, snapshot_id=version).to_arrow()


def _chdb(table: str, *settings: str) -> pa.Table:
    chdb: Any = importlib.import_module("chdb")
    sql = f"SELECT * FROM {table} SETTINGS {', '.join((*CHDB, *settings))}"
    return chdb.query(sql, "arrowtable")


def _chdb_delta(place: str, version: int) -> pa.Table:
    return _chdb(f"deltaLakeLocal('{place}')", f"delta_lake_snapshot_version = {version}")


def _chdb_iceberg(place: str, version: int) -> pa.Table:
    return _chdb(f"icebergLocal('{place}')", f"iceberg_snapshot_id = {version}")


READERS: Mapping[str, Callable[[str, int], pa.Table]] = {
    "datafusion delta": _datafusion_delta,
    "datafusion iceberg": _datafusion_iceberg,
    "daft delta": _daft_delta,
    "daft iceberg": _daft_iceberg,
    "chdb delta": _chdb_delta,
    "chdb iceberg": _chdb_iceberg,
}


def main() -> None:
    """Answer until the other side ends."""
    os.chdir("/")  # chdb reads no file outside of its directory
    for line in sys.stdin:
        asked, error = json.loads(line), ""
        try:
            rows = READERS[asked["reader"]](asked["place"], asked["version"])
            pq.write_table(rows, asked["file"])
        except BaseException as problem:  # noqa: BLE001 - a panic of Rust, too, is told to whoever asked
            error = str(problem) or type(problem).__name__
        sys.stdout.write(json.dumps({"error": error}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
