"""Starts worker processes and reads what they report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.process import Service

WORKER = Path(__file__).with_name("worker.py")


class Worker(Service):
    """One worker process; killed, also when stopped, at the end of the block."""

    def __init__(self, role: str, uri: str, place: str, *rest: object) -> None:
        arguments = [sys.executable, str(WORKER), role, uri, place, *map(str, rest)]
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
        )

    def stop(self) -> None:
        """Kill it, and let go of its pipes."""
        self.process.kill()
        self.process.wait(30)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def hear(self) -> dict[str, object]:
        """Read the next report."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the worker ended with {self.process.wait(30)}"
        report = json.loads(line)
        assert isinstance(report, dict)
        return report

    def hear_all(self) -> list[dict[str, object]]:
        """Read every report until the worker ends; a line cut off by a kill is left out."""
        assert self.process.stdout is not None
        lines = self.process.stdout.read().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def go(self) -> None:
        """Let a waiting worker go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)


@contextmanager
def fleet(count: int, uri: str, *rest: object) -> Iterator[list[Worker]]:
    """Start workers that wait for each other before they begin."""
    workers = [Worker("upserts", uri, str(number), *rest) for number in range(count)]
    try:
        for worker in workers:
            assert worker.hear()["event"] == "ready"
        for worker in workers:
            worker.go()
        yield workers
    finally:
        for worker in workers:
            worker.__exit__(None, None, None)


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}
