"""A test of Spark that hangs is one failure, and those after it pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
HANGING = """
import pytest

HOUR = "SELECT java_method('java.lang.Thread', 'sleep', 3600000L)"

@pytest.mark.timeout(3, func_only=True)
def test_that_hangs(spark):
    try:
        spark.sql(HOUR).collect()
    finally:
        spark.sql(HOUR).collect()  # as a writer does that rolls back

def test_after_it(spark):
    assert spark.range(3).count() == 3
"""


@pytest.mark.long(0)
def test_a_time_out_is_one_failure(tmp_path: Path) -> None:
    """Also where the test goes on asking the JVM, which is busy, while it unwinds."""
    file = tmp_path / "test_hanging.py"
    file.write_text(HANGING)
    options = ["-p", "tests.conftest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "pyproject.toml", *options, "-v", str(file)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line.split("::")[1].split()[:2] for line in done.stdout.splitlines() if "%]" in line]
    assert said == [
        ["test_that_hangs", "FAILED"],
        ["test_after_it", "PASSED"],
    ], done.stdout
