"""Spark servers of the tests, from the pip package: a standalone cluster, a Connect server.

Nothing of the environment of the tests reaches the workers but ``PATH``: their Python is one in
which there is no Plait. Driver and workers are one machine here, and Spark wants one path of Python
for all. So that path is a program that is one Python on the driver and another on the workers, as
the same path is on different machines.
"""

from __future__ import annotations

import os
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from plait.spark.java import launch_home, require_java
from plait.spark.packaging import PROVIDED
from tests.services.local_spark import PATIENT, QUICK_JVM, WARM
from tests.services.process import Process, Service

_WORKER = "PLAIT_TESTS_WORKER"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER_MAIN = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_READY_S = 300
QUICK_JVMS = {"JAVA_TOOL_OPTIONS": QUICK_JVM}
"""Executors too: the JVMs of a cluster outnumber the processors here."""
_EXECUTOR_NEEDS = (*(PROVIDED - {"pyspark"}), "python-dateutil", "pytz", "six", "tzdata")


def spark_home() -> Path:
    """Give the Spark inside of the pyspark wheel."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def _environment(folder: Path) -> dict[str, str]:
    """Say where things are; take out what would bring Plait to the workers."""
    return {
        **QUICK_JVMS,
        "PYTHONPATH": "",
        "JAVA_HOME": str(launch_home(require_java(os.environ))),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


def _make_python(folder: Path, paths: Iterable[Path] = ()) -> Path:
    """Make an environment that imports from these places alone."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (_handle(folder) / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder / "bin" / "python"


def _handle(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _driver_python(folder: Path) -> Path:
    """Make an environment with all that the tests have, and the Plait that is tested."""
    found = find_spec("plait")
    assert found is not None
    assert found.origin is not None
    sites = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    return _make_python(folder, [Path(found.origin).parents[1], *sites])


def _executor_python(folder: Path) -> Path:
    """Make an environment with what Spark's Arrow functions need, and no more."""
    python = _make_python(folder)
    for name in _EXECUTOR_NEEDS:
        packages = distribution(name)
        for top in {file.parts[0] for file in packages.files or ()} - {"..", "__pycache__"}:
            (_handle(folder) / top).symlink_to(Path(str(packages.locate_file(top))))
    return python


class Cluster(Service):
    """One master and two workers of one core each, whose executors have no Plait.

    Each worker has an address of its own, because Spark runs no copy of a task on the same host.
    """

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.python = self._two_faced()
        self._processes: list[Process] = []
        try:
            command = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            self.master = self._start(_MASTER, "master", command, "Starting Spark master at ")
            for number in range(workers):
                place = folder / f"work-{number}"
                host = f"127.0.0.{number + 1}"
                command = ["--host", host, "--cores", "1", "--memory", "1g"]
                command += ["--webui-port", "0", "--work-dir", str(place), self.master]
                self._start(_WORKER_MAIN, f"worker-{number}", command, None)
            for process in self._processes[1:]:
                process.wait_for("Successfully registered with master", wait_s=_READY_S)
        except BaseException:
            self.stop()
            raise

    def _start(self, main: str, name: str, arguments: list[str], ready: str | None) -> str:
        program = str(spark_home() / "bin" / "spark-class")
        environment = _environment(self._folder) | {"SPARK_DAEMON_MEMORY": "256m", _WORKER: "1"}
        log = self._folder / f"{name}.log"
        process = Process([program, main, *arguments], log, environment)
        self._processes.append(process)
        return "" if ready is None else process.wait_for(ready, wait_s=_READY_S)

    def _two_faced(self) -> Path:
        """Write the Python that has Plait on the driver's machine, and none on the workers'."""
        driver = _driver_python(self._folder / "driver")
        bare = _executor_python(self._folder / "bare")
        program = self._folder / "python"
        program.write_text(
            f'#!/bin/sh\n[ -n "${_WORKER}" ] && exec "{bare}" "$@"\nexec "{driver}" "$@"\n'
        )
        program.chmod(0o755)
        return program

    def logs(self) -> str:
        """Give what the servers said last."""
        return "\n".join(process.output[-2000:] for process in self._processes)

    def stop(self) -> None:
        """End the workers, which end their executors, and then the master."""
        for process in reversed(self._processes):
            process.stop()


class ConnectServer(Service):
    """A server of Spark Connect with two cores, on whose Python Plait is installed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            **PATIENT,
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.enabled": "false",
        }
        program = str(spark_home() / "bin" / "spark-submit")
        command = [program, "--class", _CONNECT]
        for key, value in config.items():
            command += ["--conf", f"{key}={value}"]
        python = str(_driver_python(folder / "python"))
        environment = (
            _environment(folder) | dict.fromkeys(_PYTHONS, python) | {"PYTHONPATH": str(WARM)}
        )
        self._process = Process(command, folder / "connect.log", environment)
        try:
            text = "Spark Connect server started at: "
            self.remote = f"sc://{self._process.wait_for(text, wait_s=_READY_S)}"
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it."""
        self._process.stop()
