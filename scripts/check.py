"""Run the project's checks: all of them, or those that are named.

Every check has its minutes. The checks that need no JVM come first; all run even if one fails, and
a table at the end says what failed. ``make test`` is this with no names.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PATHS = ("src", "tests", "scripts", "benchmarks")
LATE = 124
"""The exit code of a check that ran out of its minutes, as timeout(1) gives it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One command with a limit."""

    name: str
    minutes: float
    command: tuple[str, ...]


def pytest(*arguments: str) -> tuple[str, ...]:
    """Give the command of a pytest suite."""
    return ("python", "-m", "pytest", "-q", *arguments)


CHECKS = (
    # No caches: they go by file, and miss that a module it imports has come or gone since.
    Check("lint", 2, ("ruff", "check", "--no-cache", *PATHS)),
    Check("format", 1, ("ruff", "format", "--check", *PATHS)),
    Check("spelling", 1, ("codespell", *PATHS, "docs", "rfc", "README.md", "CONTRIBUTING.md")),
    Check("layers", 2, ("lint-imports", "--no-cache")),
    Check("types", 5, ("mypy",)),
    Check("generated", 1, ("python", "scripts/reference.py", "--check")),
    Check("crashes", 4, ("python", "scripts/certificate.py", "--check")),
    Check("spec", 8, ("python", "-m", "scripts.spec")),
    # Together these five are every test: a marker that a suite excludes is another's.
    Check(
        "fast", 9, pytest("-n2", "-m", "not processes and not spark and not s3 and not zookeeper")
    ),
    Check("doctests", 3, pytest("--doctest-modules", "src/plait", "-p", "no:randomly")),
    Check("processes", 9, pytest("-m", "processes and not spark and not s3 and not zookeeper")),
    Check("s3", 6, pytest("-m", "s3 and not spark and not zookeeper")),
    # Tests never fetch: what the Java servers need comes beforehand.
    Check("jars", 5, ("python", "-m", "tests.services.jars")),
    Check("zookeeper", 5, pytest("-m", "zookeeper and not spark")),
    # Two files at a time, each with a JVM of its own.
    Check("spark", 30, pytest("-n2", "--dist", "loadfile", "-m", "spark")),
    Check("docs", 3, ("mkdocs", "build", "--strict", "--quiet", "--site-dir", "build/site")),
)


def main() -> int:
    """Run them; give 0 only if every one passed."""
    names = [check.name for check in CHECKS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="check")
    wanted = parser.parse_args().names or names
    results = [(check, *run(check)) for check in CHECKS if check.name in wanted]
    print()
    for check, code, seconds in results:
        verdict = "passed" if code == 0 else "TOO SLOW" if code == LATE else f"FAILED ({code})"
        print(f"{check.name:<12}{seconds:7.1f} s of {check.minutes:g} min   {verdict}")
    return 0 if all(code == 0 for _, code, _ in results) else 1


def run(check: Check) -> tuple[int, float]:
    """Run one check in a process group of its own; give its exit code and seconds."""
    print(f"\n== {check.name}: {' '.join(check.command)}", flush=True)
    program = BIN / check.command[0]
    began = time.monotonic()
    process = subprocess.Popen(
        [program, *check.command[1:]], cwd=ROOT, env=environment(), start_new_session=True
    )
    try:
        code = process.wait(check.minutes * 60)
    except subprocess.TimeoutExpired:
        code = LATE
    finally:
        # Whatever it started (a JVM, workers, a server) ends with it.
        stop_group(process)
    return code, time.monotonic() - began


def environment() -> dict[str, str]:
    """Give the environment of the checks: this interpreter's tools first, no foreign modules."""
    found = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found["NO_MKDOCS_2_WARNING"] = "1"  # what may become of mkdocs-material is no result of ours
    return {**found, "PATH": os.pathsep.join([str(BIN), found.get("PATH", os.defpath)])}


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
