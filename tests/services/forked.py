"""Processes forked from one that has everything imported, so that one more costs little."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from tests.services.process import Service, die_with_parent

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests",  # before plait, whose thresholds it may lower
        # Arrow imports it with the first rows: half a second in each process.
        "pandas",
        "plait.arrow.engine",
        "pyarrow.acero",
        "pyarrow.dataset",
        "plait.storage.race",
        "tests.processes.dual_writer",
        "tests.processes.hands",
        "tests.processes.stream_worker",
        "tests.processes.stress.work",
        "tests.processes.worker",
    ]
)


class Forked(Service):
    """A process that runs a function; it takes orders and reports by lines."""

    def __init__(
        self, run: Callable[..., None], *arguments: object, log: Path | None = None
    ) -> None:
        into, self._orders = CONTEXT.Pipe(duplex=False)
        self._reports, out = CONTEXT.Pipe(duplex=False)
        self._process = CONTEXT.Process(
            target=_live, args=(into, out, log, run, arguments), daemon=True
        )
        self._process.start()
        into.close()
        out.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self._lines = open(os.dup(self._reports.fileno()))  # noqa: SIM115 - closed by stop

    def hear(self) -> dict[str, object]:
        """Read the next report."""
        line = self._lines.readline()
        assert line, f"the process ended with {self.wait()}"
        report = json.loads(line)
        assert isinstance(report, dict)
        return report

    def hear_all(self) -> list[dict[str, object]]:
        """Read every report until it ends; a line cut off by a kill is left out."""
        lines = self._lines.read().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def go(self) -> None:
        """Let it go on that waits for a line."""
        os.write(self._orders.fileno(), b"\n")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until it ends; return its exit code, or None if it goes on."""
        self._process.join(timeout_s)
        return self._process.exitcode

    def stop(self) -> None:
        """Kill it, and let go of its pipes."""
        self._process.kill()
        self._process.join()
        self._lines.close()
        self._orders.close()
        self._reports.close()


def _live(
    into: Connection,
    out: Connection,
    log: Path | None,
    run: Callable[..., None],
    arguments: tuple[object, ...],
) -> None:
    """Be the process."""
    die_with_parent()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    os.dup2(into.fileno(), 0)
    os.dup2(out.fileno(), 1)
    into.close()
    out.close()
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    if log is not None:
        sys.stderr = log.open("a", buffering=1)
    run(*arguments)
    sys.stdout.flush()
