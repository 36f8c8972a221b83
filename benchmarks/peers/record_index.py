"""Plait's record index beside that of Apache Hudi, on the same keys in the same run.

    python -m benchmarks.peers.record_index [--rows 2000000] [--keep DIR]

Both get the same rows: a string key that says nothing of the partition, 40 partitions, at most two
file groups each, copy-on-write. Both look up the same keys, of which a tenth is absent, and take
the same upserts into one partition at a time, with an index and without one in turn. What they
found is compared: rows by key, partitions that the index alone tells, and the whole table at the
end. Hudi runs on Spark 3.5, and its rows are counted by its faster way, with the index or without.
Plait takes Arrow, and once more DataFrames on Spark 4.2.
Results: benchmarks/results/peer_record_index.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.index_systems import PARTITIONS, key_of
from benchmarks.peers.index_work import (
    LOOK_UPS,
    WARM_ROWS,
    WARM_UPSERTS,
    source_of,
    upserts_of,
)
from benchmarks.peers.prepare import jars_of, python_for
from plait.spark.java import launch_home, require_java

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "peer_record_index.json"
SPARKS = {"hudi": "3.5", "plait": "4.2"}


def main() -> int:
    """Run both, compare what they found, and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--upserts", type=int, default=32, help="of 100 rows; fewer of 10,000")
    parser.add_argument("--look-ups", type=int, default=10, help="of each size")
    parser.add_argument("--keep", type=Path, help="keep environments, jars and source here")
    parser.add_argument("--minutes", type=float, default=60, help="for one system")
    asked = parser.parse_args()
    upserts = upserts_of(asked.upserts)
    if asked.rows < PARTITIONS * max(upserts):
        parser.error(f"{asked.rows} rows are too few for an upsert of {max(upserts)} rows")
    with tempfile.TemporaryDirectory(prefix="plait-peer-index-") as scratch:
        place = (asked.keep or Path(scratch)).absolute()
        place.mkdir(parents=True, exist_ok=True)
        make_source(source_of(place, WARM_ROWS), WARM_ROWS, WARM_UPSERTS, 1)
        make_source(source_of(place, asked.rows), asked.rows, upserts, asked.look_ups)
        words = ["--rows", str(asked.rows), "--upserts", str(asked.upserts)]
        words += ["--look-ups", str(asked.look_ups)]
        lines = [line for name in SPARKS for line in _run(name, place, words, asked.minutes)]
    result = {"rows": asked.rows, "partitions": PARTITIONS, "upserts": upserts, **summary(lines)}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 1 if result["differs"] else 0


# --- the source -------------------------------------------------------------------------------


def make_source(place: Path, rows: int, upserts: Mapping[int, int], look_ups: int) -> None:
    """Write the rows to load, the batches of upserts, and the keys to look up."""
    told = json.dumps([rows, upserts, look_ups])
    if (place / "done").exists() and (place / "done").read_text() == told:
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(1).permutation(rows)
    for number, part in enumerate(np.array_split(order, 8)):
        _write(place / "base" / f"{number}.parquet", _rows(part.tolist(), 0))
    fresh, number = rows, 0
    for size, count in upserts.items():
        for at in range(count):
            number += 1
            ids, fresh = _changed(number, rows, size, fresh)
            _write(place / f"upsert-{size}-{at}.parquet", _rows(ids, number))
    draw = np.random.default_rng(2)
    looked = {count: [_asked(draw, rows, count) for _ in range(look_ups)] for count in LOOK_UPS}
    (place / "keys.json").write_text(json.dumps(looked))
    (place / "done").write_text(told)


