"""Damage tables at random, judge what comes of it, and count what was done.

``python -m tests.fuzz.run --minutes 10 --seed 1``: rounds over every kind of file and of damage.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import math
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import exchange
from tests.fuzz.damage import DAMAGES
from tests.fuzz.tables import KINDS, build, classify, live
from tests.support.place import quick_place

ROOT = Path(__file__).resolve().parents[2]
CASE_S_MAX = 60.0


@dataclass
class Report:
    """What was tried and what was found."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    refused: int = 0
    peak: int = 0

    def lines(self) -> Iterator[str]:
        """Tell the counts by kind of file and of damage."""
        kinds = sorted({kind for kind, _ in self.counts})
        yield f"{'':18}" + " ".join(f"{name[:9]:>9}" for name in DAMAGES)
        for kind in kinds:
            counts = " ".join(f"{self.counts[kind, name]:9}" for name in DAMAGES)
            yield f"{kind:18}{counts}"
        total = sum(self.counts.values())
        yield (
            f"{total} mutations of {len(kinds)} kinds of files, {self.refused} steps refused, "
            f"{self.peak >> 20} MiB at most, {len(self.failures)} failures"
        )


class Fuzz:
    """Tables to damage, and the process that judges."""

    def __init__(self, place: str, seed: int) -> None:
        self.place, self.seed = Path(place), seed
        self.models = {
            k: build(f"{place}/{k}", k, seed=n + 1).to_dict() for n, k in enumerate(KINDS)
        }
        self.files = {kind: classify(f"{place}/{kind}") for kind in KINDS}
        self.needed = {kind: live(f"{place}/{kind}") for kind in KINDS}
        (self.place / "precious/deep").mkdir(parents=True)
        for name in ("file", "deep/file"):
            (self.place / "precious" / name).write_text("precious")
        self.whole = {kind: _digest(self.place / kind) for kind in KINDS}
        self._judge: subprocess.Popen[str] | None = None

    def changed(self) -> list[str]:
        """Name the tables that judging has changed: their copies share files with them."""
        return [kind for kind in KINDS if _digest(self.place / kind) != self.whole[kind]]

    def pairs(self) -> list[tuple[str, str, str]]:
        """Give each kind of file with each damage, by turns in the tables that rest on it."""
        found = []
        for kind in sorted({kind for table in KINDS for kind in self.files[table]}):
            having = [table for table in KINDS if kind in self.files[table]]
            tables = [t for t in having if self.needed[t].intersection(self.files[t][kind])]
            turns = itertools.cycle(tables or having)
            found += [(next(turns), kind, damage) for damage in DAMAGES]
        return found

    def every(self) -> list[tuple[str, str, str]]:
        """Give every table's own."""
        return [(t, kind, damage) for t in KINDS for kind in self.files[t] for damage in DAMAGES]

    def run(self, table: str, kind: str, damage: str, number: int, report: Report) -> None:
        """Judge one case."""
        task = self.task(table, kind, damage, number)
        report.counts[kind, damage] += 1
        answer = self._ask(task)
        name = f"{table}: {damage} of {task['path']} (seed {task['seed']})"
        if isinstance(answer, str):
            report.failures.append(f"{name}: {answer}")
            return
        report.refused += int(str(answer["refused"]))
        report.peak = max(report.peak, int(str(answer["peak"])))
        problems = answer["problems"]
        assert isinstance(problems, list)
        if problems:
            report.failures.append(f"{name}: " + "; ".join(problems))
        if any("memory" in str(problem) for problem in problems):
            self.stop()  # its peak would be told of every later case

    def task(self, table: str, kind: str, damage: str, number: int) -> dict[str, object]:
        """Draw one case."""
        seed = f"{self.seed}-{table}-{kind}-{damage}-{number}"
        pool = self.files[table][kind]
        draw = random.Random(seed)
        needed = [path for path in pool if path in self.needed[table]]
        path = draw.choice(needed if needed and draw.randrange(4) else pool)
        foreign = [
            str(self.place / other / name)
            for other in KINDS
            if other != table
            for name in self.files[other].get(kind, ())
        ]
        return {
            "root": str(self.place / "work/table"),
            "outside": str(self.place / "work/outside"),
            "source": str(self.place / table),
            "precious": str(self.place / "precious"),
            "seed": seed,
            "path": path,
            "others": [p for p in pool if p != path],
            "foreign": foreign,
            "damage": damage,
            "kind": kind,
            "model": self.models[table],
        }

    def _ask(self, task: dict[str, object]) -> dict[str, object] | str:
        judge = self._judge
        if judge is None or judge.poll() is not None:
            judge = self._judge = self._start()
        assert judge.stdin is not None
        assert judge.stdout is not None
        judge.stdin.write(json.dumps(task) + "\n")
        judge.stdin.flush()
        ready, _, _ = select.select([judge.stdout], [], [], CASE_S_MAX)
        line = judge.stdout.readline() if ready else ""
        if line:
            answer: dict[str, object] = json.loads(line)
            return answer
        self.stop()
        return "the process died" if ready else f"nothing came in {CASE_S_MAX:g} s"

    def _start(self) -> subprocess.Popen[str]:
        self.stop()
        with (self.place / "judge.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.judge"],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def stop(self) -> None:
        """End the process that judges."""
        judge, self._judge = self._judge, None
        if judge is not None:
            judge.kill()
            with contextlib.suppress(OSError), judge:  # it may be gone with a line unread
                judge.wait()


PARTS = 11
"""No divisor of the number of damages, so that each part has all kinds of both."""


def fuzz(place: str, seed: int, *, seconds: float | None, part: int = 0) -> Report:
    """Run one part of all pairs of file and damage once, or rounds of all tables for so long."""
    report, target, began = Report(), Fuzz(place, seed), time.monotonic()
    try:
        if seconds is None:
            for case in target.pairs()[part::PARTS]:
                target.run(*case, 0, report)
            return report
        number = 0
        while time.monotonic() - began < seconds:
            cases = target.every()
            random.Random(f"{seed}-{number}").shuffle(cases)
            for case in cases:
                target.run(*case, number, report)
                if time.monotonic() - began > seconds and number:
                    break
            number += 1
    finally:
        target.stop()
        report.failures += [f"{table} itself was changed" for table in target.changed()]
    return report


def _digest(table: Path) -> str:
    """Sum up the bytes of all files of a table."""
    found = hashlib.sha256()
    for path in sorted(each for each in table.rglob("*") if each.is_file()):
        found.update(f"{path.relative_to(table)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def main() -> int:
    """Run for some minutes; give 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    exchanged = list(exchange.run(wanted.seed, each=math.ceil(wanted.minutes / 20)))
    with quick_place() as place:
        report = fuzz(place, wanted.seed, seconds=wanted.minutes * 60)
    for line in (*exchanged, *report.failures, *report.lines()):
        print(line)
    return 1 if exchanged or report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
