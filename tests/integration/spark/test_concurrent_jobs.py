"""Ingest, backfill, correction and delete at once: four drivers, and four threads of one driver.

One of the four drivers is this process.

``PLAIT_ROUNDS`` sets how often each job commits to each table (``make stress-spark``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import Table
from plait.spark import session
from tests.integration.spark.roles import ROLES, Commit, create, judge, play, stock
from tests.services.local_spark import warm_workers
from tests.services.process import die_with_parent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
ROUNDS = int(os.environ.get("PLAIT_ROUNDS", "2"))
OURS = "delete"
pytestmark = [pytest.mark.spark, pytest.mark.timeout(max(1200, 60 * ROUNDS))]


class Driver:
    """One Spark job in a process, with a JVM of its own."""

    def __init__(self, role: str, log: Path) -> None:
        self.role = role
        with log.open("wb") as errors, warm_workers():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.spark.roles", role],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                text=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no threads yet
            )
        self._log = log

    def send(self, **order: object) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def hear(self, last: str) -> list[Commit]:
        """Read its journal until a line that says this."""
        assert self._process.stdout is not None
        commits = []
        for line in self._process.stdout:
            if line.strip() == last:
                return commits
            said = json.loads(line)
            said["put"] = {int(key): value for key, value in said["put"].items()}
            commits.append(Commit(**{**said, "taken": tuple(said["taken"])}))
        message = f"{self.role} ended: {self._log.read_text()[-4000:]}"
        raise AssertionError(message)

    def stop(self) -> None:
        """Let it end by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Driver]]:
    """Give each role a driver, but for that which this process plays."""
    place = tmp_path_factory.mktemp("drivers")
    found = [Driver(role, place / f"{role}.log") for role in ROLES if role != OURS]
    try:
        for driver in found:
            driver.hear("ready")
        yield found
    finally:
        for driver in found:
            driver.stop()


def compete(spark: SparkSession, drivers: list[Driver], table: Table) -> None:
    commits = [stock(spark, table)]
    uri, allow = str(table.inspect.describe()["uri"]), list(table._handle.consent.patterns)
    for driver in drivers:
        driver.send(uri=uri, rounds=ROUNDS, allow=allow)
    commits += play(OURS, spark, uri, ROUNDS, allow)
    for driver in drivers:
        commits += driver.hear("done")
    assert len(commits) == 1 + ROUNDS * len(ROLES)
    judge(table, commits)


@pytest.mark.long(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_jobs_with_drivers_of_their_own_lose_no_update(
    spark: SparkSession, drivers: list[Driver], tmp_path: Path, kind: str
) -> None:
    """INV-07, INV-08, INV-10: in turns by the file lock."""
    compete(spark, drivers, create(str(tmp_path / "t"), kind, "file"))


@pytest.mark.long(1)
@pytest.mark.zookeeper
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_jobs_with_drivers_of_their_own_lose_no_update_in_zookeeper(
    spark: SparkSession,
    drivers: list[Driver],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
) -> None:
    """INV-07, INV-08, INV-10: in turns by ZooKeeper."""
    lock = request.getfixturevalue("zookeeper").lock(f"spark-jobs-{kind}", session="10s")
    compete(spark, drivers, create(str(tmp_path / "t"), kind, lock))


@pytest.mark.long(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_threads_of_one_driver_lose_no_update(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """INV-07, INV-08, INV-10: one session, a thread a job."""
    table = create(str(tmp_path / "t"), kind, "file")
    commits = [stock(spark, table)]
    uri = str(table.inspect.describe()["uri"])
    with ThreadPoolExecutor(len(ROLES)) as pool:
        # A session of the thread: without one Spark finds no data source there.
        jobs = [pool.submit(lambda r=r: list(play(r, session(), uri, ROUNDS))) for r in ROLES]
        for job in jobs:
            commits += job.result()
    judge(table, commits)
