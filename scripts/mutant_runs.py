"""Which test runs which line, and runs of tests on a private copy of the source.

Everything heavy that is not ours is imported once; each run is a fork that imports our code anew.
"""

from __future__ import annotations

import compileall
import gc
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from scripts.mutation import Mutant

SELECTED = "not processes and not spark and not s3 and not zookeeper and not kafka"
TESTS = (
    "tests/unit",
    "tests/interleave/test_commits.py",
    "tests/interleave/test_leftovers.py",
    "tests/fault/test_lent_slots.py",
    "tests/property/test_state_fold.py",
    "tests/property/test_state_codec.py",
)
"""Fast, and near to what is changed: a fault must not wait for the long random runs."""
NO_CONCERN = ("tests/unit/expr", "tests/unit/cli", "tests/unit/spark", "tests/unit/locks")
PLAIN = (
    "-q",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--hypothesis-seed=0",
)
DURATION = re.compile(r"^\s*([0-9.]+)s (?:setup|call|teardown)\s+(\S.*)$", re.MULTILINE)
SLOWNESS = 10
CPU_S, WALL_S = 15, 90
"""A mutant that computes for ever is ended by its processor time, one that waits by the clock.
Both get what its tests take ten times over, and this: run it where nothing else is slow."""
MEMORY = 6 << 30
NO_TESTS = 5
BROKEN = 70
"""A child's exit code when not even pytest came to an end."""
FIRST_S, QUICK_S = 10.0, 40.0
"""So many seconds of tests a mutant must survive: of near and quick ones, then of the others."""


def cover(root: Path, package: Path, rooms: Sequence[str], *, again: bool) -> Coverage:
    """Run the fast tests once, and note which test runs which line."""
    place = root / "build" / "mutants"
    place.mkdir(parents=True, exist_ok=True)
    data, log = place / "coverage", place / "log"
    if again or not data.exists():
        command = [sys.executable, "-m", "pytest", *PLAIN, "-m", SELECTED, *TESTS]
        command += [f"--ignore={path}" for path in NO_CONCERN]
        command += [f"--cov=plait.{room}" for room in rooms]
        command += ["--cov-context=test", "--cov-report=", "--durations=0", "--durations-min=0"]
        data.unlink(missing_ok=True)
        with log.open("wb") as sink:
            environment = {**os.environ, "COVERAGE_FILE": str(data)}
            done = subprocess.run(
                [*command, "-vv"], cwd=root, env=environment, stdout=sink, check=False
            )
        if done.returncode != 0:
            sys.exit(f"the tests fail without any fault: see {log}")
    return Coverage(package, data, log)


