"""Processes that run one repush, and one that runs beside writers that never pause (RFC 0034)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from plait import Table

ROWS, A_TASK = 600, 20
TOGETHER = """
import json, sys, time
from pathlib import Path
from plait import Table
from plait.repush import load

uri, go = sys.argv[1], Path(sys.argv[2])
read, real = [], load.Load._read

def counted(self, part):
    read.append(self.parts.index(part))
    return real(self, part)

load.Load._read = counted
table = Table.open(uri)
print("ready", flush=True)
while not go.exists():
    time.sleep(0.005)
report = table.layout.repush(buckets=3, rows_per_task=int(sys.argv[3]), commit_id="one")
print(json.dumps([read, report.rows_loaded, report.version]))
"""
BUSY = """
import sys
from pathlib import Path
import pyarrow as pa
from plait import Table

uri, stop, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
table, done = Table.open(uri), 0
while not stop.exists():
    ids = pa.array([1_000_000 * number + done], pa.int64())
    table.append(pa.table({"id": ids}))
    done += 1
    if done == 1:
        print("ready", flush=True)
print(done)
"""


def started(program: str, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def told(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return said


def test_two_processes_on_one_repush_do_each_task_once(tmp_path: Path) -> None:
    """One is at work and the other waits; whoever looks next does the next task."""
    uri, go = str(tmp_path / "t"), tmp_path / "go"
    table = Table.create(uri, "id bigint", record_key="id", buckets=2)
    table.append(pa.table({"id": pa.array(range(ROWS), pa.int64())}))
    both = [started(TOGETHER, uri, str(go), str(A_TASK)) for _ in range(2)]
    go.touch()
    done = [json.loads(told(each)) for each in both]
    tasks = sorted(task for read, _, _ in done for task in read)
    assert tasks == list(range(len(tasks))), "each task once"
    assert sum(loaded for _, loaded, _ in done) == ROWS
    swaps = [entry.version for entry in table.inspect.history() if entry.operation == "repush"]
    assert {version for _, _, version in done} <= set(swaps)
    assert table.scan().count() == ROWS
    assert not table.check.verify().problems


def test_a_repush_ends_beside_processes_that_append_without_a_pause(tmp_path: Path) -> None:
    """INV-04: a table without a record key, whose appends conflict with nobody."""
    uri, stop = str(tmp_path / "t"), tmp_path / "stop"
    table = Table.create(uri, "id bigint")
    table.append(pa.table({"id": pa.array(range(1000), pa.int64())}))
    writers = [started(BUSY, uri, str(stop), str(number)) for number in (1, 2)]
    try:
        report = table.layout.repush(properties={"file.compression": "zstd"})
    finally:
        stop.touch()
    count = 1000 + sum(int(told(each)) for each in writers)
    assert report.version is not None
    assert table.properties["file.compression"] == "zstd"
    assert table.scan().count() == count
    assert not table.check.verify().problems
