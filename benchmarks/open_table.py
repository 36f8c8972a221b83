"""Open a large table and plan a scan of one partition, in a fresh process, beside its peers.

    python benchmarks/open_table.py [--files 1000000] [--partitions 1000] [--commits 100000]

The table has bounds of nine columns, and no data file: its checkpoint is written by the library's
own function, from events that no commit made. A Delta checkpoint and Iceberg manifests of the same
files stand beside it. Imports are left out. Counted by the system: what a process reads and writes,
and its memory when it was largest. The program exits with 1 if more storage calls are made, or more
bytes are moved, than ``CALLS`` and ``BYTES`` say. Results: benchmarks/results/open_table.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peer_metadata import FILE_ROWS, delta, iceberg
from plait import Table
from plait.model.bucket import partition_path, partition_text
from plait.model.instant import Instant
from plait.ports import Ports
from plait.state.checkpoint import write_checkpoint
from plait.state.events import COMMITS, TABLES, Events, LiveEntry
from plait.table import handle_of
from plait.testing import CountingStore, open_wrapped
from plait.timeline.paths import slot

RESULTS = Path(__file__).with_name("results") / "open_table.json"
COLUMNS = "day int, id bigint, at timestamp, a double, b double, c int, d date, s string, t string"
CHANGED = 10
CALLS = {
    "plan": {"find": 6, "open_input": 1, "put": 1, "delete": 1},
    "plan an old version": {"find": 6, "open_input": 2, "put": 1, "delete": 1},
    "commit": {"find": 1, "put": 1, "put_if_absent": 1, "delete": 1},
}
YOUNG = 100
"""Commits to a table with so many versions are timed too, and take as many calls."""
APPENDS = 20
IMPORTS = {"delta": ("deltalake",), "iceberg": ("pyiceberg.table", "pyiceberg.io.pyarrow")}
ROW = pa.table({"day": pa.array([7], pa.int32()), "id": [1]})
BYTES = {"plan": 8 << 20, "checkpoint": 1 << 20}
TIMED = (
    *("plan", "plan by bounds", "plan an old version", "history", "delta", "iceberg", "checkpoint"),
    *("plan a clean", "commit", "commit to a young table"),
)


def bounds_of(
    files: int, partitions: int
) -> tuple[list[dict[str, list[str]]], list[list[dict[str, str]]]]:
    """Return for each file the bounds of its columns, as Plait and as Delta write them."""
    ours, theirs = [], []
    draw = np.random.default_rng(7)
    cents = draw.integers(0, 10_000_000, (files, 2)).tolist()
    names = COLUMNS.replace(",", "").split()[::2]
    for n, (low, high) in enumerate(cents):
        day, first = n % partitions, n * FILE_ROWS
        minute = f"{n // 60 % 24:02d}:{n % 60:02d}"
        least = [
            *(str(day), str(first), f"2026-03-{n % 28 + 1:02d}T{minute}:00.000000Z"),
            *(f"{low}.25", f"-{high}.5", str(n % 1000), f"2025-01-{n % 28 + 1:02d}"),
            *(f"customer-{n:09d}", f"{n % 977:03x}"),
        ]
        most = [
            *(str(day), str(first + FILE_ROWS - 1), least[2].replace(":00.0", ":59.0")),
            *(f"{low + 9}.25", f"{high}.5", str(n % 1000 + 7), f"2025-02-{n % 28 + 1:02d}"),
            *(f"customer-{n + 9:09d}", f"{n % 977:03x}zz"),
        ]
        ours.append({str(k + 1): [least[k], most[k]] for k in range(9)})
        theirs.append([dict(zip(names, least, strict=True)), dict(zip(names, most, strict=True))])
    return ours, theirs


def build_ours(
    uri: str, places: list[int], bounds: list[dict[str, list[str]]], commits: int
) -> None:
    """Write the checkpoint of a table with these files."""
    table = Table.create(uri, COLUMNS, partition_by=["day"])
    count, days = len(places), sorted(set(places))
    folders = {day: partition_path((str(day),)) for day in days}
    texts = {day: partition_text((str(day),)) for day in days}
    versions = np.sort(np.arange(count) % (commits - 1)) + 1
    stats = [
        json.dumps({k: [*pair, 0] for k, pair in each.items()}, separators=(",", ":"))
        for each in bounds
    ]
    fixed = {"bucket": -1, "kind": "base", "rows": FILE_ROWS, "bytes": 1 << 27}
    fixed |= {"order": -1, "schema_id": 0, "footer": 1}
    name = "all-{n:017d}-{n:016x}-0-0000.base.parquet"
    varied = {
        "path": [f"{folders[day]}/{name.format(n=n)}" for n, day in enumerate(places)],
        "partition": [texts[day] for day in places],
        "stats": stats,
        "version": versions,
    }
    added = _table(TABLES["added"], count, fixed, varied)
    known = handle_of(table).cache.known()
    one = {"action": "commit", "operation": "append", "base": 0, "completed_ms": known.completed_ms}
    one |= {"schema_id": 0, "commit_id": None, "ended": None, "client": '{"host":"a","pid":7}'}
    one |= {"stats": json.dumps({"rows_in": 100_000, "files_added": 10})}
    numbers = range(commits)
    files = np.bincount(versions, minlength=commits)
    each: dict[str, object] = {
        "version": numbers,
        "instant": [_instant(n) for n in numbers],
        "files": files,
    }
    events = Events(added=added, commits=_table(COMMITS, commits, one, each))
    last = commits - 1
    state = replace(known, version=last, files=count, tail=(LiveEntry(last, None, events),))
    handle_of(table).store.put(slot(last), b"")  # as if it was archived
    write_checkpoint(handle_of(table).store, state, Ports())


def _instant(version: int) -> str:
    return str(Instant.at(1_700_000_000_000 + version, f"{version:016x}"))


def _table(
    schema: pa.Schema, count: int, fixed: Mapping[str, object], varied: Mapping[str, object]
) -> pa.Table:
    columns = {
        field.name: pa.array(varied[field.name], field.type)
        if field.name in varied
        else pa.repeat(pa.scalar(fixed[field.name], field.type), count)
        for field in schema
    }
    return pa.table(columns, schema=schema)


def plan(place: str) -> dict[str, object]:
    """Open, and plan a scan of one partition."""
    return Table.open(f"{place}/plait").scan(where="day = 7").plan.to_dict()


def plan_by_bounds(place: str) -> dict[str, object]:
    """Open, and plan a scan of one partition by the bounds of a column."""
    return Table.open(f"{place}/plait").scan(where="day = 7 AND id < 1000000").plan.to_dict()


def plan_old(place: str) -> dict[str, object]:
    """Open, and plan a scan of one partition as it was long ago."""
    table = Table.open(f"{place}/plait")
    return table.scan(where="day = 7", version=table.version // 3).plan.to_dict()


def plan_clean(place: str) -> dict[str, object]:
    """Open, and plan a clean: it looks at every file."""
    return {
        "condemned": len(
            Table.open(f"{place}/plait").maintenance.clean(now=True, dry_run=True).condemned
        )
    }


def history(place: str) -> dict[str, object]:
    """Open, and list the newest decisions."""
    return {"entries": len(Table.open(f"{place}/plait").inspect.history(limit=20))}


def checkpoint(place: str) -> dict[str, object]:
    """Open, change ten files and write the checkpoint."""
    handle = handle_of(Table.open(f"{place}/plait"))
    state = handle.cache.refresh()
    last = state.version + 1
    name = f"{partition_path(('7',))}/all-{last:017d}-{last:016x}-0-{{n:04d}}.base.parquet"
    fixed = {"partition": partition_text(("7",)), "bucket": -1, "kind": "base", "rows": FILE_ROWS}
    fixed |= {"bytes": 1 << 27, "order": -1, "schema_id": 0, "footer": 1, "stats": None}
    varied = {"path": [name.format(n=n) for n in range(CHANGED)], "version": [last] * CHANGED}
    commit = {"version": last, "instant": _instant(last), "action": "commit"}
    commit |= {"operation": "append", "base": last - 1, "completed_ms": 0, "schema_id": 0}
    commit |= {"commit_id": None, "ended": None, "stats": "{}", "client": "{}", "files": CHANGED}
    events = Events(
        added=_table(TABLES["added"], CHANGED, fixed, varied),
        commits=pa.Table.from_pylist([commit], schema=COMMITS),
    )
    fresh = replace(
        state,
        version=last,
        files=state.files + CHANGED,
        tail=(*state.tail, LiveEntry(last, None, events)),
    )
    return {"parts": len(write_checkpoint(handle.store, fresh, Ports()).parts)}


def commits(name: str) -> Callable[[str], dict[str, object]]:
    """Return what opens a table and appends a row again and again."""

    def run(place: str) -> dict[str, object]:
        table = Table.open(f"{place}/{name}")
        table.append(ROW)
        taken = []
        for _ in range(APPENDS):
            begun = time.perf_counter()
            version = table.append(ROW).version
            taken.append(time.perf_counter() - begun)
        return {"version": version, "median_ms": round(sorted(taken)[APPENDS // 2] * 1000, 2)}

    return run


def measured(what: str, place: str) -> dict[str, object]:
    """Do it in this process, and tell what it took."""
    run: dict[str, Callable[[str], dict[str, object]]] = {
        "plan": plan,
        "plan by bounds": plan_by_bounds,
        "plan an old version": plan_old,
        "history": history,
        "checkpoint": checkpoint,
        "plan a clean": plan_clean,
        "delta": lambda place: delta.plan(f"{place}/delta"),
        "iceberg": lambda place: iceberg.plan(f"{place}/iceberg"),
        "commit": commits("plait"),
        "commit to a young table": commits("young"),
    }
    for library in IMPORTS.get(what, ()):  # ours is imported already
        importlib.import_module(library)
    before, begun = _moved(), time.perf_counter()
    told = run[what](place)
    seconds, after = time.perf_counter() - begun, _moved()
    return {
        "seconds": round(seconds, 3),
        "peak_mb": _peak_kb() // 1024,
        "read_mb": round((after["rchar"] - before["rchar"]) / (1 << 20), 2),
        "written_mb": round((after["wchar"] - before["wchar"]) / (1 << 20), 3),
        "told": told,
    }


def _moved() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def _peak_kb() -> int:
    """Return this process's memory when it was largest; that of its parent is not in it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def counted(place: str) -> dict[str, dict[str, int]]:
    """Count the storage calls of opening and planning, and of a client's second commit."""
    found = {}
    for what, back in (("plan", 1), ("plan an old version", 3)):
        version = Table.open(f"{place}/plait").version // back
        table, store = open_wrapped(f"{place}/plait", CountingStore)
        _ = table.scan(where="day = 7", version=version).plan
        found[what] = store.counts("metadata")
    for name, what in (("plait", "commit"), ("young", "commit to a young table")):
        table, store = open_wrapped(f"{place}/{name}", CountingStore)
        for _ in range(2):
            store.reset()
            table.append(ROW)
        found[what] = store.counts("metadata")
    return found


