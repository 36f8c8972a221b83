"""Processes bring the same keys into different partitions, and are killed and stopped.

``make stress-unique`` does the same with 100,000 keys.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.moves.run import Run
from tests.processes.moves.worker import Plan
from tests.processes.stress.__main__ import SLOWNESS_S3, kill_leader
from tests.services.s3 import S3Server
from tests.services.zookeeper import ZooKeeper

LEAST = 6
"""Commits of a run, however slow the machine is."""


@pytest.mark.long(1)
@pytest.mark.parametrize(("kind", "index"), [("mor", True), ("cow", False)])
def test_no_key_is_ever_in_two_partitions_whoever_dies(
    tmp_path: Path, kind: str, *, index: bool
) -> None:
    """INV-01 to INV-08."""
    plan = Plan(str(tmp_path), str(tmp_path / "table"), keys=40, batch=8)
    seen = Run(plan, writers=8, seconds=4, seed=7, least=LEAST).carry_out(kind, "key", index=index)
    assert seen["commits"]


@pytest.mark.long(1)
@pytest.mark.s3
@pytest.mark.parametrize("kind", ["mor", "cow"])
def test_no_key_is_ever_in_two_partitions_on_s3_whoever_dies(
    tmp_path: Path, s3_server: S3Server, kind: str
) -> None:
    """INV-01 to INV-11: with the slots alone."""
    plan = Plan(
        str(tmp_path),
        s3_server.uri(f"moves-{kind}"),
        keys=40,
        batch=8,
        options=s3_server.options,
        slowness=SLOWNESS_S3,
    )
    seen = Run(plan, writers=4, seconds=5, seed=7, least=LEAST).carry_out(
        kind, "key", index=kind == "mor"
    )
    assert seen["commits"]


@pytest.mark.zookeeper
def test_no_key_is_ever_in_two_partitions_while_zookeeper_loses_its_leader(
    tmp_path: Path, ensemble: ZooKeeper
) -> None:
    """INV-01 to INV-11."""
    plan = Plan(
        str(tmp_path),
        str(tmp_path / "table"),
        keys=40,
        batch=8,
        lock=ensemble.lock("moves"),
    )
    run = Run(
        plan,
        writers=8,
        seconds=8,
        seed=7,
        least=LEAST,
        disturb=lambda _: kill_leader(ensemble),
        disturbances=1,
    )
    seen = run.carry_out("mor", "key", index=True)
    assert seen["commits"]
    assert seen["disturbances"] == 1
