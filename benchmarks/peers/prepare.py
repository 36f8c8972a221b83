"""What the peers need: a Python environment for each Spark, and their jars by Maven."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

POM = Path(__file__).parent / "jars" / "pom.xml"
SPARKS = {"4.1": ("pyspark==4.1.4",), "3.5": ("pyspark==3.5.9", "setuptools<81")}
"""The environments beside this one, which has Spark 4.2."""


def python_for(spark: str, place: Path) -> Path:
    """Return an interpreter that has this Spark; make its environment the first time."""
    if spark not in SPARKS:
        return Path(sys.executable)
    home = place / f"spark-{spark}"
    program = home / "bin" / "python"
    done = home / "done"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([program, "-m", "pip", "install", "-q", *SPARKS[spark]], check=True)
        done.touch()
    return program


def jars_of(peer: str | None, place: Path) -> list[Path]:
    """Return the jars of a peer; Maven fetches them the first time."""
    if peer is None:
        return []
    folder = place / "jars" / peer
    if not folder.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            message = f"the jars of {peer} are fetched by Maven, and there is none"
            raise SystemExit(message)
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        order = [
            maven, "-B", "-q", "-f", str(POM), f"-P{peer}", "dependency:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={part}",
        ]  # fmt: skip
        subprocess.run(order, check=True)
        part.rename(folder)
    return sorted(folder.glob("*.jar"))
