"""A repush is killed again and again beside processes that write: no update is lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait import Table
from tests.processes.repush_worker import SCHEMA

WRITERS = 4
KILLS = 16
WRITING_S = 120
"""Far longer than an idle machine needs for all kills."""


def start(role: str, uri: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.processes.repush_worker", role, uri, str(number)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> str:
    """Wait for a process that must succeed, and return what it said."""
    said, problems = process.communicate("over\n")
    assert process.returncode == 0, problems
    return said


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_writers_lose_no_update_beside_a_repush_that_is_killed(
    tmp_path: Path, table_type: str
) -> None:
    """INV-01 to INV-10, INV-15: and no writer meets an error because of it."""
    uri, draw = str(tmp_path / "t"), random.Random(7)
    table = Table.create(uri, SCHEMA, record_key="id", buckets=2, table_type=table_type)
    writers = [start("write", uri, number) for number in range(WRITERS)]
    buckets = 3
    began = time.monotonic()
    for _ in range(KILLS):
        repusher = start("repush", uri, buckets)
        try:
            repusher.communicate(timeout=draw.uniform(0.5, 1.5))
        except subprocess.TimeoutExpired:
            repusher.kill()
            repusher.communicate()
        if table.handle.cache.refresh().table.repush is None:
            buckets = 3 + (buckets + 1) % 4
        assert time.monotonic() - began < WRITING_S
    open_now = table.handle.cache.refresh().table.repush
    wanted = buckets if open_now is None else open_now.layout.buckets.count
    ended(start("repush", uri, wanted))
    known: dict[int, int] = {}
    for writer in writers:
        known.update({int(key): int(value) for key, value in json.loads(ended(writer))["known"]})
    table = Table.open(uri)
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == len(known)
    assert {row["id"]: row["v"] for row in rows} == known
    report = table.verify(data=True)
    assert not report.problems
    assert table.handle.cache.refresh().table.former, "no swap: the test showed nothing"
    assert table.handle.cache.refresh().table.spec.buckets.count == wanted
