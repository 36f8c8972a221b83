"""The short form of ``tests.processes.stream_kills``: a real driver, killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import stream_kills

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


def test_every_row_is_there_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    """INV-09: append and upsert beside each other, a kill at each moment that counts."""
    done = stream_kills.run(tmp_path, epochs=6, kills=2, seed=3)
    assert done.epochs >= 6
    assert done.drivers == 3
    assert done.mid_epoch >= 1, "while rows were staged"
    assert done.replayed >= 1, "between publish and Spark's own log: the epoch came again"
