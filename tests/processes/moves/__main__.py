"""``python -m tests.processes.moves``: processes that bring the same keys into other partitions.

    python -m tests.processes.moves --keys 100000 --seconds 120 --seed 7
    python -m tests.processes.moves --store s3 --lock zookeeper --seconds 60

Eight processes insert, upsert, merge and delete the same keys in eight partitions of a table with
``unique="table"``, and compact it. They are killed and stopped all the time; a stop may be so long
that others take the writer for dead. ``--store s3`` takes the S3-compatible server of the tests.
``--lock zookeeper`` takes an ensemble of three, whose leader is killed three times on the way.
Afterwards each commit is followed in the change feed: a key
is never there twice, each commit is whole, and sampled versions and ``verify`` say the same. Prints
one JSON line; ends in 1 if a fault was found, and then keeps the folder.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.processes.moves.places import LOCKS, STORES, opened
from tests.processes.moves.run import Run
from tests.processes.moves.worker import Plan


def main() -> int:
    """Run and print; 1 if a fault was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1_000, help="the most keys of one commit")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--type", choices=["cow", "mor"], default="mor")
    parser.add_argument("--policy", choices=["key", "file_group", "merge"], default="key")
    parser.add_argument("--no-index", action="store_true", help="without a record index")
    parser.add_argument("--store", choices=STORES, default="local")
    parser.add_argument("--lock", choices=LOCKS, default="default")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="plait-moves-"))
    try:
        seen = run(asked, folder)
    except AssertionError as error:
        fault = {"seed": asked.seed, "fault": str(error), "folder": str(folder)}
        sys.stdout.write(json.dumps(fault) + "\n")
        return 1
    kind = {"store": asked.store, "lock": asked.lock, "type": asked.type, "policy": asked.policy}
    sys.stdout.write(json.dumps({**kind, "seed": asked.seed, **seen}) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def run(asked: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Run on the store and with the lock that were asked for."""
    with opened(asked.store, asked.lock, folder) as place:
        plan = Plan(
            str(folder),
            place.uri,
            asked.keys,
            asked.batch,
            options=place.options,
            lock=place.lock,
            slowness=place.slowness,
        )
        fleet = Run(
            plan,
            asked.writers,
            asked.seconds,
            asked.seed,
            disturb=place.disturb,
            disturbances=3 if place.disturb else 0,
        )
        return fleet.carry_out(asked.type, asked.policy, index=not asked.no_index)


if __name__ == "__main__":
    sys.exit(main())
