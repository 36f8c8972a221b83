"""The Kafka quickstart, with a few flights: real broker, real processes, one of them killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kafka

WAIT_S = 240


@pytest.mark.usefixtures("kafka")  # its jars
def test_the_quickstart_ends_with_every_value_right(tmp_path: Path) -> None:
    order = ["--directory", str(tmp_path / "q"), "--flights", "20000", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "examples.quickstart_kafka", *order],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)["data"]
    assert (told["events"], told["problems"]) == (40_000, [])
    assert 19_000 < told["rows"] < 20_000, "cancelled flights are gone"
    assert not (tmp_path / "q" / "run").exists(), "what is not needed any more is removed"
