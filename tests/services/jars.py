"""Jars by Maven into the cache, once: Java servers of the tests, and formats for Spark.

``python -m tests.services.jars`` does it beforehand; no test ever fetches anything. A second call
finds everything and starts no Maven.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
SERVERS = ("zookeeper", "kafka", "postgresql", "delta", "iceberg")
_WAIT_S = 240


def in_ci() -> bool:
    """Tell whether a service that is missing must fail the run."""
    return os.environ.get("CI", "") not in ("", "false", "0")


def pom_of(server: str) -> Path:
    """Name the file that says which jars a server needs."""
    return HERE / f"{server}_jars" / "pom.xml"


def cached(name: str, decides: bytes) -> Path:
    """Name a directory in the user's cache: another one for other bytes that decide its content."""
    base = os.environ.get("XDG_CACHE_HOME")
    digest = hashlib.sha256(decides).hexdigest()[:16]
    return (Path(base) if base else Path.home() / ".cache") / "plait" / f"{name}-{digest}"


def fill(place: Path, make: Callable[[Path], object]) -> Path:
    """Have a directory of the cache made, unless it is there: whole, whoever else does the same."""
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        made = Path(scratch) / "made"
        make(made)
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    return place


def place_of(server: str) -> Path:
    """Name the directory of its jars: another one for another pom."""
    return cached(server, pom_of(server).read_bytes())


def find_jars(server: str) -> Path | None:
    """Give the directory of a server's jars if they were resolved."""
    place = place_of(server)
    return place if place.is_dir() else None


def resolve(server: str) -> Path:
    """Resolve them: from Maven's own repository if it has them, else from the network."""
    maven = shutil.which("mvn")

    def copy(made: Path) -> None:
        if maven is None:
            raise FileNotFoundError(
                f"the jars of {server} are not in the cache, and there is no Maven to fetch them"
            )
        order = [
            maven, "-B", "-f", str(pom_of(server)), "dependency:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={made}",
        ]  # fmt: skip
        offline = subprocess.run([*order, "-o"], capture_output=True, timeout=_WAIT_S, check=False)
        if offline.returncode != 0:
            # -U: Maven remembers what it once did not find
            subprocess.run([*order, "-U"], timeout=_WAIT_S, check=True, stdout=sys.stderr)

    return fill(place_of(server), copy)


def main() -> int:
    """Resolve the jars of every server; give the exit code."""
    for server in SERVERS:
        try:
            found = resolve(server)
        except (OSError, subprocess.SubprocessError) as error:
            sys.stdout.write(f"{server}: {error}\n")
            if in_ci():
                return 1
        else:
            sys.stdout.write(f"{server}: {len(list(found.glob('*.jar')))} jars\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
