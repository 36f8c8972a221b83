"""``python -m tests.processes.kafka``: the Kafka sink under kills, stops, rebalances and damage.

    python -m tests.processes.kafka --records 3000000 --kills 100 --seed 7
    python -m tests.processes.kafka keyed-mor --lock zookeeper --records 200000

Each run has a table and a topic of its own on a real broker: keyed or not, copy-on-write or
merge-on-read. Sink processes (``tablectl sink kafka``) are killed, stopped for longer than their
session, told to go, and started; the broker is killed and started again; another process damages
the control topic. In the end every record must be there once, and ``verify``, ``verify --history``
and ``stream audit`` must find nothing. One JSON line a run; ends in 1 if a fault was found, and
then keeps the folder of that run. The same seed does the same things in the same order.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes.kafka.run import Plan, Run
from tests.services.kafka import Kafka
from tests.services.zookeeper import ZooKeeper

TABLES = {
    "append-cow": (False, "cow"),
    "append-mor": (False, "mor"),
    "keyed-cow": (True, "cow"),
    "keyed-mor": (True, "mor"),
}
LOCKS = ("file", "zookeeper", "none")


def main() -> int:
    """Run and print one JSON line a run; 1 if a fault was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], metavar="TABLE")
    parser.add_argument("--lock", choices=LOCKS, help="by default each table has another one")
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--leaves", type=int, default=20)
    parser.add_argument("--broker-kills", type=int, default=2)
    parser.add_argument("--noise", type=float, default=5, help="damaged messages in a second")
    parser.add_argument("--pause", type=float, default=4, help="mean seconds between two acts")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    asked = parser.parse_args()
    worst = 0
    for number, name in enumerate(asked.tables or TABLES):
        lock = asked.lock or LOCKS[number % len(LOCKS)]
        seen, fault = run(name, lock, asked)
        worst |= fault
        line = {"table": name, "lock": lock, "seed": asked.seed, **seen}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return worst


def run(name: str, lock: str, asked: argparse.Namespace) -> tuple[dict[str, object], int]:
    """Run on one table; return what was seen, and 1 for a fault."""
    keyed, table_type = TABLES[name]
    folder = Path(tempfile.mkdtemp(prefix=f"plait-kafka-{name}-"))
    with opened(lock, folder) as text, Kafka(folder / "broker") as kafka:
        plan = Plan(
            records=asked.records,
            keyed=keyed,
            table_type=table_type,
            lock=text,
            partitions=asked.partitions,
            processes=asked.processes,
            kills=asked.kills,
            stops=asked.stops,
            leaves=asked.leaves,
            broker_kills=asked.broker_kills,
            noise=asked.noise,
            pause_s=asked.pause,
            seed=asked.seed,
        )
        stress = Run(plan, kafka, folder)
        try:
            seen = stress.carry_out()
        except AssertionError as fault:
            again = f"--seed {asked.seed} repeats it"
            look = f"tablectl stream audit {folder}/table {stress.topic}; {folder}/sink-*.log"
            return {"fault": str(fault), "look": look, "again": again}, 1
    if asked.keep:
        return {**seen, "folder": str(folder)}, 0
    shutil.rmtree(folder)
    return seen, 0


@contextmanager
def opened(lock: str, folder: Path) -> Iterator[str]:
    """Start what a lock needs; give its text."""
    if lock != "zookeeper":
        yield lock
        return
    with ZooKeeper(folder / "zookeeper") as servers:
        yield servers.lock("stress")


if __name__ == "__main__":
    sys.exit(main())
