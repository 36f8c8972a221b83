"""A standalone cluster of one master and two workers, whose executors have no Plait."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.spark.java import find_java
from tests.conftest import missing
from tests.services.spark import QUICK_JVMS, Cluster

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "operations" / "cluster.md"
JOB = Path(__file__).with_name("cluster_job.py")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if find_java(os.environ) is None:
        missing("no Java 17 or newer")
    with Cluster(tmp_path / "cluster") as found:
        yield found


def shipping(cluster: Cluster) -> str:
    """Give the page's code that ships Plait, with the addresses of this cluster."""
    blocks = PAGE.read_text(encoding="utf-8").split("```python\n")
    code = next(b.split("```")[0] for b in blocks if "spark.pack(" in b.split("```")[0])
    for example, real in (
        ("spark://host:7077", cluster.master),
        ("/usr/bin/python3", str(cluster.python)),
    ):
        assert code.count(example) == 1
        code = code.replace(example, real)
    return code


def models() -> dict[str, list[list[int]]]:
    """Give the rows that each table has in the end."""
    both = dict.fromkeys(range(50), 1) | dict.fromkeys(range(50, 150), 2)
    cow = {key: rev for key, rev in both.items() if key % 3 != 1 or key >= 40}
    cow |= dict.fromkeys(range(22, 30, 3), 4)
    mor = {key: rev for key, rev in both.items() if key >= 10}
    mor |= dict.fromkeys(range(140, 160), 3)
    return {"cow": sorted(map(list, cow.items())), "mor": sorted(map(list, mor.items()))}


@pytest.mark.long(0)
def test_executors_without_plait_get_it_the_way_the_page_says(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Writer, data source, deletes, overwrites and scans, on both types of tables."""
    unset = ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    done = subprocess.run(
        [cluster.python, JOB, shipping(cluster), tmp_path],
        env={**environment, **QUICK_JVMS, "PYSPARK_DRIVER_PYTHON": "/no/such/notebook"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:] + cluster.logs()
    said = json.loads(done.stdout.splitlines()[-1])
    places = {Path(place): Path(found) for place, found, _ in said["tasks"]}
    assert {place.parts[-3] for place in places} == {"work-0", "work-1"}, "both took part"
    for place, found in places.items():
        assert found.is_relative_to(place / "plait-packages"), "what was shipped is what they have"
    without = {error for _, _, error in said["tasks"]}
    assert without == {"ModuleNotFoundError: No module named 'plait'"}
    for kind, expected in models().items():
        assert said[kind] == {"table": expected, "problems": 0}
    assert said["source"] == models()["mor"]
