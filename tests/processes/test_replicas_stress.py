"""Stress of the dual write in small: what `make stress-replicas` does for 1,000,000 rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.replicas.run import Run, planned
from tests.services.kafka import Kafka
from tests.services.postgresql import PostgreSql

pytestmark = [pytest.mark.kafka, pytest.mark.postgresql]


@pytest.mark.long(0)
def test_the_ledger_tells_of_every_row_and_repaired_sinks_are_equal(
    kafka: Kafka, postgresql: PostgreSql, tmp_path: Path
) -> None:
    """D1, D2, D3: two tables, PostgreSQL and Kafka, in trouble; the writers are killed."""
    plan = planned(
        tmp_path,
        postgresql,
        kafka,
        rows=6_000,
        chunk=500,
        batch=100,
        writers=2,
        share=0.05,
        patience_s=8,
    )
    seen = Run(plan, seed=3, round_attempts=16, kill_attempts=6).carry_out()
    assert seen["rows"] == 6_000 - 12 * 10
    assert seen["killed"]
    assert seen["attempts_on_record"], "nobody failed in the middle"
