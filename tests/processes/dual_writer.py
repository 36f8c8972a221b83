"""A process that writes one table and a database beside it, until somebody ends it."""

from __future__ import annotations

import itertools
import json
import sys

import pyarrow as pa

from plait import Table
from plait.replicate import Replicas, Retries, SqlSink

KEYS = 40


def sink_of(database: str) -> SqlSink:
    return SqlSink("database", f"sqlite:///{database}?timeout=60", "t")


def work(uri: str, database: str, first: int, step: int) -> None:
    """Change keys of its own, ``first``, ``first + step`` and so on; tell of each commit."""
    table = Table.open(uri)
    replicas = Replicas([sink_of(database)], batch_size=3, retries=Retries(attempts=10))
    for round_number in itertools.count(1):
        ids = [first + step * at for at in range(KEYS)]
        with table.writer("upsert", replicas=replicas) as writer:
            writer.write(pa.table({"id": ids, "v": [round_number] * KEYS}))
            writer.remove(pa.table({"id": ids[: round_number % 5]}))
        sys.stdout.write(json.dumps({"version": writer.result.version}) + "\n")
        sys.stdout.flush()
