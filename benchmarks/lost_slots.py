"""What a lock saves writers on an object store: lost slots and work done again, counted.

    python benchmarks/lost_slots.py [--writers 4 8] [--commits 10] [--latency 30] [--upload 0]

Each writer is a process that upserts rows of its own into a few buckets that all of them share, as
fast as it can: on a disk and on the S3 server of the tests. Every call takes ``--latency``
milliseconds more, and the upload of a data file ``--upload`` more, as that of a large bucket does.
Counted under each lock: slots that a commit lost to another, buckets done again, the most attempts
of one commit, and store calls a commit. These counts hardly depend on the machine; commits a second
and seconds of CPU a commit do. Results: results/lost_slots.json.
ZooKeeper takes part if its jars are there: python -m tests.services.jars
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa

from plait import Table
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
from plait.storage.port import Store
from plait.testing import CountingStore
from plait.testing.wrapper import is_metadata
from plait.txn.table_handle import open_handle
from tests.services.jars import find_jars
from tests.services.s3 import S3Server
from tests.services.zookeeper import ZooKeeper

RESULTS = Path(__file__).with_name("results") / "lost_slots.json"
BUCKETS, ROWS, ROWS_A_COMMIT = 4, 100_000, 3
T = TypeVar("T")


class Distant(CountingStore):
    """A store each of whose calls takes a while, as those of an object store do."""

    def __init__(self, inner: Store, latency_s: float, upload_s: float) -> None:
        super().__init__(inner)
        self._latency_s, self._upload_s = latency_s, upload_s

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        """Wait, then make the call."""
        uploads = operation == "open_output" and not is_metadata(path)
        time.sleep(self._latency_s + self._upload_s * uploads)
        return super().call(operation, path, run)


@dataclass(frozen=True, slots=True)
class Race:
    """Writers that commit at once to one table."""

    uri: str
    options: Mapping[str, object]
    lock: str
    reports: str
    """Folder for what the writers report."""
    commits: int
    """Commits of each writer."""
    writers: int
    latency_s: float
    upload_s: float

    def create(self) -> Table:
        """Create the table, with rows that an upsert of a bucket must copy."""
        table = Table.create(
            self.uri, "id bigint, value double", record_key=["id"], buckets=BUCKETS,
            lock=self.lock, storage_options=self.options,
            properties={"commit.deadline": "1h", "commit.retries": "1000"},
        )  # fmt: skip
        table.upsert(pa.table({"id": list(range(ROWS)), "value": [0.5] * ROWS}))
        return table

    def write(self, number: int, start: Barrier) -> None:
        """Commit again and again, and report the calls, the CPU and when it was done."""
        store = Distant(open_store(self.uri, self.options), self.latency_s, self.upload_s)
        table = Table(open_handle(store, Ports(), Consent.of([self.lock])))
        chosen = random.Random(number)
        start.wait()
        store.reset()
        cpu = time.process_time()
        for _ in range(self.commits):
            # No two write the same key: whatever is done again is done for the bucket.
            ids = chosen.sample(range(number, ROWS, self.writers), ROWS_A_COMMIT)
            table.upsert(pa.table({"id": ids, "value": [1.0] * ROWS_A_COMMIT}))
        report = {
            "calls": len(store.calls),
            "cpu_s": time.process_time() - cpu,
            "done": time.monotonic(),
        }
        Path(self.reports, f"{number}.json").write_text(json.dumps(report))

    def run(self) -> dict[str, object]:
        """Let all write; return what was counted."""
        table, writers = self.create(), self.writers
        context = multiprocessing.get_context("spawn")
        start = context.Barrier(writers + 1)
        crew = [context.Process(target=self.write, args=(each, start)) for each in range(writers)]
        for process in crew:
            process.start()
        start.wait()
        begun = time.monotonic()
        for process in crew:
            process.join()
        reports = [json.loads(path.read_text()) for path in Path(self.reports).glob("*.json")]
        history = [entry for entry in table.inspect.history() if entry.operation == "upsert"][:-1]
        count = writers * self.commits
        assert len(history) == count, "every commit lands"
        attempts = [int(str(entry.client["attempts"])) for entry in history]
        redone = sum(int(str(entry.client.get("rebased", 0))) for entry in history)
        return {
            "commits": count,
            "lost_slots_a_commit": round(sum(attempts) / count - 1, 2),
            "buckets_redone_a_commit": round(redone / count, 2),
            "most_attempts_of_one": max(attempts),
            "median_attempts": statistics.median(attempts),
            "store_calls_a_commit": round(sum(each["calls"] for each in reports) / count, 1),
            "commits_per_s": round(count / (max(each["done"] for each in reports) - begun), 2),
            "cpu_s_a_commit": round(sum(each["cpu_s"] for each in reports) / count, 3),
        }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--commits", type=int, default=10)
    parser.add_argument("--latency", type=float, default=30.0)
    parser.add_argument("--upload", type=float, default=0.0)
    parser.add_argument("--locks", nargs="+", default=["none", "file", "zookeeper"])
    parser.add_argument("--places", nargs="+", default=["disk", "s3"])
    chosen = parser.parse_args()
    results: dict[str, object] = {**vars(chosen), "load_before": round(os.getloadavg()[0], 1)}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plait-bench-")))
        s3 = stack.enter_context(S3Server(folder)) if "s3" in chosen.places else None
        locks = {name: name for name in chosen.locks if name != "zookeeper"}
        if "zookeeper" in chosen.locks and find_jars("zookeeper") is not None:
            server = stack.enter_context(ZooKeeper(folder / "server"))
            locks["zookeeper"] = server.lock("bench")
        cases = [(place, writers) for place in chosen.places for writers in chosen.writers]
        for place, writers in cases:
            for name, lock in locks.items():
                if (place, name) == ("s3", "file"):
                    continue  # a lock of local disks
                case = f"{place}, {writers} writers, {name}"
                reports = folder / case
                reports.mkdir()
                uri, options = str(reports / "table"), {}
                if s3 is not None and place == "s3":
                    uri, options = s3.uri(f"{writers}-{name}"), s3.options
                latency_s, upload_s = chosen.latency / 1000, chosen.upload / 1000
                race = Race(
                    uri, options, lock, str(reports), chosen.commits, writers, latency_s, upload_s
                )
                results[case] = race.run()
                print(case, json.dumps(results[case]), flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
