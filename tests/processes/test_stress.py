"""Stress in small: what `make stress` does for 1,000 commits of 16 processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.stress.run import Stress

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_processes_stopped_and_killed_lose_no_update(tmp_path: Path, table_type: str) -> None:
    """INV-01 to INV-10, judged by journals and by the timeline, each by itself."""
    seen = Stress(
        str(tmp_path / "t"), tmp_path, processes=6, commits=80, table_type=table_type, seed=1
    ).run()
    assert seen["commits"]
    assert seen["rebased"], "no two ever met: the test showed nothing"
