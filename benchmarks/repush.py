"""Repush a table, beside a bulk insert of the same rows into a table of the new layout.

    python benchmarks/repush.py [--rows 5000000] [--rounds 3] [--spark] [--writers 4]

The table has 16 buckets, is merge-on-read, and had an eighth of its rows updated and a hundredth
deleted; it becomes copy-on-write with 64 buckets, and once more with rows in the order of two
columns too. The rows of the bulk insert are read from the
table too. Each measurement is a process of its own, on a copy of the table, and all take turns.
With ``--writers``, so many processes upsert small batches all the time, and the rounds of the
catch-up are told. Results: benchmarks/results/repush.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.compare_tables import SCHEMA, rows
from plait import Table

RESULTS = Path(__file__).with_name("results") / "repush.json"
WHAT = ("insert", "repush", "sorted", "beside")
_AT_ONCE = 500_000
_BATCH = 200
_ORDER = ("origin", "delay")


def fill(place: Path, count: int) -> None:
    """Make the table."""
    table = Table.create(
        str(place / "table"), SCHEMA, record_key="id", buckets=16, table_type="mor"
    )
    with table.writer("insert") as writer:
        for first in range(0, count, _AT_ONCE):
            writer.write(rows(first, min(_AT_ONCE, count - first)))
    table.upsert(rows(0, count // 8))
    table.delete(where=f"id < {count // 100}")


def session() -> Any:  # noqa: ANN401 - a session of Spark, where it is installed
    """Start Spark on all cores."""
    from plait.spark import session as start

    return start()


def work(place: Path, what: str, *, spark: bool) -> dict[str, object]:
    """Do one thing, and tell its time and memory."""
    running = session() if spark else None
    table = Table.open(str(place / what))
    told: dict[str, object] = {}
    began = time.perf_counter()
    if what == "insert":
        new = Table.create(str(place / "new"), SCHEMA, record_key="id", buckets=64)
        scan = table.scan()
        with new.writer("insert") as writer:
            writer.write(scan.to_reader() if running is None else scan.to_spark(running))
    else:
        order = _ORDER if what == "sorted" else None
        told = table.layout.repush(
            buckets=64, table_type="cow", sort_by=order, spark=running
        ).to_dict()
    seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    if running is not None:
        running.stop()
    return {"s": seconds, "peak_mib": used.ru_maxrss / 1024, "report": told}


def write(place: Path, number: int, count: int) -> None:
    """Upsert small batches until somebody ends this process; tell how many commits there were."""
    table, drawn = Table.open(str(place)), random.Random(number)
    commits = 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            first = drawn.randrange(count)
            with table.writer("upsert", on_conflict="retry") as writer:
                writer.write(rows(first, _BATCH))
            commits += 1
    print(json.dumps({"commits": commits}))


@contextlib.contextmanager
def writers(base: list[str], place: Path, number: int) -> Iterator[list[int]]:
    """Let processes write meanwhile; the list tells their commits afterwards."""
    line = [*base, "--work", str(place), "write"]
    running = [
        subprocess.Popen([*line, "--number", str(n)], stdout=subprocess.PIPE) for n in range(number)
    ]
    commits: list[int] = []
    try:
        yield commits
    finally:
        for each in running:
            each.send_signal(2)
        for each in running:
            said = each.communicate()[0]
            if each.returncode:
                sys.exit(f"a writer failed: {each.returncode}")
            commits.append(json.loads(said)["commits"])


def main() -> None:
    """Measure all in turn, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--work", nargs=2, metavar=("PLACE", "WHAT"))
    asked = parser.parse_args()
    if asked.work:
        place, what = Path(asked.work[0]), asked.work[1]
        if what == "fill":
            fill(place, asked.rows)
        elif what == "write":
            write(place, asked.number, asked.rows)
        else:
            print(json.dumps(work(place, what, spark=asked.spark)))
        return
    base = [sys.executable, __file__, "--rows", str(asked.rows)]
    base += ["--spark"] if asked.spark else []
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in WHAT}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        subprocess.check_call([*base, "--work", scratch, "fill"])
        for _ in range(asked.rounds):
            for what, runs in found.items():
                shutil.copytree(place / "table", place / what)
                number = asked.writers if what == "beside" else 0
                with writers(base, place / what, number) as commits:
                    said = subprocess.check_output([*base, "--work", scratch, what])
                runs.append({**json.loads(said.splitlines()[-1]), "commits": sum(commits)})
                check(place, what)
                for name in (what, "new"):
                    shutil.rmtree(place / name, ignore_errors=True)
    best = {what: min(runs, key=lambda run: run["s"]) for what, runs in found.items()}
    result = {
        "rows": asked.rows,
        "rounds": asked.rounds,
        "engine": "spark" if asked.spark else "arrow",
        "writers": asked.writers,
        "runs": {
            what: {
                "s": round(run["s"], 2),
                "of_insert": round(run["s"] / best["insert"]["s"], 2),
                "peak_mib": round(run["peak_mib"]),
                "commits": run["commits"],
                "report": run["report"],
            }
            for what, run in best.items()
        },
    }
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


def check(place: Path, what: str) -> None:
    """End the program if rows are not what they were before."""
    if what == "beside":
        return  # writers went on; the tests look at that
    before = Table.open(str(place / "table"))
    after = Table.open(str(place / ("new" if what == "insert" else what)))
    if not before.inspect.compare(after).equal:
        sys.exit(f"{what}: other rows than before")


if __name__ == "__main__":
    main()
