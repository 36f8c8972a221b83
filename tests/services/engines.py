"""DuckDB with its extensions, in a directory of its own: the environment has a newer one.

``python -m tests.services.engines`` installs it beforehand; no test ever fetches anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.services.jars import cached, fill, in_ci
from tests.services.process import Service

WANTED = Path(__file__).with_suffix(".txt")
WORKER = Path(__file__).with_name("duckdb_worker.py")
_WAIT_S = 240


def place() -> Path:
    """Name the directory: another one for other versions."""
    return cached("engines", WANTED.read_bytes() + sys.version.encode())


def resolve() -> Path:
    """Install the engines, unless they are there."""

    def install(made: Path) -> None:
        order = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        order += ["--target", str(made), "--requirement", str(WANTED)]
        subprocess.run(order, check=True, timeout=_WAIT_S)

    return fill(place(), install)


class DuckDB(Service):
    """A process of the older DuckDB, which reads published tables."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(place())}
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a query; raise RuntimeError with what DuckDB says."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "rows.parquet")
            stdin.write(json.dumps({"sql": sql, "file": str(file)}) + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
            if answer["error"]:
                raise RuntimeError(answer["error"])
            return pq.read_table(file)

    def stop(self) -> None:
        """End it."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(_WAIT_S)


def main() -> int:
    """Install the engines; give the exit code."""
    try:
        sys.stdout.write(f"engines: {resolve().name}\n")
    except (OSError, subprocess.SubprocessError) as error:
        sys.stdout.write(f"engines: {error}\n")
        return int(in_ci())
    return 0


if __name__ == "__main__":
    sys.exit(main())
