"""A dual write whose executors are killed, and whose tasks run twice (RFC 0022, D1 and D2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plait.spark.java import find_java
from tests.conftest import missing
from tests.services.spark import QUICK_JVMS, Cluster

pytestmark = pytest.mark.spark


def run(place: Path, mode: str) -> dict[str, object]:
    if find_java(os.environ) is None:
        missing("no Java 17 or newer")
    module = "tests.integration.spark.replicas_job"
    with Cluster(place / "cluster") as cluster:
        done = subprocess.run(
            [sys.executable, "-m", module, cluster.master, place, mode],
            env={**os.environ, **QUICK_JVMS, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:] + cluster.logs()
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long(0)
def test_a_killed_executor_leaves_a_record_and_its_tasks_are_run_again(tmp_path: Path) -> None:
    """The executor dies in the middle of a task; what it had for the others is computed again."""
    seen = run(tmp_path, "kill")
    assert (tmp_path / "kill.done").exists()
    assert (seen["rows"], seen["equal"]) == (4_000, True)
    (killed,) = ([*each[1:]] for each in seen["notes"] if each[0] == "kills")
    assert "-".join(killed) in seen["ahead"]
    assert seen["repaired"]["missing"] == seen["repaired"]["different"] == 0
    assert (seen["equal_at_last"], seen["in_step"]) == (True, [True])


@pytest.mark.long(0)
def test_a_copy_of_a_task_that_goes_on_after_newer_commits_is_told_of(tmp_path: Path) -> None:
    """Of two attempts one counts; the other sends at most the batch that was under way."""
    seen = run(tmp_path, "speculate")
    assert (seen["rows"], seen["equal"]) == (4_000, True)
    (lingering,) = ([*each[1:]] for each in seen["notes"] if each[0] == "lingers")
    label = "-".join(lingering)
    assert label in seen["ahead"]
    assert label in seen["ahead_at_last"]
    assert seen["late"] == 0, "no batch after the one that was under way"
    assert seen["repaired"]["different"] <= 100
    assert (seen["equal_at_last"], seen["in_step"]) == (True, [True])
