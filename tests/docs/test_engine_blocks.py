"""Every block of *Read from other engines* that needs an engine of its own runs in that engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import Catalog, Table
from plait.catalog.rest import IcebergRest
from plait.catalog.server import CatalogServer, Listening
from plait.spark.java import launch_home, require_java
from tests.docs.test_code_blocks import ROOT, blocks_of, every_block
from tests.services.engines import missing, place
from tests.services.jars import find_jars
from tests.services.local_spark import QUICK_SPARK

pytestmark = pytest.mark.processes

PAGE = ROOT / "docs/how-to/read-from-other-engines.md"
ELSEWHERE = re.compile(r"<!-- not run: here, but by tests/docs/test_engine_blocks.py: (\S+) -->\n")
ADDRESS = "http://127.0.0.1:8181"
JARS = {"delta-spark": "delta", "spark-iceberg": "iceberg"}
QUIET = " ".join(
    f"--conf {each}"
    for each in (
        "spark.databricks.delta.snapshotPartitions=1",
        "spark.sql.codegen.factoryMode=NO_CODEGEN",
        "spark.sql.codegen.wholeStage=false",
        "spark.sql.shuffle.partitions=2",
        "spark.ui.enabled=false",
    )
)
EXTENSIONS = ("delta", "avro", "httpfs", "iceberg")


def blocks() -> dict[str, str]:
    """Return the blocks of each engine, one after another."""
    found: dict[str, str] = {}
    for block in every_block(PAGE):
        if match := ELSEWHERE.fullmatch(block.reason):
            found[match[1]] = found.get(match[1], "") + block.text
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory with the table of the page, and a catalog with one like it."""
    folder = tmp_path_factory.mktemp("engines")
    names: dict[str, object] = {"__name__": "page"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks_of(PAGE, "python"):
            exec(block.text, names)
    trips = names["trips"]
    assert isinstance(trips, Table)
    catalog = Catalog.create(str(folder / "lake"))
    catalog.create_namespace("sales")
    properties = {"publish": "iceberg"}
    given = catalog.create_table(
        "sales.trips", trips.scan().schema, record_key=["id"], properties=properties
    )
    given.upsert(trips.scan(version=1).to_arrow())
    given.delete(where="city = 'Rome'")
    return folder


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    with CatalogServer(IcebergRest(Catalog(str(home / "lake"))), Listening(port=0)) as server:
        yield server.url


def environment_of(engine: str, home: Path) -> dict[str, str]:
    """Say where an engine is; what it would fetch is there already."""
    found = {"DO_NOT_TRACK": "true", "HOME": str(home)}
    if engine != "delta-spark":
        found["PYTHONPATH"] = str(place(engine))
    if engine == "duckdb":
        (version,) = place(engine).glob("duckdb-*.dist-info")
        number = version.name.split("-")[1].removesuffix(".dist")
        for name in EXTENSIONS:
            (file,) = place(engine).glob(f"duckdb_extension_{name}/**/{name}.duckdb_extension")
            for platform in ("linux_amd64", "linux_arm64", "osx_arm64"):
                known = home / ".duckdb" / "extensions" / f"v{number}" / platform
                known.mkdir(parents=True, exist_ok=True)
                (known / file.name).symlink_to(file)
    if engine in JARS:
        jars = find_jars(JARS[engine])
        assert jars is not None
        given = ",".join(map(str, sorted(jars.glob("*.jar"))))
        found |= QUICK_SPARK
        found |= {
            "JAVA_HOME": str(launch_home(require_java(os.environ))),
            "PYSPARK_SUBMIT_ARGS": f"--master local[2] --jars {given} {QUIET} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    return found


@pytest.mark.parametrize("engine", blocks())
def test_blocks_run_in_their_engine(home: Path, address: str, engine: str) -> None:
    needs = () if engine == "delta-spark" else (engine,)
    if reason := missing(*needs, jars=JARS.get(engine)):
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-c", blocks()[engine].replace(ADDRESS, address)],
        cwd=home,
        env={**os.environ, **environment_of(engine, home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_every_engine_of_the_page_has_its_blocks() -> None:
    known = {"duckdb", "delta-spark", "spark-iceberg", "readers", "datafusion-iceberg"}
    assert blocks().keys() == known
