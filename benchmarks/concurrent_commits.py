"""Processes that append at once to one table, Plait and deltalake in the same run.

    python benchmarks/concurrent_commits.py [--processes 8] [--commits 100] [--rounds 3]

Each process makes small appends of rows of its own, as fast as it can, on a local disk; the rounds
of the two alternate. What is timed begins when every process has opened the table, and ends with
the last commit. A commit that raises is a failure. Beside it, storage calls that are made while
the lock is held are counted, at version 10 and at version ``--until``: a writer that lost its slot
queues on the lock, looks at what came, and publishes. Results: results/concurrent_commits.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa

from plait import Table
from plait.locks.port import Held
from plait.table import handle_of
from plait.testing import CountingStore, open_wrapped
from plait.txn.table_handle import TableHandle

RESULTS = Path(__file__).with_name("results") / "concurrent_commits.json"
ROWS = 100


def batch(process: int, number: int) -> pa.Table:
    """Make the rows of one commit."""
    first = (process * 1_000_000 + number) * ROWS
    ids = list(range(first, first + ROWS))
    return pa.table({"id": ids, "part": ["p0"] * ROWS, "value": [n * 0.5 for n in ids]})


def plait_worker(
    place: str, process: int, commits: int, barrier: Barrier, out: multiprocessing.Queue[Report]
) -> None:
    """Append with Plait."""
    table = Table.open(place)
    data = [batch(process, number) for number in range(commits)]
    table.append(batch(process, commits))  # imports and caches
    barrier.wait()
    failures: Counter[str] = Counter()
    for each in data:
        try:
            table.append(each)
        except Exception as error:  # noqa: BLE001 - counted
            failures[type(error).__name__] += 1
    out.put((time.monotonic(), dict(failures)))


def delta_worker(
    place: str, process: int, commits: int, barrier: Barrier, out: multiprocessing.Queue[Report]
) -> None:
    """Append with deltalake, whose client retries conflicts by itself."""
    from deltalake import DeltaTable, write_deltalake

    table = DeltaTable(place)
    data = [batch(process, number) for number in range(commits)]
    warm_up(lambda: write_deltalake(table, batch(process, commits), mode="append"))
    barrier.wait()
    failures: Counter[str] = Counter()
    for each in data:
        try:
            write_deltalake(table, each, mode="append")
        except Exception as error:  # noqa: BLE001 - counted
            failures[type(error).__name__] += 1
    out.put((time.monotonic(), dict(failures)))


def warm_up(write: Callable[[], object]) -> None:
    """Write once before the clock starts, as often as it takes."""
    for _ in range(20):
        try:
            write()
        except Exception:  # noqa: BLE001 - it is not counted
            continue
        return


Report = tuple[float, dict[str, int]]
WORKERS = {"plait": plait_worker, "deltalake": delta_worker}


def run(kind: str, place: str, processes: int, commits: int) -> dict[str, object]:
    """Run one round; give seconds, commits that landed, and failures by type."""
    context = multiprocessing.get_context("spawn")
    barrier, out = context.Barrier(processes + 1), context.Queue()
    crew = [
        context.Process(target=WORKERS[kind], args=(place, number, commits, barrier, out))
        for number in range(processes)
    ]
    for each in crew:
        each.start()
    barrier.wait()
    begun = time.monotonic()
    reports = [out.get() for _ in crew]
    for each in crew:
        each.join()
    seconds = max(ended for ended, _ in reports) - begun
    failures = sum((Counter(failed) for _, failed in reports), Counter())
    landed = processes * commits - failures.total()
    return {
        "seconds": round(seconds, 2),
        "landed": landed,
        "per_second": round(landed / seconds, 1),
        "failures": dict(failures),
    }


def race(processes: int, commits: int, rounds: int) -> dict[str, object]:
    """Let both run in turn on fresh tables."""
    found: dict[str, list[dict[str, object]]] = {"plait": [], "deltalake": []}
    for _ in range(rounds):
        folder = Path(tempfile.mkdtemp(prefix="plait-bench-"))
        try:
            Table.create(str(folder / "plait"), batch(0, 0).schema)
            make_delta(str(folder / "delta"))
            found["plait"].append(run("plait", str(folder / "plait"), processes, commits))
            found["deltalake"].append(run("deltalake", str(folder / "delta"), processes, commits))
            rows = Table.open(str(folder / "plait")).scan().count()
            landed = int(str(found["plait"][-1]["landed"])) + processes
            assert rows == landed * ROWS, "rows were lost"
        finally:
            shutil.rmtree(folder)
    ours, theirs = (
        statistics.median(float(str(each["per_second"])) for each in found[kind])
        for kind in ("plait", "deltalake")
    )
    return {"ratio": round(ours / theirs, 2), **found}


def make_delta(place: str) -> None:
    """Create an empty Delta table."""
    from deltalake import DeltaTable

    DeltaTable.create(place, pa.schema(batch(0, 0).schema))


class Watched:
    """The lock of a table; remembers which storage calls were made while it was held."""

    def __init__(self, handle: TableHandle, store: CountingStore) -> None:
        self._lock, self._store = handle.lock, store
        self.name = handle.lock.name
        self.under: list[str] = []

    @contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[Held]:
        """Take the lock, and count until it is let go."""
        with self._lock.acquire(wait_s=wait_s, owner=owner) as held:
            before = len(self._store.calls)
            yield held
            self.under += [call.operation for call in self._store.calls[before:]]

    def holder(self) -> None:
        """Tell nothing."""


def calls_under_the_lock(until: list[int]) -> dict[str, dict[str, int]]:
    """Count what a writer that lost one slot does while it holds the lock."""
    uri = f"memory://calls-{os.getpid()}"
    Table.create(uri, batch(0, 0).schema)
    quick = Table.open(uri)
    found: dict[str, dict[str, int]] = {}
    number = 0
    for version in until:
        while quick.version < version - 2:
            number += 1
            quick.append(batch(0, number).slice(0, 1))
        table, store = open_wrapped(uri, CountingStore)
        watched = Watched(handle_of(table), store)
        object.__setattr__(handle_of(table), "lock", watched)
        with table.writer() as writer:
            writer.write(batch(1, number))
            quick.append(batch(2, number))  # takes the slot that the writer aims at
        assert writer.result.version == version, writer.result
        found[str(version)] = dict(Counter(watched.under))
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--until", type=int, default=10_000)
    asked = parser.parse_args()
    result = {
        "processes": asked.processes,
        "commits_a_process": asked.commits,
        "rows_a_commit": ROWS,
        **race(asked.processes, asked.commits, asked.rounds),
        "calls_under_the_lock": calls_under_the_lock([10, asked.until]),
    }
    print(json.dumps(result, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
