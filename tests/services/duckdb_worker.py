"""The process of ``tests.services.engines.DuckDB``: one query a line, its rows into a file."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb

EXTENSIONS = ("delta", "avro", "httpfs", "iceberg")  # iceberg needs avro, and httpfs for a catalog


def connect(extensions: Sequence[str] = EXTENSIONS) -> duckdb.DuckDBPyConnection:
    """Return a connection with extensions that came as packages."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET autoinstall_known_extensions = false")
    for name in extensions:
        package = importlib.import_module(f"duckdb_extension_{name}")
        (file,) = Path(next(iter(package.__path__))).rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    return connection


def main() -> None:
    """Answer until the other side ends."""
    connection = connect()
    for line in sys.stdin:
        asked = json.loads(line)
        error = ""
        try:
            rows = asked["sql"]
            if not rows.startswith("SELECT"):
                connection.execute(rows)
                rows = "SELECT 'done' AS said"
            connection.execute(f"COPY ({rows}) TO '{asked['file']}' (FORMAT parquet)")
        except duckdb.Error as problem:
            error = str(problem) or type(problem).__name__
        sys.stdout.write(json.dumps({"error": error}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
