"""What ``make test`` leaves out of the tests that are marked long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/unit/txn/test_time_bounds.py"
FAMILY = "test_what_one_read_ends_with_the_next_begins_with_whatever_clocks_do"


def collected(*options: str) -> list[str]:
    line = [sys.executable, "-m", "pytest", "-q", "--co", FILE, *options]
    found = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in found.stdout.splitlines() if FAMILY in name)


@pytest.mark.slow
def test_the_short_form_of_a_long_test_is_the_same_in_every_run() -> None:
    """It keeps the first of the parameter sets and others at even distances."""
    every, one = collected("--randomly-seed=1"), collected("--short", "--randomly-seed=2")
    assert one == every[:: len(every) // len(one)]
    assert len(one) == 15 < len(every)