def main() -> int:
    """Build, measure each in fresh processes, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", help="where the tables are, or will be kept")
    parser.add_argument("--measure", choices=TIMED, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measured(asked.measure, asked.place)))
        return 0
    place = asked.place or tempfile.mkdtemp(prefix="plait-bench-")
    if not Path(place, "delta").exists():
        ours, theirs = bounds_of(asked.files, asked.partitions)
        places = [n % asked.partitions for n in range(asked.files)]
        build_ours(f"{place}/plait", places, ours, asked.commits)
        build_ours(f"{place}/young", places[:YOUNG], ours[:YOUNG], YOUNG)
        iceberg.build(f"{place}/iceberg", COLUMNS, places, theirs)
        delta.build(f"{place}/delta", COLUMNS, places, theirs, asked.commits)
    result: dict[str, object] = {"files": asked.files, "partitions": asked.partitions}
    result |= {"commits": asked.commits, "calls": counted(place)}
    for what in TIMED:
        command = [sys.executable, __file__, "--measure", what, "--place", place]
        rounds = [
            json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            for _ in range(1 if what == "checkpoint" else asked.rounds)
        ]
        result[what] = sorted(rounds, key=lambda each: each["seconds"])[len(rounds) // 2]
    print(json.dumps(result, indent=2))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    if not asked.place:
        shutil.rmtree(place)
    return _judged(result)


def _judged(result: dict[str, object]) -> int:
    read = result["plan"]["read_mb"] * (1 << 20)  # type: ignore[index]  # as measured
    written = result["checkpoint"]["written_mb"] * (1 << 20)  # type: ignore[index]  # as measured
    more: dict[str, int] = {}
    for what, calls in result["calls"].items():  # type: ignore[attr-defined]  # as counted
        limit = CALLS["commit" if what.startswith("commit") else what]
        more |= {f"{what}: {k}": n for k, n in calls.items() if n > limit.get(k, 0)}
    if more or read > BYTES["plan"] or written > BYTES["checkpoint"]:
        print(f"more is read or written than it was: {more}, {read}, {written}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
