"""Run the project's checks: all of them, or those that are named; in the short form, or ``--long``.

They run side by side as far as the cores reach; all run even if one fails, and a table at the end
says what failed, and by which tests. ``make test`` is this with no names, ``make nightly`` the long
form: the same commands without ``--short``. A limit only catches a hang: it is four times what the
check took in CI, so that nothing fails because the machine is busy.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Semaphore

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PATHS = ("src", "tests", "examples", "scripts", "benchmarks")
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
TELLING = ("FAILED ", "ERROR ", "SURVIVED ")
"""How lines begin by which pytest and ``scripts/mutants.py`` name what failed."""
WHY_MAX, WHY_WIDTH, SAID_MAX = 20, 300, 100_000
LATE = 124
"""The exit code of a check that ran out of its minutes, as timeout(1) gives it."""


HALVES = 4
"""The cores of the machine, each counted as two: some checks keep half of one busy."""
SLOWNESS = 4
"""How many times slower than that of CI a machine may be."""
LIMIT_S_MIN = 1200
"""Twice the limit of one test, which says where it hangs."""
POLL_S = 0.1
MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of one's own is made there
MEMORY_BYTES_MIN = 4 << 30
FOREIGN = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""Other modules, and what images of containers set: each of a thousand processes compiles anew."""
SHORT = "--short"
"""The option of those commands that have a short form."""
LONG = 6
"""How many times longer the long form may take."""
CI_S = 80 * 60
"""CI ends a run after 90 minutes without a word, so the table must come before that."""


@dataclass(frozen=True, slots=True)
class Check:
    """One command, and how many seconds it took in CI when somebody last wrote it down."""

    name: str
    last_s: float
    command: tuple[str, ...]
    halves: int = 2
    """Of cores, that it keeps busy: all four if it runs alone, one if it waits for servers."""
    by_name: bool = False
    """It runs only where it is named, since other checks do the same and more."""
    in_memory: bool = False
    """Its files need no disk: it kills processes, but never cuts the power."""

    @property
    def limit_s(self) -> float:
        """After so many seconds it hangs."""
        slowness = SLOWNESS if SHORT in self.command else SLOWNESS * LONG
        return max(slowness * self.last_s, LIMIT_S_MIN)

    @property
    def long(self) -> Check:
        """The long form."""
        return replace(self, command=tuple(word for word in self.command if word != SHORT))


@dataclass(frozen=True, slots=True)
class Result:
    """How a check ended."""

    check: Check
    code: int
    seconds: float
    cpu_s: float
    """How long its processes kept a core busy, as far as their parents waited for them."""
    said: str
    """The end of its output."""

    def __str__(self) -> str:
        verdict = {0: "passed", LATE: "HANGS"}.get(self.code, f"FAILED ({self.code})")
        check = self.check
        took = f"{self.seconds:7.1f} s, CPU {self.cpu_s:6.1f} s (last: {check.last_s:g} s)"
        return f"{check.name:<12}{took}   {verdict}"

    def why(self) -> Iterator[str]:
        """Give the lines that tell what failed; the last ones where none is known to do so."""
        if self.code:
            lines = [line for line in self.said.splitlines() if line.strip()]
            telling = [line for line in lines if line.startswith(TELLING)]
            for line in (telling or lines)[-WHY_MAX:]:
                yield f"{self.check.name}: {line[:WHY_WIDTH]}"


def pytest(*arguments: str) -> tuple[str, ...]:
    """Return the command of a pytest suite."""
    return ("python", "-m", "pytest", "-q", SHORT, *arguments)


def marked(marker: str) -> tuple[str, ...]:
    """Return where the tests of a marker are, so that nothing else is collected for them.

    Files say which markers their tests have; ``tests/conftest.py`` refuses a test whose file does
    not.
    """
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    found = [file for file in files if f"mark.{marker}" in file.read_text("utf-8")]
    return tuple(str(file.relative_to(ROOT)) for file in found)


