"""Stress in small: what `make stress` does for 1,000 commits of 16 processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.stress.__main__ import SLOWNESS_S3, kill_leader
from tests.processes.stress.run import Stress
from tests.services.s3 import S3Server
from tests.services.zookeeper import ZooKeeper
from tests.support.effort import MORE

COMMITS = 80 if MORE else 40


@pytest.mark.long(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_processes_stopped_and_killed_lose_no_update(tmp_path: Path, table_type: str) -> None:
    """INV-01 to INV-10, judged by journals and by the timeline, each by itself."""
    seen = Stress(
        str(tmp_path / "t"), tmp_path, processes=6, commits=COMMITS, table_type=table_type, seed=1
    ).run()
    assert seen["commits"]
    assert seen["rebased"], "no two ever met: the test showed nothing"


@pytest.mark.long(1)
@pytest.mark.parametrize(("table_type", "policy"), [("cow", "key"), ("mor", "merge")])
def test_writers_lose_no_update_beside_services_that_are_killed(
    tmp_path: Path, table_type: str, policy: str
) -> None:
    """INV-01 to INV-10, INV-14, INV-15: a service is nobody's conflict."""
    seen = Stress(
        str(tmp_path / "t"),
        tmp_path,
        processes=5,
        services=2,
        commits=COMMITS,
        table_type=table_type,
        policy=policy,
        awaits=("archives", "carried", "compactions" if table_type == "mor" else "clusterings"),
        seed=5,
    ).run()
    assert seen["compactions" if table_type == "mor" else "clusterings"]
    assert seen["archives"]
    assert seen["carried"], "no writer ever met a rewrite: the test showed nothing"


@pytest.mark.long(1)
@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_published_versions_are_equal_in_every_engine_whoever_is_killed(
    tmp_path: Path, table_type: str
) -> None:
    """INV-17: publishers, writers, a repush and services, stopped and killed."""
    seen = Stress(
        str(tmp_path / "t"),
        tmp_path,
        processes=4,
        services=1,
        publishers=3,
        commits=COMMITS,
        table_type=table_type,
        seed=6,
        kills=4,
        awaits=("repushes",),
        lasts_s=300 if MORE else 0,
        deadline_s=560,
    ).run()
    assert seen["published"]


@pytest.mark.long(1)
@pytest.mark.s3
def test_processes_lose_no_update_on_s3(tmp_path: Path, s3_server: S3Server) -> None:
    """INV-01 to INV-11: with the slots alone."""
    Stress(
        s3_server.uri("stress"),
        tmp_path,
        processes=4,
        commits=12,
        options=s3_server.options,
        seed=2,
        slowness=SLOWNESS_S3,
    ).run()


@pytest.mark.zookeeper
def test_processes_lose_no_update_while_zookeeper_loses_its_leader(
    tmp_path: Path, ensemble: ZooKeeper
) -> None:
    """INV-01 to INV-11."""
    seen = Stress(
        str(tmp_path / "t"),
        tmp_path,
        processes=5,
        commits=60,
        lock=ensemble.lock("stress"),
        seed=3,
        disturb=lambda _: kill_leader(ensemble),
        disturbances=1,
    ).run()
    assert "'disturbances': 1" in str(seen["signals"])
