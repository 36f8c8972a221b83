"""Plait beside its peers on Spark, and all beside plain Parquet, in one run.

    python -m benchmarks.peers [SYSTEM ...] [--rows 5000000] [--upsert 250000] [--keep DIR]

Each system works alone, in a process of its own, on the same source and the same machine: bulk
insert, five upserts of which 80 % are updates, scans and look-ups after the first and the last.
Merge-on-read tables are compacted then and scanned again, and another takes fifty small upserts
beside upkeep: the system's own where it has one, otherwise a call after every fifth, counted.
Systems that are not named keep the figures of the last run of this size.
Delta and Iceberg run on Spark 4.1 and Hudi on Spark 3.5, which they support; each is compared with
plain Parquet on its own Spark. Results: benchmarks/results/peers.json and docs/assets/peers.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.chart import draw
from benchmarks.peers.prepare import jars_of, python_for
from benchmarks.peers.systems import SYSTEMS, source_of
from plait.spark.java import launch_home, require_java

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "peers.json"
CHART = HERE.parent.parent / "docs" / "assets" / "peers.svg"
WRITES = {"bulk", "upsert", "compaction"}
PLAIN = {"4.2": "plain", "4.1": "plain-41", "3.5": "plain-35"}


def main() -> int:
    """Run, write and print; 1 if a system failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upsert", type=int, default=250_000)
    parser.add_argument("--keep", type=Path, help="keep environments, jars and source here")
    parser.add_argument("--minutes", type=float, default=40, help="for one system")
    asked = parser.parse_args()
    if unknown := set(asked.systems) - set(SYSTEMS):
        parser.error(f"not systems: {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    wanted = _with_plain(asked.systems or list(SYSTEMS))
    with tempfile.TemporaryDirectory(prefix="plait-peers-") as scratch:
        place = (asked.keep or Path(scratch)).absolute()
        place.mkdir(parents=True, exist_ok=True)
        size = ["--rows", str(asked.rows), "--upsert", str(asked.upsert)]
        if not (source_of(place, asked.rows, asked.upsert) / "base").exists():
            _run("source", sys.executable, place, size, asked.minutes)
        lines, failed = [], []
        for name in wanted:
            kind = SYSTEMS[name]
            python = python_for(kind.spark, place)
            jars = [word for jar in jars_of(kind.jars, place) for word in ("--jar", str(jar))]
            code, found = _run(name, str(python), place, [*size, *jars], asked.minutes)
            lines += found
            failed += [name] if code else []
    size_told = {"rows": asked.rows, "upsert": asked.upsert}
    lines = [*_earlier(size_told, {str(line["system"]) for line in lines}), *lines]
    result = {**size_told, "failed": failed, **summary(lines)}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    CHART.parent.mkdir(exist_ok=True)
    draw(result, CHART)
    print(json.dumps(result, indent=2))
    return 1 if failed else 0


def _earlier(size: Mapping[str, int], again: set[str]) -> list[dict[str, object]]:
    """Return the measurements of systems that were not run again, if they are of this size."""
    if not RESULTS.exists():
        return []
    known = json.loads(RESULTS.read_text())
    if any(known.get(name) != value for name, value in size.items()):
        return []
    return [
        {"system": system, "spark": known["sparks"][system], "what": what, "seconds": each}
        for system, found in known["runs"].items()
        if system not in again
        for what, times in found.items()
        for each in times
    ]


def _with_plain(systems: list[str]) -> list[str]:
    """Add what each is compared with."""
    needed = {PLAIN[SYSTEMS[name].spark] for name in systems}
    return [name for name in SYSTEMS if name in needed or name in systems]


def _run(
    name: str, python: str, place: Path, words: list[str], minutes: float
) -> tuple[int, list[dict[str, object]]]:
    """Run one system's process; give its exit code and its measurements."""
    print(f"== {name}", flush=True)
    environment = dict(os.environ)
    environment.pop("SPARK_HOME", None)
    environment["JAVA_HOME"] = str(launch_home(require_java(os.environ)))
    environment["PYSPARK_PYTHON"] = python
    order = [python, str(HERE / "work.py"), name, str(place), *words]
    lines: list[dict[str, object]] = []
    with subprocess.Popen(order, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith("{"):
                lines.append(json.loads(text))
                print(f"{lines[-1]['what']:<20}{lines[-1]['seconds']:>9} s", flush=True)
        code = process.wait(timeout=60 * minutes)
    return code, lines


def summary(lines: list[dict[str, object]]) -> dict[str, object]:
    """Return the medians of each system, and each beside plain Parquet on its own Spark."""
    runs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        runs[str(line["system"])][str(line["what"])].append(float(str(line["seconds"])))
    seconds = {
        name: {what: round(statistics.median(each), 3) for what, each in found.items()}
        for name, found in runs.items()
    }
    return {
        "sparks": {str(line["system"]): line["spark"] for line in lines},
        "runs": runs,
        "median_seconds": seconds,
        "beside_plain": {name: _ratios(name, found, seconds) for name, found in seconds.items()},
    }


def _ratios(
    name: str, found: Mapping[str, float], seconds: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Compare with plain Parquet: an upsert with its write, a scan with the same scan."""
    plain = seconds.get(PLAIN[SYSTEMS[name].spark], {})
    ratios = {}
    for what, value in found.items():
        kind = what.split(" ", 1)[0]
        base = plain.get(
            "bulk insert" if kind in ("bulk", "upsert", "compaction") else f"{kind} fresh"
        )
        if base:
            ratios[what] = round(value / base, 2)
    return ratios


if __name__ == "__main__":
    sys.exit(main())