FAST = "not processes and not spark and not s3 and not zookeeper and not kafka"
PROCESSES = "processes and not spark and not s3 and not zookeeper and not kafka"
ENGINES = ("tests/integration/interop", "tests/docs")
"""Where tests start other engines: a process of each serves them all."""
CHECKS = (
    # Tests never fetch: what the Java servers need comes beforehand.
    Check("jars", 22, ("python", "-m", "tests.services.jars"), halves=4),
    Check("engines", 25, ("python", "-m", "tests.services.engines"), halves=4),
    # No caches: they go by file, and miss that a module it imports has come or gone since.
    Check("lint", 3, ("ruff", "check", "--no-cache", *PATHS)),
    Check("format", 1, ("ruff", "format", "--check", *PATHS)),
    Check("spelling", 2, ("codespell", *PATHS, "docs", "rfc", *ROOT_PAGES)),
    Check("layers", 8, ("lint-imports", "--no-cache")),
    Check("types", 40, ("mypy",)),
    # With the two suites at the end these are every test: a marker that one excludes is another's.
    Check(
        "processes",
        452,
        pytest(
            "-m",
            PROCESSES,
            "tests/processes",
            *(file for file in marked("processes") if not file.startswith(ENGINES)),
        ),
        in_memory=True,
    ),
    Check(
        "interop",
        200,
        pytest(
            "-m", PROCESSES, *(file for file in marked("processes") if file.startswith(ENGINES))
        ),
        in_memory=True,
    ),
    Check("spec", 50, ("python", "-m", "scripts.spec", SHORT)),
    # Their tests are among the fast ones, which must pass without a fault.
    Check("mutants", 113, ("python", "scripts/mutants.py", "--chosen", "--sound", SHORT)),
    Check("crashes", 31, ("python", "scripts/certificate.py", "--check", SHORT)),
    Check("histories", 85, ("python", "scripts/histories.py", "--seeds", "400", "--covered")),
    # What happens beyond a size happens in small tables here: see tests/support/thresholds.py.
    Check(
        "thresholds",
        68,
        (
            "python",
            "-m",
            "tests.support.thresholds",
            "pytest",
            "-q",
            SHORT,
            *("tests/property/test_table_machine.py", "tests/property/test_repush.py"),
            *("tests/property/test_changes.py", "tests/property/test_removals.py"),
        ),
    ),
    Check(
        "matrix-1",
        23,
        (
            *("python", "-m", "tests.support.thresholds", "pytest", "-q"),
            *("tests/processes/test_concurrency_matrix.py", "-k"),
            "test_rfc22[ and overlapping-lazy and archive",
        ),
        in_memory=True,
    ),
    Check(
        "histories-1",
        43,
        (
            *("python", "-m", "tests.support.thresholds", "--stepped"),
            *("scripts/histories.py", "--seeds", "60"),
        ),
    ),
    Check(
        "schedules-1",
        50,
        (
            *("python", "-m", "tests.support.thresholds", "--stepped"),
            *("scripts/schedules.py", "--round", "2", "--rounds", "1"),
        ),
    ),
    Check("doctests", 10, ("python", "-m", "pytest", "-q", "--doctest-modules", "src/plait")),
    # tests/docs/test_site.py builds the same, and looks for what the pages take from the code.
    Check(
        "docs",
        15,
        ("mkdocs", "build", "--strict", "--quiet", "--site-dir", "build/site"),
        by_name=True,
    ),
    # Beside it, one after another, those that wait for servers most of the time.
    Check("fast", 600, pytest("-n2", "-m", FAST), halves=3),
    # Each test waits for a broker most of the time: two at a time, each with a broker of its own.
    Check(
        "kafka",
        300,
        pytest("-n2", "--dist", "worksteal", "-m", "kafka and not spark", *marked("kafka")),
        halves=1,
    ),
    Check("s3", 127, pytest("-m", "s3 and not spark and not zookeeper", *marked("s3")), halves=1),
    Check(
        "zookeeper",
        118,
        pytest("-m", "zookeeper and not spark", *marked("zookeeper")),
        halves=1,
    ),
    Check(
        "quick",
        175,
        pytest(
            "-n2",
            "-m",
            f"not slow and {FAST}",
            *(
                "tests/architecture",
                "tests/compat",
                "tests/conformance",
                "tests/docs",
                "tests/unit",
            ),
        ),
        halves=4,
        by_name=True,
    ),
    # Two files at a time, each with a JVM of its own; to split files made it an eighth slower.
    Check(
        "spark",
        430,
        pytest("-n2", "--dist", "loadfile", "-m", "spark", *marked("spark")),
        halves=4,
    ),
)


