"""Stress of the Kafka sink in small: what `make stress-kafka` does for 3,000,000 records."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.processes.kafka.claims import Claims
from tests.processes.kafka.run import Plan, Run
from tests.services.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_every_record_is_there_once_whatever_is_killed(kafka: Kafka, tmp_path: Path) -> None:
    """INV-09, INV-11: sinks and the broker are killed, and the control topic is damaged."""
    plan = Plan(records=30_000, keyed=True, table_type="mor", kills=3, pause_s=1, seed=4)
    seen = Run(plan, kafka, tmp_path).carry_out()
    assert seen["done"] == {"kill": 3, "stop": 1, "leave": 1, "broker": 1}
    assert seen["ended_by_themselves"] == {}
    assert seen["noise"], "nothing was damaged: the test showed less than it says"


@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_coordinators_alive_one_goes_on(
    kafka: Kafka, tmp_path: Path, *, keyed: bool
) -> None:
    """INV-09: each epoch once; the older one stops within a heartbeat interval."""
    seen = Claims(kafka, tmp_path, keyed=keyed, seed=1).play(3)
    assert seen["epochs"]


def test_a_partition_that_was_taken_comes_back_if_the_other_one_goes(
    kafka: Kafka, tmp_path: Path
) -> None:
    """The process does not end: the group may say that the partition is its own after all."""
    claims = Claims(kafka, tmp_path, keyed=False, seed=1)
    older = claims.claim()
    claims.produce()
    newer = claims.claim()
    while not older.lost:
        assert not older.errors, older.errors
        time.sleep(0.01)
    newer.end()
    claims.produce()
    claims.await_rows(older)
    older.end()
    claims.judge()
