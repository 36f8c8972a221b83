"""A repush is killed again and again beside processes that write: no update is lost.

``make soak`` kills more often, and ``make stress-repush`` does the same on Spark with 5,000,000
rows and 50 kills.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.repushes.run import Run, planned
from tests.support.effort import MORE, share

WRITERS, KILLS = (4, 16) if MORE else (2, 2 + share(3))


def test_writers_lose_no_update_beside_a_repush_that_is_killed(tmp_path: Path) -> None:
    """INV-01 to INV-10, INV-15: and no writer meets an error because of it."""
    plan = planned(tmp_path, rows=400, writers=WRITERS, per_task=50, spark=False)
    seen = Run(tmp_path, plan, kills=KILLS, seed=7, span_s=1.0).carry_out()
    assert seen["kills"] == KILLS


@pytest.mark.long(0)
@pytest.mark.spark
def test_a_repush_on_spark_is_killed_beside_processes_that_write(tmp_path: Path) -> None:
    """INV-01 to INV-10, INV-15: executors whose driver is dead do no harm."""
    plan = planned(tmp_path, rows=20_000, writers=2, per_task=5_000, spark=True)
    seen = Run(tmp_path, plan, kills=2, seed=7, span_s=10).carry_out()
    assert seen["kills"] == 2
