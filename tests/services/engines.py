"""Other engines that read published tables, each in a process of its own.

Each has its libraries in a directory of its own, beside those of the environment:
``python -m tests.services.engines`` installs them beforehand. DuckDB is the last one whose
extensions are packages. Iceberg has a runtime for an older Spark only. Spark with Delta Lake is the
Spark of the environment. No test ever fetches anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from plait.spark.java import find_java, launch_home, require_java
from tests.services.jars import cached, fill, find_jars, in_ci
from tests.services.local_spark import QUICK_SPARK
from tests.services.process import Service

HERE = Path(__file__).parent
WANTED = {file.stem: file for file in sorted((HERE / "environments").glob("*.txt"))}
"""The requirements of each directory."""
_WAIT_S = 600


def place(name: str = "duckdb") -> Path:
    """Name the directory of an engine: another one for other versions."""
    return cached(f"engines-{name}", WANTED[name].read_bytes() + sys.version.encode())


def resolve(name: str) -> Path:
    """Install an engine, unless it is there."""

    def install(made: Path) -> None:
        order = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        order += ["--target", str(made), "--requirement", str(WANTED[name])]
        subprocess.run(order, check=True, timeout=_WAIT_S)

    return fill(place(name), install)


Read = Callable[[str, str, int], pa.Table]
"""Reads ``delta`` or ``iceberg``, of the table in a directory, at a version."""


class Engine(Service):
    """A process that runs a worker program, and answers each line with rows or an error."""

    def __init__(self, worker: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / worker)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def process(self) -> int:
        """The number of the process."""
        return self._process.pid

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a statement; raise RuntimeError with what the engine says."""
        return self._ask(sql=sql)

    def _ask(self, **said: object) -> pa.Table:
        stdout = self._process.stdout
        assert stdout is not None
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "rows.parquet")
            self._tell({**said, "file": str(file)})
            answer = json.loads(stdout.readline() or '{"error": "the process ended"}')
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

    def read(self, target: str, table: str, version: int) -> pa.Table:
        """Return the rows of a published version."""
        option = f"version = {version}" if target == "delta" else f"snapshot_from_id = {version}"
        return self.query(f"SELECT * FROM {target}_scan('{table}', {option})")


class Reader(Engine):
    """Libraries of one directory, each of which reads a version in one call."""

    def __init__(self, environment: str) -> None:
        told = {"PYTHONPATH": str(place(environment)), "DO_NOT_TRACK": "true"}
        super().__init__("readers_worker.py", {**told, "DAFT_PROGRESS_BAR": "0"})

    def by(self, library: str) -> Read:
        """Return how one library reads; it raises RuntimeError with what the library says."""

        def read(target: str, table: str, version: int) -> pa.Table:
            return self._ask(reader=f"{library} {target}", place=table, version=version)

        return read


class Spark(Engine):
    """A session of two cores, with the jars of a format."""

    def __init__(self, folder: Path, target: str, conf: Mapping[str, str], python: str) -> None:
        jars = find_jars(target)
        assert jars is not None, f"in CI the jars of {target} must be there"
        java = str(launch_home(require_java(os.environ)))
        environment = {"JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": python}
        environment |= QUICK_SPARK
        super().__init__("spark_worker.py", environment)
        common = {
            "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.enabled": "false",
            # To compile and adapt plans takes longer than to read small tables.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.codegen.wholeStage": "false",
        }
        self._tell({"conf": {**common, **conf}})


class DeltaSpark(Spark):
    """Spark with Delta Lake."""

    def __init__(self, folder: Path) -> None:
        conf = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
        }
        super().__init__(folder, "delta", conf, os.environ.get("PYTHONPATH", ""))

    def read(self, target: str, table: str, version: int) -> pa.Table:
        """Return the rows of a published version."""
        return self.query(f"SELECT * FROM {target}.`{table}` VERSION AS OF {version}")


class IcebergSpark(Spark):
    """The older Spark with Iceberg, and the catalog ``path`` of tables by their directories."""

    def __init__(self, folder: Path) -> None:
        conf = {
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            ),
            "spark.sql.catalog.path": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.path.type": "hadoop",
            "spark.sql.catalog.path.warehouse": "file:///",
            "spark.sql.catalog.path.cache-enabled": "false",
        }
        super().__init__(folder, "iceberg", conf, str(place("spark-iceberg")))

    @staticmethod
    def name_of(table: str) -> str:
        """Name a table by its directory, each of whose parts is a namespace."""
        return ".".join(f"`{part}`" for part in ("path", *Path(table).parts[1:]))

    def read(self, target: str, table: str, version: int) -> pa.Table:
        """Return the rows of a published version."""
        assert target == "iceberg"
        return self.query(f"SELECT * FROM {self.name_of(table)} VERSION AS OF {version}")


def missing(*environments: str, jars: str | None = None) -> str:
    """Say what is not installed; nothing if everything is there, or must be."""
    if in_ci():
        return ""
    if not all(place(each).is_dir() for each in environments):
        return "python -m tests.services.engines was not run"
    if jars and (find_jars(jars) is None or find_java(os.environ) is None):
        return "python -m tests.services.jars was not run, or there is no Java"
    return ""


def main() -> int:
    """Install the engines; give the exit code."""
    code = 0
    for name in WANTED:
        try:
            sys.stdout.write(f"{resolve(name).name}\n")
        except (OSError, subprocess.SubprocessError) as error:
            sys.stdout.write(f"{name}: {error}\n")
            code = int(in_ci())
    return code


if __name__ == "__main__":
    sys.exit(main())
