"""What a process of a sink has in memory at most, whatever the size of the records."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plait import Table
from tests.integration.kafka.conftest import Events, wait_for

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc"),
]

_MIB = 1 << 20
MEMORY = 64 * _MIB
PEAK_MAX = 340 * _MIB
"""The documented bound of such a process, 310 MiB, and some for the allocators."""
PRODUCED = 192 * _MIB


@pytest.mark.long(1)
@pytest.mark.parametrize("size", [1_000, 100_000, 900_000])
def test_a_process_stays_within_its_memory_whatever_the_size_of_records(
    make_events: Callable[..., Events], tmp_path: Path, size: int
) -> None:
    """The records are there before it starts, so it reads them as fast as it can."""
    events, uri = make_events(4), str(tmp_path / "t")
    table = Table.create(uri, "id bigint, note string")
    count = PRODUCED // size
    _fill(events, count, os.urandom(size // 2).hex())
    line = [
        sys.executable, "-m", "plait.cli", "sink", "kafka", uri, "--topic", events.name,
        "--bootstrap", events.kafka.bootstrap, "--interval", "3", "--memory", str(MEMORY),
    ]  # fmt: skip
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    try:
        wait_for(table, count)
        assert _peak(process.pid) < PEAK_MAX
    finally:
        process.kill()
        process.wait()


def _fill(events: Events, count: int, note: str) -> None:
    producer = events.clients.producer()
    for number in range(count):
        value = f'{{"id":{number},"note":"{note}"}}'
        while True:
            try:
                producer.produce(events.name, value, str(number))
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(60) == 0


def _peak(pid: int) -> int:
    """Return the most memory that a process had since it began; that of its parent is not in it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
