"""Locks: turns a second of each provider, what a lent slot costs, and how long a death delays.

    python benchmarks/locks.py [--turns 100]

Eight threads of one process, then four processes, take turns at a lock. Commits are appends of one
row to a local disk, with slots of its own and with slots lent by ZooKeeper, in turn. Leaders of an
ensemble of three are killed under a held lock. Results: benchmarks/results/locks.json.
Needs the jars of ZooKeeper: python -m tests.services.jars
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa

from plait import Table
from plait.errors import LockUnavailableError
from plait.locks import open_lock
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
from plait.storage.port import Store
from plait.testing.lock_kit import MemoryCounter, Turn, Worker, longest_wait, overlaps, take_turns
from tests.services.jars import find_jars
from tests.services.zookeeper import ZooKeeper

RESULTS = Path(__file__).with_name("results") / "locks.json"
THREADS, PROCESSES = 8, 4


def threads(lock: str, store: Store, turns: int) -> dict[str, object]:
    """Let threads take turns."""
    taken: list[Turn] = []
    start = threading.Barrier(THREADS)

    def run(name: str) -> None:
        provider = open_lock(lock, store, Ports(), Consent().also(lock))
        start.wait()
        taken.extend(take_turns(provider, name, turns, MemoryCounter()))

    workers = [threading.Thread(target=run, args=(f"thread {n}",)) for n in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return summary(taken)


def processes(lock: str, store: Store, turns: int, place: Path) -> dict[str, object]:
    """Let processes take turns."""
    workers = [Worker(lock, store, f"process {n}", str(place / "count")) for n in range(PROCESSES)]
    for worker in workers:
        worker.hear()
    for worker in workers:
        worker.tell(f"turns {turns}")
    taken = [turn for worker in workers for turn in worker.hear()]
    for worker in workers:
        worker.kill()
    return summary(taken)


def summary(taken: list[Turn]) -> dict[str, object]:
    """Return turns a second, how unfair it was, and whether two held it at once."""
    took = max(left for _, left, *_ in taken) - min(entered for entered, *_ in taken)
    return {
        "turns": len(taken),
        "turns_per_s": round(len(taken) / took, 1),
        "overlaps": len(overlaps(taken)),
        "most_turns_of_others_between_two_of_one": longest_wait(taken),
    }


def commits(server: ZooKeeper, place: Path, count: int) -> dict[str, float]:
    """Time appends with slots of the disk and with lent ones, in turn."""
    lent = server.lock("bench") + "&slots=lent"
    tables = {
        "disk": Table.create(str(place / "own"), "id bigint", lock="none"),
        "lent": Table.create(str(place / "lent"), "id bigint", lock=lent),
    }
    times: dict[str, list[float]] = {name: [] for name in tables}
    for number in range(count):
        for name, table in tables.items():
            began = time.perf_counter()
            table.append(pa.table({"id": pa.array([number], pa.int64())}))
            times[name].append(time.perf_counter() - began)
    return {name: round(statistics.median(found) * 1000, 2) for name, found in times.items()}


def failovers(place: Path) -> list[float]:
    """Kill leaders under a held lock; give the seconds until it is held as before."""
    found = []
    with ZooKeeper(place / "ensemble", members=3) as servers:
        lock = servers.lock("failover", session="10s")
        provider = open_lock(lock, open_store("memory://bench"), Ports(), Consent().also(lock))
        for _ in range(3):
            with provider.acquire(wait_s=10, owner="bench") as held:
                leader = servers.leader
                began = time.monotonic()
                leader.kill()
                while held.lost is None and time.monotonic() - began < 5:
                    time.sleep(0.005)
                while held.lost is not None:
                    time.sleep(0.005)
                while True:
                    try:
                        provider.holder()
                        break
                    except LockUnavailableError:
                        continue
                found.append(round(time.monotonic() - began, 2))
            leader.start()
            leader.wait_ready()
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    turns = parser.parse_args().turns
    if find_jars("zookeeper") is None:
        print("nothing is measured: no jars of ZooKeeper (python -m tests.services.jars)")
        return
    place = Path(tempfile.mkdtemp(prefix="plait-bench-"))
    results: dict[str, object] = {}
    with ZooKeeper(place / "one") as server:
        disk = open_store(str(place / "disk"))
        cases = {
            "file": ("file", disk, turns),
            "zookeeper": (server.lock("turns"), disk, turns),
        }
        for name, (lock, store, each) in cases.items():
            results[name] = {
                "threads": threads(lock, store, each),
                "processes": processes(lock, store, each, place),
            }
        results["append_ms"] = commits(server, place, 2 * turns)
    results["leader_killed_s"] = failovers(place)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
