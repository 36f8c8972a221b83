"""What a lock saves writers on an object store: lost slots and work done again, counted.

    python benchmarks/lost_slots.py [--writers 8] [--commits 10] [--latency 20]

Each writer is a process that upserts rows of its own into one bucket, as fast as it can, over a
store on which every call takes ``--latency`` milliseconds. Counted under each lock: slots that a
commit lost to another, buckets done again, the most attempts of one commit, and store calls a
commit. Counts do not depend on how fast the machine is. Results: results/lost_slots.json.
ZooKeeper takes part if its jars are there: python -m tests.services.jars
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa

from plait import Table
from plait.storage.port import Store
from plait.testing import CountingStore, open_wrapped
from tests.services.jars import find_jars
from tests.services.zookeeper import ZooKeeper

RESULTS = Path(__file__).with_name("results") / "lost_slots.json"
T = TypeVar("T")


class Distant(CountingStore):
    """A store each of whose calls takes a while, as those of an object store do."""

    def __init__(self, inner: Store, latency_s: float) -> None:
        super().__init__(inner)
        self._latency_s = latency_s

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        """Wait, then make the call."""
        time.sleep(self._latency_s)
        return super().call(operation, path, run)


def write(at: tuple[str, str], number: int, commits: int, latency_s: float, start: Barrier) -> None:
    """Commit again and again to a table with a lock, and leave the count of calls beside it."""
    place, lock = at
    table, store = open_wrapped(place, lambda inner: Distant(inner, latency_s), allow=[lock])
    start.wait()
    store.reset()
    for each in range(commits):
        first = (number * commits + each) * 2
        table.upsert(pa.table({"id": [first, first + 1], "value": [1.0, 2.0]}))
    Path(f"{place}.calls-{number}").write_text(str(len(store.calls)))


def race(lock: str, place: str, writers: int, commits: int, latency_s: float) -> dict[str, object]:
    """Let all write under one lock; return what was counted."""
    table = Table.create(
        place, "id bigint, value double", record_key=["id"], buckets=1, lock=lock,
        properties={"commit.deadline": "1h", "commit.retries": "1000"},
    )  # fmt: skip
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(writers)
    crew = [
        context.Process(target=write, args=((place, lock), number, commits, latency_s, start))
        for number in range(writers)
    ]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
    history = [entry for entry in table.inspect.history() if entry.operation == "upsert"]
    assert len(history) == writers * commits, "every commit lands"
    attempts = [int(str(entry.client["attempts"])) for entry in history]
    redone = sum(int(str(entry.client.get("rebased", 0))) for entry in history)
    calls = sum(int(path.read_text()) for path in Path(place).parent.glob("*.calls-*"))
    return {
        "commits": len(history),
        "lost_slots_a_commit": round(sum(attempts) / len(history) - 1, 2),
        "buckets_redone_a_commit": round(redone / len(history), 2),
        "most_attempts_of_one": max(attempts),
        "median_attempts": statistics.median(attempts),
        "store_calls_a_commit": round(calls / len(history), 1),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--commits", type=int, default=10)
    parser.add_argument("--latency", type=float, default=20.0)
    chosen = parser.parse_args()
    results: dict[str, object] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plait-bench-")))
        locks = {"none": "none", "lease": "lease"}
        if find_jars("zookeeper") is not None:
            server = stack.enter_context(ZooKeeper(folder / "server"))
            locks["zookeeper"] = server.lock("bench")
        for name, lock in locks.items():
            (folder / name).mkdir()
            place = str(folder / name / "table")
            results[name] = race(lock, place, chosen.writers, chosen.commits, chosen.latency / 1000)
            print(name, json.dumps(results[name]), flush=True)
    RESULTS.write_text(json.dumps({**vars(chosen), **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
