"""A run: writers that are killed and stopped, and a judge who follows every commit."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from plait import Table
from tests.processes.moves.worker import TIMEOUT_S, Plan, create, work
from tests.services.forked import CONTEXT

_ENDS_S = 600
"""Far longer than a commit takes."""
_SAMPLES = 12
"""So many versions are read whole, beside the last."""
State = dict[int, tuple[str, str]]


@dataclass
class Run:
    """Writers, and what is done to them."""

    plan: Plan
    writers: int
    seconds: float
    seed: int
    disturb: Callable[[int], object] | None = None
    """Called so many times on the way with how often it was called before."""
    disturbances: int = 0
    least: int = 0
    """Go on until so many commits landed, with nobody in trouble any more."""
    kills: int = 0
    stops: int = 0
    _running: dict[int, BaseProcess] = field(default_factory=dict)
    _stopped: dict[int, float] = field(default_factory=dict)
    """By process: when it is to go on."""

    def carry_out(self, kind: str, policy: str, *, index: bool) -> dict[str, object]:
        """Run it; return what was seen.

        Raises:
            AssertionError: a key lives twice, a commit is not whole, or a process failed.
        """
        create(self.plan, kind, policy, index=index)
        draw = random.Random(self.seed)
        began = time.monotonic()
        lives = disturbed = 0
        try:
            while (passed := time.monotonic() - began) < self.seconds or (
                disturbed < self.disturbances and passed < _ENDS_S
            ):
                for number in range(self.writers):
                    process = self._running.get(number)
                    if process is None or not process.is_alive():
                        lives += 1
                        self._start(number, lives)
                time.sleep(draw.uniform(0.05, 0.4) * self.plan.slowness)
                self._trouble(draw.choice([*self._running.values()]), draw)
                due = passed * (self.disturbances + 1) / self.seconds
                if self.disturb and due >= disturbed + 1 <= self.disturbances:
                    self.disturb(disturbed)
                    disturbed += 1
            self._go_on(math.inf)
            while self._landed() < self.least and time.monotonic() - began < _ENDS_S:
                time.sleep(0.1)  # a slow machine gets there too
            self.plan.over.touch()
            for process in self._running.values():
                process.join(_ENDS_S)
                assert process.exitcode == 0, f"a writer ended with {process.exitcode}"
        finally:
            for process in self._running.values():
                process.kill()
        done = {"kills": self.kills, "stops": self.stops, "disturbances": disturbed}
        return {**done, "seconds": self.seconds, **self.judge()}

    def _landed(self) -> int:
        """Count the commits that writers know to have landed."""
        return sum("version" in each for each in _noted(Path(self.plan.folder)))

    def _start(self, number: int, life: int) -> None:
        process = CONTEXT.Process(target=work, args=(self.plan, f"w{number}-{life}"), daemon=True)
        process.start()
        self._running[number] = process

    def _trouble(self, process: BaseProcess, draw: random.Random) -> None:
        """Kill a writer, or stop it for a while, maybe until others take it for dead."""
        self._go_on(time.monotonic())
        if process.pid is None or not process.is_alive():
            return
        if draw.random() < 0.5:
            process.kill()
            process.join()
            self._stopped.pop(process.pid, None)
            self._running = {n: each for n, each in self._running.items() if each is not process}
            self.kills += 1
        elif process.pid not in self._stopped:
            os.kill(process.pid, signal.SIGSTOP)
            lasts = draw.choice([0.1, 0.5, TIMEOUT_S * self.plan.slowness + 0.5])
            self._stopped[process.pid] = time.monotonic() + lasts
            self.stops += 1

    def _go_on(self, now: float) -> None:
        """Let those go on whose stop is over by some time."""
        for pid in [pid for pid, until in self._stopped.items() if until <= now]:
            os.kill(pid, signal.SIGCONT)
            del self._stopped[pid]

    def judge(self) -> dict[str, object]:
        """Follow the change feed commit by commit, and compare versions with it (INV-08)."""
        table = self.plan.open()
        noted = list(_noted(Path(self.plan.folder)))
        asked = {each["id"]: each for each in noted if "kind" in each}
        names = {each.version: each.commit_id for each in table.inspect.history(limit=1_000_000)}
        told = [each for each in noted if "version" in each]
        lost = [each for each in told if names.get(each["version"]) != each["id"]]
        assert not lost, f"a commit that was reported is not there: {lost[:5]}"
        last = table.version
        samples = {last, *random.Random(self.seed).sample(range(last + 1), min(_SAMPLES, last))}
        state: State = {}
        changes = _by_version(table)
        done = 0
        for version in range(1, last + 1):
            changed = _apply(state, changes.get(version, []), version)
            step = asked.get(names.get(version) or "")
            if step is not None:
                done += 1
                _require_whole(state, changed, step, version)
            if version in samples:
                _require_same(table, version, state)
        report = table.check.verify()
        assert not report.problems, report.problems[:3]
        moved = sum(
            row["_change_type"] == "update_postimage" for rows in changes.values() for row in rows
        )
        return {
            "versions": last,
            "read": len(samples),
            "commits": done,
            "told": len(told),
            "met": dict(Counter(each["met"] for each in noted if "met" in each)),
            "updated": moved,
            "rows": len(state),
        }


def _noted(folder: Path) -> Iterator[dict[str, Any]]:
    """Return what writers noted: each step, and what became of it."""
    for file in folder.glob("*.log"):
        for line in file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # its writer was killed in the line
                yield json.loads(line)


def _by_version(table: Table) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for batch in table.changes(since=0).to_reader():
        for row in batch.to_pylist():
            found.setdefault(row["_commit_version"], []).append(row)
    return found


def _apply(state: State, rows: list[dict[str, Any]], version: int) -> set[int]:
    """Take the changes of a commit; each key is changed once, from what it was."""
    before = [row for row in rows if row["_change_type"] in ("delete", "update_preimage")]
    after = [row for row in rows if row["_change_type"] in ("insert", "update_postimage")]
    for row in before:
        known = state.pop(row["id"], None)
        assert known == (row["place"], row["by"]), f"version {version}: {row} was {known}"
    for row in after:
        assert row["id"] not in state, (
            f"version {version} has a key twice: {row}, {state[row['id']]}"
        )
        state[row["id"]] = row["place"], row["by"]
    return {row["id"] for row in rows}


def _require_whole(state: State, changed: set[int], step: dict[str, Any], version: int) -> None:
    keys = set(step["keys"])
    assert changed <= keys, f"version {version} changed {sorted(changed - keys)[:5]} too: {step}"
    if step["kind"] != "delete":
        wrong = [key for key in keys if state.get(key) != (step["place"], step["id"])]
        assert not wrong, f"version {version} lacks {wrong[:5]}: {step}"


def _require_same(table: Table, version: int, state: State) -> None:
    found = table.scan(version=version).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), f"version {version} has a key twice"
    read = {row["id"]: (row["place"], row["by"]) for row in found}
    assert read == state, f"version {version} is not what its commits say"
