"""A process that writes one table and a database beside it, until somebody ends it.

``python -m tests.processes.dual_writer TABLE DATABASE FIRST STEP`` changes its own keys, FIRST,
FIRST + STEP, ..., again and again, and prints a line for each commit.
"""

from __future__ import annotations

import itertools
import sys

import pyarrow as pa

from plait import Table
from plait.replicate import Replicas, Retries, SqlSink
from tests.services.process import die_with_parent

KEYS = 40


def sink_of(database: str) -> SqlSink:
    return SqlSink("database", f"sqlite:///{database}?timeout=60", "t")


def main(uri: str, database: str, first: int, step: int) -> None:
    die_with_parent()
    table = Table.open(uri)
    replicas = Replicas([sink_of(database)], batch_size=3, retries=Retries(attempts=10))
    for round_number in itertools.count(1):
        ids = [first + step * at for at in range(KEYS)]
        with table.writer("upsert", replicas=replicas) as writer:
            writer.write(pa.table({"id": ids, "v": [round_number] * KEYS}))
            writer.remove(pa.table({"id": ids[: round_number % 5]}))
        sys.stdout.write(f"{writer.result.version}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
