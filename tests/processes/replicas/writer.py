"""A process that writes its chunks of keys to a table and four sinks, until all are committed.

``python -m tests.processes.replicas.writer FOLDER NUMBER`` reads the plan in the folder, and notes
each attempt before it begins: a row of attempt 7 has ``v`` = 7, so that each row tells whose it is.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from plait import Table, TableError
from plait.kafka import TopicSink
from plait.replicate import Replicas, Retries, Sink, SqlSink, TableSink
from tests.processes.replicas.sinks import Troubled
from tests.services.process import die_with_parent

REMOVED = 10
"""So many keys of a chunk are removed again at the end of each attempt."""


@dataclass(frozen=True)
class Plan:
    """What a run does, as its processes read it."""

    folder: str
    rows: int
    chunk: int
    batch: int
    writers: int
    share: float
    """Of the puts that go wrong."""
    patience_s: float
    """How long a writer waits for a batch; a sink that hangs takes three times as long."""
    database: str
    bootstrap: str
    topic: str

    @classmethod
    def load(cls, folder: str) -> Plan:
        return cls(**json.loads(Path(folder, "plan.json").read_text(encoding="utf-8")))

    @property
    def table(self) -> str:
        return f"{self.folder}/primary"

    def sinks(self) -> list[Sink]:
        """Return the real ones."""
        return [
            TableSink("eu", f"{self.folder}/eu"),
            TableSink("us", f"{self.folder}/us"),
            SqlSink("database", self.database, "t"),
            TopicSink("topic", self.bootstrap, self.topic, {"log_level": "0"}),
        ]

    def troubled(self) -> list[Sink]:
        hang_s, notes_of = 3 * self.patience_s, f"{self.folder}/troubles"
        return [Troubled(each, self.share, hang_s, notes_of) for each in self.sinks()]

    def chunks(self, writer: int) -> range:
        """Return the first keys of a writer's chunks."""
        return range(writer * self.chunk, self.rows, self.writers * self.chunk)


def notes(folder: str, writer: int) -> Path:
    return Path(folder, f"attempts-{writer}")


def attempts(folder: str, writer: int) -> list[dict[str, object]]:
    """Return the attempts of a writer, in their order; a line that was torn by a kill is none."""
    path = notes(folder, writer)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def main(folder: str, number: int) -> None:
    die_with_parent()
    plan = Plan.load(folder)
    table = Table.open(plan.table)
    replicas = Replicas(
        plan.troubled(),
        batch_size=plan.batch,
        retries=Retries(attempts=3, pause_s=0.02, pause_s_max=0.1),
        patience_s=plan.patience_s,
    )
    done = {each["first"] for each in attempts(folder, number) if "committed" in each}
    for first in plan.chunks(number):
        while first not in done:
            if write(plan, table, replicas, number, first):
                note(folder, number, {"first": first, "committed": True})
                done.add(first)


def write(plan: Plan, table: Table, replicas: Replicas, number: int, first: int) -> bool:
    """Write one chunk; tell whether it was committed."""
    version = len(attempts(plan.folder, number)) + 1
    ids = range(first, min(plan.rows, first + plan.chunk))
    payload = [f"row {key} of attempt {version}" for key in ids]
    rows = {"id": list(ids), "v": [version] * len(ids), "payload": payload}
    try:
        with table.writer("upsert", replicas=replicas) as writer:
            note(plan.folder, number, {"first": first, "v": version, "at": str(writer.instant)})
            writer.write(pa.table(rows))
            writer.remove(pa.table({"id": list(ids[:REMOVED])}))
    except TableError as error:
        sys.stdout.write(f"{error.code}\n")
        sys.stdout.flush()
        return False
    return True


def note(folder: str, number: int, entry: dict[str, object]) -> None:
    with notes(folder, number).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
