"""Tables whose writers queue on a lock between processes: they all get through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from plait.table import Table
from tests.services.zookeeper import ZooKeeper

WRITER = """
import sys
import pyarrow as pa
from plait.table import Table
table, who = Table.open(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
attempts = 0
for number in range(8):
    rows = pa.table({"id": pa.array([who * 100 + number], pa.int64())})
    attempts += table.upsert(rows, on_conflict="retry").attempts
print(attempts, flush=True)
"""
WRITERS = 4


def run_writers(uri: str) -> list[int]:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, uri, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "src"},
        )
        for number in range(WRITERS)
    ]
    attempts = []
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        out, _ = writer.communicate()
        attempts.append(int(out))
    return attempts


def check(uri: str, lock: str) -> None:
    """Let every writer change the one bucket: each loses now and then, and none gives up."""
    table = Table.create(uri, "id bigint", record_key=["id"], buckets=1, lock=lock)
    run_writers(uri)
    expected = [who * 100 + number for who in range(WRITERS) for number in range(8)]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == expected
    assert table.verify().problems == ()
    # Who lost often enough keeps a place, and that is a decision too.
    writes = [each for each in table.history() if each.operation == "upsert"]
    assert len(writes) == len(expected)
    assert table.locks().holder is None


def test_writers_of_one_bucket_get_through_under_a_lease(tmp_path: Path) -> None:
    """INV-07, INV-08."""
    check(str(tmp_path / "table"), "lease:5s")


@pytest.mark.zookeeper
def test_writers_of_one_bucket_get_through_in_zookeeper(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """INV-07, INV-08."""
    check(str(tmp_path / "table"), zookeeper.lock("tables"))


@pytest.mark.zookeeper
def test_writers_of_one_bucket_get_through_with_lent_slots(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """INV-07, INV-08."""
    lock = zookeeper.lock("lent-tables") + "&slots=lent"
    check(str(tmp_path / "table"), lock)
    assert Table.open(str(tmp_path / "table")).locks().slots == "lent"


def test_a_death_under_the_lease_delays_the_others_by_its_time(tmp_path: Path) -> None:
    """INV-11: the lease of the dead runs out, and everybody goes on."""
    uri = str(tmp_path / "table")
    Table.create(uri, "id bigint", record_key=["id"], buckets=1, lock="lease:1s")
    program = """
import os, sys
from plait.table import Table
held = Table.open(sys.argv[1]).handle.lock.acquire(wait_s=5, owner="the doomed")
held.__enter__()
os._exit(9)
"""
    environment = {**os.environ, "PYTHONPATH": "src"}
    done = subprocess.run([sys.executable, "-c", program, uri], env=environment, check=False)
    assert done.returncode == 9
    holder = Table.open(uri).locks().holder
    assert holder is not None
    assert "the doomed" in holder.owner
    run_writers(uri)
    table = Table.open(uri)
    assert table.scan().to_arrow().num_rows == 8 * WRITERS
    rows = pa.table({"id": pa.array([7], pa.int64())})
    assert table.upsert(rows).attempts == 1
