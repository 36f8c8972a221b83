"""Processes bring the same keys into different partitions, and are killed and stopped.

``make stress-unique`` does the same with 100,000 keys.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.moves.run import Run
from tests.processes.moves.worker import Plan


@pytest.mark.parametrize(("kind", "index"), [("mor", True), ("cow", False)])
def test_no_key_is_ever_in_two_partitions_whoever_dies(
    tmp_path: Path, kind: str, *, index: bool
) -> None:
    """INV-01 to INV-08."""
    run = Run(Plan(str(tmp_path), keys=40, batch=8), writers=8, seconds=4, seed=7)
    seen = run.carry_out(kind, "key", index=index)
    assert seen["commits"]