def _changed(number: int, rows: int, size: int, fresh: int) -> tuple[list[int], int]:
    """Choose ids of one partition: four fifths that are there, and new ones."""
    partition, known = number % PARTITIONS, size * 4 // 5
    there = np.random.default_rng(100 + number).choice(rows // PARTITIONS, known, replace=False)
    first = -(-fresh // PARTITIONS) * PARTITIONS + partition
    new = [first + PARTITIONS * at for at in range(size - known)]
    return [*(there * PARTITIONS + partition).tolist(), *new], new[-1] + 1


def _asked(draw: np.random.Generator, rows: int, count: int) -> list[str]:
    """Choose keys, of which a tenth is absent."""
    absent = count // 10
    ids = [*draw.choice(rows, count - absent, replace=False).tolist(), *range(-absent, 0)]
    return [key_of(each) for each in ids]


def _rows(ids: list[int], salt: int) -> pa.Table:
    return pa.table(
        {
            "key": [key_of(each) for each in ids],
            "part": [f"p{each % PARTITIONS:02d}" for each in ids],
            "ts": pa.array([salt] * len(ids), pa.int64()),
            "v": pa.array([each * 1000 + salt for each in ids], pa.int64()),
            "note": [f"note-{each % 5000:014d}" for each in ids],
        }
    )


def _write(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(rows, path)


# --- the run ----------------------------------------------------------------------------------


def _run(name: str, place: Path, words: list[str], minutes: float) -> Iterable[dict[str, object]]:
    """Run one system in a process of its own; return what it measured."""
    print(f"== {name}", flush=True)
    python = str(python_for(SPARKS[name], place))
    environment = dict(os.environ)
    environment.pop("SPARK_HOME", None)
    environment["JAVA_HOME"] = str(launch_home(require_java(os.environ)))
    environment["PYSPARK_PYTHON"] = python
    order = [python, str(HERE / "index_work.py"), name, str(place), *words]
    if name == "hudi":
        order += [word for jar in jars_of("hudi", place) for word in ("--jar", str(jar))]
    lines: list[dict[str, object]] = []
    with subprocess.Popen(order, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith("{"):
                lines.append(json.loads(text))
                print(text.rstrip(), flush=True)
        if process.wait(timeout=60 * minutes):
            message = f"{name} failed"
            raise SystemExit(message)
    return lines


def summary(lines: list[dict[str, object]]) -> dict[str, object]:
    """Return the medians, the ratios, and what differs between the two."""
    runs: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in SPARKS}
    facts: dict[str, dict[str, object]] = {name: {} for name in SPARKS}
    for line in lines:
        system, what = str(line["system"]), str(line["what"])
        if "seconds" in line:
            runs[system][what].append(float(str(line["seconds"])))
        else:
            facts[system][what] = line["found"]
    middle = {
        system: {what: round(statistics.median(each), 5) for what, each in found.items()}
        for system, found in runs.items()
    }
    mean = {
        system: {
            what: round(statistics.fmean(each), 5)
            for what, each in found.items()
            if what.startswith("upsert")
        }
        for system, found in runs.items()
    }
    found = {"median_seconds": middle, "mean_seconds": mean, "facts": facts}
    looked = {
        f"{count} keys, {when}": look_up_ratios(f"{count} keys, {when}", middle)
        for when in ("fresh", "after upserts")
        for count in LOOK_UPS
    }
    sizes = {what.split(",")[0] for what in mean["hudi"]}
    kept = {of: upsert_ratios(of, runs) for of in sorted(sizes)}
    return {**found, "look_up": looked, "maintain": kept, "differs": differs(facts), "runs": runs}


def differs(facts: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return what the two found that is not equal; both must have found it."""
    compared = {what for found in facts.values() for what in found if what.startswith("same ")}
    return sorted(what for what in compared if facts["hudi"].get(what) != facts["plait"].get(what))


def look_up_ratios(of: str, middle: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Divide the medians of Hudi by those of Plait; of rows, those of Hudi's faster way."""
    hudi, plait = middle["hudi"], middle["plait"]
    before, anew = f"rows of {of}, opened before", f"rows of {of}, opened anew"
    faster = min(hudi[before], hudi[f"rows of {of}, no index"])
    found = {
        "rows": faster / plait[before],
        "rows, less Spark's smallest query": (faster - hudi["smallest query"]) / plait[before],
        "rows, by Hudi's index": hudi[before] / plait[before],
        "rows, by Hudi's index, opened anew": hudi[anew] / plait[anew],
        "index alone": hudi[f"index of {of}"] / plait[f"index of {of}"],
        "index alone, opened anew": (
            hudi[f"index of {of}, opened anew"] / plait[f"index of {of}, opened anew"]
        ),
    }
    return {what: round(each, 1) for what, each in found.items()}


def upsert_ratios(of: str, runs: Mapping[str, Mapping[str, list[float]]]) -> dict[str, object]:
    """Divide the means of Hudi by those of Plait, and tell what an index costs each of them.

    The mean has the work that falls due after some upserts: compaction of Hudi's metadata, and runs
    and merges of Plait. The cost is the difference to the same upsert without an index just before,
    with its standard error.
    """
    hudi, plait = runs["hudi"], runs["plait"]

    def ratio(theirs: str, ours: str) -> float:
        means = (
            statistics.fmean(hudi[f"{of}, {theirs}"]),
            statistics.fmean(plait[f"{of}, {ours}"]),
        )
        return round(means[0] / means[1], 1)

    costs = {
        "Hudi": _cost(hudi[f"{of}, kept"], hudi[f"{of}, none"]),
        "Plait on Arrow": _cost(plait[f"{of}, arrow kept"], plait[f"{of}, arrow none"]),
        "Plait on Spark": _cost(plait[f"{of}, spark kept"], plait[f"{of}, spark none"]),
    }
    return {
        "whole, Plait on Arrow": ratio("kept", "arrow kept"),
        "whole, Plait on Spark": ratio("kept", "spark kept"),
        "whole, keys unique in the table": ratio("used", "arrow unique"),
        "cost in seconds": costs,
    }


def _cost(kept: list[float], none: list[float]) -> list[float]:
    """Return the mean of differences, and its standard error."""
    paid = [one - other for one, other in zip(kept, none, strict=True)]
    error = statistics.stdev(paid) / len(paid) ** 0.5 if len(paid) > 1 else 0.0
    return [round(statistics.fmean(paid), 4), round(error, 4)]


if __name__ == "__main__":
    sys.exit(main())
