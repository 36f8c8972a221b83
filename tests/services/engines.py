"""Other engines that read published tables, each in a process of its own.

DuckDB with its extensions is in a directory of its own: the environment has a newer one, and
``python -m tests.services.engines`` installs it beforehand. Spark is that of the environment, with
the jars of Delta Lake. No test ever fetches anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from plait.spark.java import launch_home, require_java
from tests.services.jars import cached, fill, in_ci
from tests.services.process import Service

WANTED = Path(__file__).with_suffix(".txt")
HERE = Path(__file__).parent
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


class Engine(Service):
    """A process that runs a worker program, and answers each statement with rows or an error."""

    def __init__(self, worker: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / worker)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a statement; raise RuntimeError with what the engine says."""
        stdout = self._process.stdout
        assert stdout is not None
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "rows.parquet")
            self._tell({"sql": sql, "file": str(file)})
            answer = json.loads(stdout.readline())
            if answer["error"]:
                raise RuntimeError(answer["error"])
            return pq.read_table(file)

    def _tell(self, said: Mapping[str, object]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(said) + "\n")
        stdin.flush()

    def stop(self) -> None:
        """End it."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(_WAIT_S)


class DuckDB(Engine):
    """The older DuckDB with its extensions."""

    def __init__(self) -> None:
        super().__init__("duckdb_worker.py", {"PYTHONPATH": str(place())})

    def read(self, table: str, number: int) -> pa.Table:
        """Return the rows of a commit of a Delta log."""
        return self.query(f"SELECT * FROM delta_scan('{table}', version = {number})")


class DeltaSpark(Engine):
    """Spark with Delta Lake: one session of two cores."""

    def __init__(self, folder: Path, jars: Path) -> None:
        java = str(launch_home(require_java(os.environ)))
        super().__init__("spark_worker.py", {"JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1"})
        conf = {
            "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.enabled": "false",
        }
        self._tell({"conf": conf})


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