class Coverage:
    """Which tests run a line, and how long they take."""

    def __init__(self, package: Path, data: Path, log: Path) -> None:
        from coverage import CoverageData  # noqa: PLC0415 - only where mutants are made

        self._package, self._data = package, CoverageData(str(data))
        self._data.read()
        self._seconds: dict[str, float] = {}
        for seconds, test in DURATION.findall(log.read_text("utf-8")):
            self._seconds[test] = self._seconds.get(test, 0.0) + float(seconds)

    def tests(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests that run a mutant's statement: near and quick ones, then the others."""
        lines = self._data.contexts_by_lineno(str(self._package / mutant.path))
        contexts = {c for line in mutant.statement for c in lines.get(line, ())}
        if not contexts - {""}:
            # Run when the module is imported: whoever uses the module may see it.
            contexts = {c for of_line in lines.values() for c in of_line} if contexts else set()
        found = {context.rpartition("|")[0] for context in contexts} - {""}
        near = f"tests/unit/{mutant.path.split('/', 1)[0]}/"
        quick = sorted(found, key=lambda test: self.seconds([test]))
        first = self._within([test for test in quick if test.startswith(near)], FIRST_S)
        chosen = set(first)
        rest = self._within([test for test in quick if test not in chosen], QUICK_S)
        return [tests for tests in (first, rest) if tests]

    def _within(self, tests: Sequence[str], bound_s: float) -> list[str]:
        """Return the first tests that take no longer together; one at least."""
        spent, chosen = 0.0, list[str]()
        for test in tests:
            spent += self.seconds([test])
            if chosen and spent > bound_s:
                break
            chosen.append(test)
        return chosen

    def quickest(self, count: int) -> list[str]:
        """Return the quickest tests of all."""
        return sorted(self._seconds, key=lambda test: self._seconds[test])[:count]

    def seconds(self, tests: Sequence[str]) -> float:
        """Return how long tests take together."""
        return sum(self._seconds.get(test, 0.0) for test in tests)


class Copy:
    """A copy of the source that nobody else sees."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.source, self.scratch = root, place / "src", place / "scratch"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "src", self.source, ignore=ignored)
        self.scratch.mkdir()
        # Compiled once for all runs. A hash tells of a change; a time may be that of another text.
        checked = PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self.source, quiet=1, invalidation_mode=checked)

    @contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        """Put another text in place of a file of the package."""
        file = self.source / "plait" / path
        before = file.read_text("utf-8")
        file.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of tests ended."""

    failed: bool
    told: str

    @classmethod
    def of(cls, copy: Copy, tests: Sequence[str], seconds: float) -> Run:
        """Run tests on the copy in a process of its own, until one fails."""
        _preload()
        note = copy.scratch / "failed"
        note.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            code = BROKEN
            try:
                code = _run_here(copy, tests, CPU_S + int(SLOWNESS * seconds), note)
            except BaseException:  # noqa: BLE001 - whatever comes, the parent goes on alone
                traceback.print_exc()
            finally:
                os._exit(code)
        code = _wait(child, time.monotonic() + WALL_S + SLOWNESS * seconds)
        shutil.rmtree(copy.scratch / "tests", ignore_errors=True)
        told = note.read_text("utf-8") if note.exists() else f"the tests ended with {code}"
        return cls(code not in (0, NO_TESTS), told)


def _preload() -> None:
    """Import what the tests import and is not ours; their threads start when first used."""
    import hypothesis.stateful  # noqa: F401, PLC0415 - imported for the forks
    import pyarrow.compute  # noqa: PLC0415
    import pyarrow.dataset  # noqa: PLC0415
    import pyarrow.parquet  # noqa: F401, PLC0415
    import pyroaring  # noqa: F401, PLC0415
    import pytest  # noqa: F401, PLC0415
    import sqlglot  # noqa: F401, PLC0415

    gc.freeze()  # pytest collects garbage three times in each fork; this is none of theirs


def _run_here(copy: Copy, tests: Sequence[str], cpu_s: int, note: Path) -> int:
    """Be the child: import from the copy, run, and return pytest's exit code."""
    import pytest  # noqa: PLC0415 - of the forks

    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.setpgid(0, 0)
    sink = os.open(copy.scratch / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.chdir(copy.root)
    os.environ["PYTHONPATH"] = str(copy.source)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(copy.scratch / "hypothesis")
    sys.path.insert(0, str(copy.source))
    files = sorted({test.partition("::")[0] for test in tests})
    options = [
        *PLAIN,
        "--assert=plain",
        "-x",
        f"--basetemp={copy.scratch / 'tests'}",
        "--timeout=0",
        *files,
    ]
    return int(pytest.main(options, plugins=[_Order(tests, note)]))


class _Order:
    """Keep the tests that are asked for, in the order that they are asked for."""

    def __init__(self, tests: Sequence[str], note: Path) -> None:
        self._at, self._note = {test: at for at, test in enumerate(tests)}, note

    def pytest_collection_modifyitems(self, items: list[object]) -> None:
        """Leave the others out."""
        wanted = [item for item in items if self._place(item) is not None]
        items[:] = sorted(wanted, key=lambda item: self._place(item) or 0)

    def _place(self, item: object) -> int | None:
        name = str(getattr(item, "nodeid", ""))
        names = (name, name.partition("[")[0], name.partition("::")[0])
        return next((self._at[each] for each in names if each in self._at), None)

    def pytest_runtest_logreport(self, report: object) -> None:
        """Note the first that fails."""
        if getattr(report, "failed", False) and not self._note.exists():
            self._note.write_text(str(getattr(report, "nodeid", "")), encoding="utf-8")


def _wait(child: int, until: float) -> int:
    """Wait for a child; kill it and what it started when it is late."""
    pause = 0.01
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)  # noqa: TID251 - a child's end has no other sign
        pause = min(pause * 1.2, 0.2)
    os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
