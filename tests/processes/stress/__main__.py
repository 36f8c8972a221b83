"""``python -m tests.processes.stress``: as many commits as asked for, on each kind of place.

    python -m tests.processes.stress local s3 zookeeper --processes 16 --commits 1000

``local``: a disk and its file lock. ``s3``: the S3-compatible server of the tests, its slots alone.
``zookeeper``: a disk, the lock in an ensemble of three whose
leader is killed three times on the way. ``--services 3`` adds processes that compact,
cluster, clean, archive, optimize and move savepoints, and are killed like the others; a copy of the
table is restored in the end. ``--publishers 3`` adds processes that publish a Delta log and
Iceberg metadata, of which one repushes; in the end each version that they show is read by three
engines each. ``--lasts 10`` goes on for ten minutes. One JSON line a run; ends in 1 if a fault was
found.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes.stress.run import Stress
from tests.services.s3 import S3Server
from tests.services.zookeeper import ZooKeeper

SLOWNESS_S3 = 3
"""The server of the tests answers some hundred requests a second, to all processes together."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run takes place."""

    uri: str
    lock: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    slowness: float = 1
    disturb: Callable[[int], object] | None = None


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Place]:
    """Start what the place needs."""
    if name == "local":
        yield Place(str(folder / "t"))
    elif name == "s3":
        with S3Server(folder) as server:
            yield Place(server.uri("t"), options=server.options, slowness=SLOWNESS_S3)
    else:
        with ZooKeeper(folder, members=3) as ensemble:
            yield Place(
                str(folder / "t"), ensemble.lock("stress"), disturb=lambda _: kill_leader(ensemble)
            )


def kill_leader(ensemble: ZooKeeper) -> None:
    """Kill the server that leads, and start it again once another does."""
    leader = ensemble.leader
    leader.kill()
    others = [server for server in ensemble.servers if server is not leader]
    while not any(server.role() == "leader" for server in others):
        time.sleep(0.1)
    leader.start()
    leader.wait_ready()


PLACES = ("local", "s3", "zookeeper")


def main() -> int:
    """Run and print one JSON line a run; 1 if a fault was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", default=["local"], choices=PLACES, metavar="PLACE")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--services", type=int, default=0)
    parser.add_argument("--publishers", type=int, default=0)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--type", default="cow", choices=["cow", "mor"])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--minutes", type=float, default=30, help="at most, for that many commits")
    parser.add_argument("--lasts", type=float, default=0, metavar="MINUTES", help="at least")
    asked = parser.parse_args()
    worst = 0
    for name in asked.places:
        seen, fault = run(name, asked)
        worst |= fault
        line = {"place": name, "type": asked.type, "seed": asked.seed, **seen}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return worst


def run(name: str, asked: argparse.Namespace) -> tuple[dict[str, object], int]:
    """Run on one kind of place; give what was seen, and 1 for a fault."""
    with tempfile.TemporaryDirectory() as folder, opened(name, Path(folder)) as place:
        stress = Stress(
            place.uri,
            Path(folder),
            processes=asked.processes,
            commits=asked.commits,
            services=asked.services,
            publishers=asked.publishers,
            options=place.options,
            lock=place.lock,
            slowness=place.slowness,
            table_type=asked.type,
            seed=asked.seed,
            deadline_s=asked.minutes * 60,
            lasts_s=asked.lasts * 60,
            disturb=place.disturb,
        )
        try:
            return stress.run(), 0
        except AssertionError as fault:
            return {"fault": str(fault)}, 1


if __name__ == "__main__":
    sys.exit(main())
