"""A run: writers that never stop, repushes that are killed, and a judge who knows every row."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plait import Table
from tests.processes.repushes.worker import FIRST, GONE, LAYOUTS, PLACES, SCHEMA, Plan, rows

_AT_ONCE = 500_000
_BEGINS_S = 300
"""Far longer than Spark needs to start."""
_GROWTH = 1.1
_ENDS_S = 3_600
"""Far longer than the last repush needs, which nobody kills."""


def planned(folder: Path, **how: Any) -> Plan:
    """Make the table, and note the plan for the others."""
    plan = Plan(uri=str(folder / "table"), **how)
    kept = {"clean.retain.time": "0s", "clean.retain.versions": 1, "clean.grace": "10s"}
    table = Table.create(plan.uri, SCHEMA, record_key="id", properties=kept, **FIRST)  # type: ignore[arg-type]  # of one layout
    if plan.rows:
        with table.writer("insert") as writer:
            for first in range(0, plan.rows, _AT_ONCE):
                writer.write(rows(np.arange(first, min(first + _AT_ONCE, plan.rows)), None))
    (folder / "plan.json").write_text(json.dumps(asdict(plan)), encoding="utf-8")
    return plan


@dataclass
class Run:
    """Kills one repush after the other, and then sees that every row is as its writer knows it."""

    folder: Path
    plan: Plan
    kills: int
    seed: int
    span_s: float
    """A repush is killed before it has worked for so long the first time; each kill of the same
    repush grants the next one more, so that a slow machine comes to a swap too."""

    def carry_out(self) -> dict[str, object]:
        """Run it; return what was seen.

        Raises:
            AssertionError: a process failed, or a row is wrong.
        """
        draw, began = random.Random(self.seed), time.monotonic()
        writers = [self._start("write", number) for number in range(self.plan.writers)]
        try:
            killed = self._kill_all(draw)
            report = self._last()
            said = [_ended(writer, "over\n") for writer in writers]
        finally:
            for process in writers:
                process.kill()
        self._judge(said)
        table = Table.open(self.plan.uri)
        swaps = sum(each.operation == "repush" for each in table.inspect.history(limit=1_000_000))
        assert swaps, "no swap: the run showed nothing"
        return {
            "seconds": round(time.monotonic() - began),
            "kills": killed,
            "swaps": swaps,
            "commits": sum(each["commits"] for each in said),
            "longest_commit_s": max(each["longest_s"] for each in said),
            "rows": table.scan().count(),
            "last": report,
        }

    def _kill_all(self, draw: random.Random) -> int:
        killed, layout, span_s, began = 0, 0, self.span_s, time.monotonic()
        while killed < self.kills:
            process = self._start("repush", layout)
            self._began(process)
            try:
                process.wait(draw.uniform(0, span_s))
            except subprocess.TimeoutExpired:
                _kill(process, whole=draw.random() < 0.5)
                killed += 1
                span_s *= _GROWTH
            else:
                _ended(process)
            self._tell(killed, began)
            if self._open_layout() is None:
                Table.open(
                    self.plan.uri
                ).maintenance.clean()  # an open one keeps all since it began
                layout, span_s = (layout + 1) % len(LAYOUTS), self.span_s
        return killed

    def _tell(self, killed: int, began: float) -> None:
        """Say how far the run is: it takes an hour, and whoever waits should see it go on."""
        version, seconds = Table.open(self.plan.uri).version, time.monotonic() - began
        sys.stderr.write(f"{seconds:6.0f} s  {killed} of {self.kills} kills, version {version}\n")

    def _last(self) -> dict[str, Any]:
        """End what is open, or lay it out once more, and let nobody kill it."""
        table = Table.open(self.plan.uri)._handle.cache.refresh().table
        there, now = self._open_layout(), table.spec.layout.buckets.count
        counts = [layout["buckets"] for layout in LAYOUTS]
        wanted = (counts.index(now) + 1) % len(counts) if there is None else counts.index(there)
        return _ended(self._start("repush", wanted), limit_s=_ENDS_S)

    def _open_layout(self) -> int | None:
        """Return how many buckets the open repush leads to."""
        there = Table.open(self.plan.uri)._handle.cache.refresh().table.repush
        return None if there is None else there.layout.buckets.count

    def _start(self, role: str, number: int) -> subprocess.Popen[str]:
        module = "tests.processes.repushes.worker"
        command = [sys.executable, "-m", module, role, str(self.folder / "plan.json"), str(number)]
        with (self.folder / f"{role}-{number}.log").open("a") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    @staticmethod
    def _began(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _BEGINS_S)
        assert ready, "a repush did not begin"
        assert process.stdout.readline() == "began\n", "a repush did not begin: see its log"

    def _judge(self, said: list[dict[str, Any]]) -> None:
        """Compare every row with what is known of its key (INV-01, INV-04, INV-08)."""
        expected = np.arange(self.plan.keys)
        expected[self.plan.rows :] = GONE
        for each in said:
            if each["known"]:
                keys, values = np.array(each["known"]).T
                expected[keys] = values
        found = np.full(self.plan.keys, GONE)
        table = Table.open(self.plan.uri)
        for batch in table.scan().to_reader():
            keys = batch["id"].to_numpy()
            assert (found[keys] == GONE).all(), "a key comes twice"
            found[keys] = batch["v"].to_numpy()
            assert len(np.unique(keys)) == len(keys), "a key comes twice"
            assert (batch["p"].to_numpy(zero_copy_only=False) == PLACES[keys % 3]).all()
        wrong = np.flatnonzero(found != expected)
        assert not len(wrong), f"{len(wrong)} wrong rows, of the keys {wrong[:5].tolist()}"
        report = table.check.verify(data=True)
        assert not report.problems, report.problems[:3]


def _kill(process: subprocess.Popen[str], *, whole: bool) -> None:
    """Kill a process, or the processes that it began too; they may go on for a while otherwise."""
    (os.killpg if whole else os.kill)(process.pid, signal.SIGKILL)
    process.communicate()


def _ended(
    process: subprocess.Popen[str], line: str = "", *, limit_s: float = 600
) -> dict[str, Any]:
    """Wait for a process that must succeed, and return what it said last."""
    said, _ = process.communicate(line or None, timeout=limit_s)
    assert process.returncode == 0, f"{process.args} ended with {process.returncode}: see its log"
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    return told
