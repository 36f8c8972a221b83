"""Build a record index of many keys, look keys up in it, and commit beside one.

    python benchmarks/record_index.py [--keys 100000000] [--commits 200]

The keys are generated hashes: no data file is read. Each step runs in a process of its own, so its
peak memory is its own. Look-ups are timed with the footers of the run files read before (warm), and
without (cold). The commits are those of a real table, 100 rows each, with an index and without one
in turn. Results: benchmarks/results/record_index.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from plait import Table
from plait.index.builder import RunBuilder
from plait.index.entries import Places
from plait.index.lookup import Footers, find_entries
from plait.index.manifest import IndexRun, Manifest, load_newest, publish_manifest
from plait.model.bucket import partition_text
from plait.storage.local import LocalStore
from plait.testing import CountingStore
from plait.timeline import paths

RESULTS = Path(__file__).with_name("results") / "record_index.json"
NAME = "0" * 16
CHUNK = 1 << 20
PARTITIONS = 365
BATCH = 100_000
ROUNDS = 20


def hashes_of(chunk: int, count: int) -> np.ndarray:
    """Generate the hashes of a chunk of the keys."""
    return np.random.default_rng(chunk).integers(0, 1 << 64, count, dtype=np.uint64)


def build(place: str, keys: int) -> dict[str, float]:
    store, started = LocalStore(place), time.perf_counter()
    with RunBuilder() as builder:
        for chunk in range(-(-keys // CHUNK)):
            count = min(CHUNK, keys - chunk * CHUNK)
            text = partition_text((f"2026-{chunk % PARTITIONS:03d}",))
            builder.add(hashes_of(chunk, count), text, 1 + chunk)
        files = builder.write(store.filesystem(), lambda at: paths.index_run(NAME, 1, "0" * 16, at))
    store.persist([file.path for file in files])
    manifest = Manifest(NAME, 0, 0, 1, "0" * 64, (IndexRun(0, 1, tuple(files)),))
    assert publish_manifest(store, manifest)
    return {
        "seconds": time.perf_counter() - started,
        "files": len(files),
        "bytes": manifest.size_bytes,
    }


def look_up(place: str, keys: int) -> dict[str, float]:
    store = CountingStore(LocalStore(place))
    manifest = load_newest(store, NAME)
    assert manifest is not None
    some = hashes_of(0, min(CHUNK, keys))
    chosen = np.random.default_rng(1).permutation(some)
    told: dict[str, float] = {}
    for name, count in (("1 key", 1), (f"{BATCH} keys", min(BATCH, len(some)))):
        warm = Footers()
        for how in ("cold", "warm"):
            times = []
            for number in range(ROUNDS if count == 1 else 3):
                wanted = np.sort(chosen[number * count : (number + 1) * count])
                footers = Footers() if how == "cold" else warm
                if how == "warm" and not number:
                    find_entries(store, manifest, wanted, Places(), warm)
                store.reset()
                started = time.perf_counter()
                found = find_entries(store, manifest, wanted, Places(), footers)
                times.append(time.perf_counter() - started)
                assert len(found) == len(wanted)
            told[f"{name}, {how}, ms"] = 1000 * statistics.median(times)
            told[f"{name}, files opened"] = store.count("open_input")
    return told


def commit(place: str, commits: int) -> dict[str, float]:
    tables = []
    for name in ("without", "with"):
        table = Table.create(
            f"{place}/{name}",
            "id bigint, day string, v bigint",
            record_key="id",
            partition_by="day",
            table_type="mor",
            properties={"compact": "off"},
        )
        table.upsert(rows(np.arange(100_000), 0))
        if name == "with":
            table.index.create()
        tables.append(table)
    times: list[list[float]] = [[], []]
    for number in range(commits):
        ids = np.random.default_rng(number).choice(100_000, 100, replace=False)
        for table, mine in zip(tables, times, strict=True):
            started = time.perf_counter()
            table.upsert(rows(ids, number))
            mine.append(time.perf_counter() - started)
    without, with_ = (sum(each) / len(each) * 1000 for each in times)
    return {"without an index, ms": without, "with an index, ms": with_, "ratio": with_ / without}


def rows(ids: np.ndarray, v: int) -> pa.Table:
    days = [f"d{number % 4}" for number in ids.tolist()]
    return pa.table({"id": ids, "day": days, "v": np.full(len(ids), v)})


STEPS: dict[str, Callable[[str, int], dict[str, float]]] = {
    "build": build,
    "look up": look_up,
    "commit": commit,
}


def alone(step: str, place: str, count: int) -> dict[str, float]:
    """Run a step in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--place", place, "--keys", str(count)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, float] = json.loads(ran.stdout)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and ask a record index.")
    parser.add_argument("--keys", type=int, default=100_000_000)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--place")
    parser.add_argument("--directory", help="where it writes; by default a temporary one")
    asked = parser.parse_args()
    if asked.step:
        told = STEPS[asked.step](asked.place, asked.keys)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**told, "peak MiB": peak}))
        return
    place = tempfile.mkdtemp(prefix="plait-bench-index-", dir=asked.directory)
    try:
        results = {
            "keys": asked.keys,
            "build": alone("build", place, asked.keys),
            "look up": alone("look up", place, asked.keys),
            "commit": alone("commit", place, asked.commits),
        }
    finally:
        shutil.rmtree(place, ignore_errors=True)
    text = json.dumps(results, indent=1)
    RESULTS.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
