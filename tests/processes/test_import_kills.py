"""An import is killed in the middle, and the same command ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from plait import Table

FILES, ROWS = 60, 20
LOOK_S = 0.01


def tasks(target: Path) -> int:
    """Count the decisions of the table that an import builds."""
    return sum(1 for _ in target.glob("repush-*/.meta/timeline/*/*.json"))


def test_an_import_that_was_killed_goes_on_and_brings_no_row_twice(tmp_path: Path) -> None:
    """INV-09, INV-15: each kill leaves an import that the same command ends."""
    source, target = tmp_path / "old", tmp_path / "new"
    source.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(
            pa.table({"id": ids, "v": [str(each) for each in ids]}), source / f"{number}"
        )
    command = [sys.executable, "-m", "plait.cli", "import", str(source), str(target)]
    command += ["--record-key", "id", "--rows-per-task", str(ROWS)]
    kills = 0
    for goal in (1, 10, 30):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while process.poll() is None and tasks(target) < goal:
                time.sleep(LOOK_S)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert Table.open(str(target)).scan().count() == 0  # until one decision shows all
    assert kills == 3
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"imported in version" in done.stdout
    table = Table.open(str(target))
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": each, "v": str(each)} for each in range(FILES * ROWS)]
    assert table.check.verify().problems == ()