def main() -> int:
    """Run them; return 0 only if every one passed."""
    names = [check.name for check in CHECKS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="check")
    parser.add_argument("--long", action="store_true", help="the long form of each")
    given = parser.parse_args()
    asked = given.names
    checks = [check.long for check in CHECKS] if given.long else CHECKS
    wanted = asked or [check.name for check in CHECKS if not check.by_name]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends us ends what we began
    limited = os.environ.get("CI") and not given.long
    began, runner = time.monotonic(), Runner(CI_S if limited else float("inf"))
    with ThreadPoolExecutor(len(CHECKS)) as threads:
        try:
            running = [runner.begin(each, threads) for each in checks if each.name in wanted]
            results = [each.result() for each in running]
        except KeyboardInterrupt:
            runner.stop()
            threads.shutdown(cancel_futures=True)
            raise
    # Here once more what failed: of a long output the end is what is seen.
    why = [line for result in results for line in result.why()]
    print(*("", *why, *results), sep="\n")
    print(f"{'all':<12}{time.monotonic() - began:7.1f} s")
    return 0 if all(result.code == 0 for result in results) else 1


class Runner:
    """Runs checks, each in a process group of its own, and prints each whole when it ends."""

    def __init__(self, seconds: float) -> None:
        self._free = Semaphore(HALVES)
        self._end = time.monotonic() + seconds
        self._printing = Lock()
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self, check: Check, threads: ThreadPoolExecutor) -> Future[Result]:
        """Begin a check when its part of the cores is free; only one thread may ask."""
        for _ in range(check.halves):
            self._free.acquire()
        running = threads.submit(self.run, check)
        running.add_done_callback(lambda _: self._free.release(check.halves))
        return running

    def run(self, check: Check) -> Result:
        """Run one check; whatever it started (a JVM, workers, a server) ends with it."""
        print(f"-- {check.name}", flush=True)
        began = time.monotonic()
        with tempfile.TemporaryFile() as said, place(in_memory=check.in_memory) as found:
            process = subprocess.Popen(
                [BIN / check.command[0], *check.command[1:]],
                cwd=ROOT,
                env={**environment(), **found},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.append(process)
            code, cpu_s = LATE, 0.0
            try:
                with suppress(subprocess.TimeoutExpired):
                    code, cpu_s = wait(process, min(check.limit_s, max(self._end - began, 0)))
            finally:
                stop_group(process)
                self._running.remove(process)
            said.seek(0)
            with self._printing:
                print(f"\n== {check.name}: {shlex.join(check.command)}", flush=True)
                shutil.copyfileobj(said, sys.stdout.buffer)
                sys.stdout.flush()
            said.seek(max(said.tell() - SAID_MAX, 0))
            end = said.read().decode("utf-8", "replace")
        return Result(check, code, time.monotonic() - began, cpu_s, end)

    def stop(self) -> None:
        """End what runs."""
        for process in tuple(self._running):
            stop_group(process)


@contextmanager
def place(*, in_memory: bool) -> Iterator[dict[str, str]]:
    """Say where temporary files go: into memory if that is wanted and there is room."""
    if not (in_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN):
        yield {}
        return
    with tempfile.TemporaryDirectory(
        "", "plait-check-", MEMORY, ignore_cleanup_errors=True
    ) as name:
        yield {"TMPDIR": name}


def environment() -> dict[str, str]:
    """Return the environment of the checks: this interpreter's tools first, nothing foreign."""
    found = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    found["NO_MKDOCS_2_WARNING"] = "1"  # what may become of mkdocs-material is no result of ours
    return {**found, "PATH": os.pathsep.join([str(BIN), found.get("PATH", os.defpath)])}


def wait(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, float]:
    """Wait for a process; return its exit code and how long it kept a core busy.

    Raises:
        TimeoutExpired: it still runs.
    """
    end = time.monotonic() + seconds
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, seconds)
        Event().wait(POLL_S)


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
