"""One process of a stress run: it writes, notes in its journal what it was told, and may die.

Before each commit stands an intent in the journal, after it what came of it. A commit id makes
the commit repeatable, so a process that was killed goes on with its last intent.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from plait import Table
from plait.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    ConflictError,
    LockError,
    StorageError,
    TableError,
)
from tests.services.process import die_with_parent

KEYS = 8
"""Rows that each process writes again and again; together they share few buckets."""
OWN, INCREMENT, BOTH, DELETE = "own", "increment", "both", "delete"
WEIGHTS = {OWN: 10, INCREMENT: 2, BOTH: 1, DELETE: 2}
GONE = 0
"""The key of its own that a process deletes, until it writes all of them again."""
SAVEPOINTS = 3
PUBLISH_S, REPUSHES = 0.1, 0.03
"""Between two publications; how often one of the publishers begins a repush, or goes on with it."""
SCHEMA = "id bigint, owner bigint, value bigint"
COUNTER = -1
ROWS = pa.schema([("id", pa.int64()), ("owner", pa.int64()), ("value", pa.int64())])


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is told."""

    uri: str
    options: Mapping[str, object]
    number: int
    journal: Path
    seed: int
    allow: tuple[str, ...] = ()
    """The addresses that its processes may turn to: a lock that is a service."""

    def open(self) -> Table:
        """Open the table."""
        return Table.open(self.uri, storage_options=self.options or None, allow=self.allow)


class Journal:
    """What one process meant to do and was told; lines survive the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[dict[str, object]]:
        """Give the whole lines; a kill may have cut the last."""
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line]

    def note(self, **facts: object) -> None:
        """Write one line in one call."""
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(facts).encode() + b"\n")

    def mend(self) -> None:
        """End a line that a kill cut off, so that it is not taken for another."""
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            body = self._path.read_bytes()
            self._path.write_bytes(body[: body.rfind(b"\n") + 1])


def work(job: Job) -> None:
    """Commit until killed."""
    die_with_parent()
    journal = Journal(job.journal)
    journal.mend()
    chance = random.Random(job.seed)
    done = [line for line in journal.lines() if "intent" in line]
    sequence, kind = _resumed(journal, done)
    table = _opened(job)
    while True:
        if kind is None:
            sequence += 1
            kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            journal.note(intent=_commit_id(job, sequence), kind=kind, sequence=sequence)
        if _try(table, job, journal, sequence, kind):
            kind = None
        if chance.random() < 0.02:
            _upkeep(table, chance)


def serve(job: Job) -> None:
    """Keep the table in shape until killed: each service by itself, or all by policy."""
    die_with_parent()
    chance = random.Random(job.seed)
    table = _opened(job)
    services: dict[Callable[[], object], int] = {
        lambda: table.maintenance.compact(full=True): 14,
        table.maintenance.compact: 6,
        table.maintenance.clean: 4,
        table.maintenance.optimize: 2,
        table.maintenance.cluster: 4,
        table.maintenance.archive: 4,
        lambda: _move_savepoint(table, chance): 1,
    }
    while True:
        with contextlib.suppress(TableError):  # another one does it
            chance.choices(list(services), list(services.values()))[0]()


def publish(job: Job) -> None:
    """Publish what is missing until killed."""
    die_with_parent()
    table = _opened(job)
    while True:
        with contextlib.suppress(TableError):  # the store was away, or the table moved on
            table.maintenance.publish()
        time.sleep(PUBLISH_S)


def lay_out(job: Job) -> None:
    """Publish, and lay the table out anew from time to time."""
    die_with_parent()
    chance = random.Random(job.seed)
    table = _opened(job)
    while True:
        with contextlib.suppress(TableError):
            table.maintenance.publish()
            if chance.random() < REPUSHES:
                table.layout.repush(buckets=chance.randrange(2, 5))
        time.sleep(PUBLISH_S)


def _move_savepoint(table: Table, chance: random.Random) -> None:
    """Keep another version under one of few names."""
    name = f"kept-{chance.randrange(SAVEPOINTS)}"
    if any(each.name == name for each in table.versions.savepoints):
        table.versions.drop_savepoint(name)
    oldest = table.version - chance.randrange(10)
    table.versions.savepoint(name, version=max(0, oldest))


def _resumed(journal: Journal, done: list[dict[str, object]]) -> tuple[int, str | None]:
    """Give the last sequence number, and its kind if it has no result yet."""
    if not done:
        return 0, None
    last = done[-1]
    ended = {line["committed"] for line in journal.lines() if "committed" in line}
    return int(str(last["sequence"])), None if last["intent"] in ended else str(last["kind"])


def _opened(job: Job) -> Table:
    while True:
        try:
            return job.open()
        except (StorageError, LockError):
            continue


def _commit_id(job: Job, sequence: int) -> str:
    return f"{job.number}-{sequence}"


def _try(table: Table, job: Job, journal: Journal, sequence: int, kind: str) -> bool:
    """Commit; tell whether it is certain that it landed."""
    commit_id = _commit_id(job, sequence)
    try:
        version = _commit(table, job, sequence, kind, commit_id)
    except ConflictError as error:
        facts = error.to_dict()["facts"]
        journal.note(refused=commit_id, type=type(error).__name__, facts=facts)
        return False
    except CommitOutcomeUnknownError:
        journal.note(unknown=commit_id)
        return False
    except (CommitError, StorageError, LockError) as error:
        journal.note(refused=commit_id, type=type(error).__name__, facts=error.to_dict()["facts"])
        return False
    journal.note(committed=commit_id, version=version)
    return True


def _commit(table: Table, job: Job, sequence: int, kind: str, commit_id: str) -> int:
    own = rows(job.number, sequence)
    if kind in (OWN, DELETE) and not sequence % 2:
        return _change(table, job, sequence, kind, commit_id)
    if kind == OWN:
        return table.upsert(own, commit_id=commit_id).version
    if kind == DELETE:
        return table.delete(where=f"id = {key_of(job.number, GONE)}", commit_id=commit_id).version
    if kind == INCREMENT:
        scan = table.scan(where=f"id = {COUNTER}")
        with table.writer("upsert", read_from=scan, commit_id=commit_id) as writer:
            writer.write(_incremented(scan.to_arrow()))
        return writer.result.version
    with table.transaction(commit_id=commit_id) as tx:
        counter = tx.scan(where=f"id = {COUNTER}").to_arrow()
        tx.upsert(own)
        tx.upsert(_incremented(counter))
    return tx.result.version


def _change(table: Table, job: Job, sequence: int, kind: str, commit_id: str) -> int:
    """Commit the same as a stream of changes: rows that came go, and come again."""
    own, stale = rows(job.number, sequence), rows(job.number, -sequence)
    with table.writer("upsert", commit_id=commit_id) as writer:
        if kind == OWN:
            writer.write(stale)
            writer.remove(own)
            writer.write(own)
        else:
            writer.remove(pa.table({"id": [key_of(job.number, GONE)]}))
    return writer.result.version


def key_of(owner: int, key: int) -> int:
    """Return a record key that one process alone writes."""
    return owner * 1000 + key


def rows(owner: int, value: int) -> pa.Table:
    """Make the rows of a process."""
    ids = [key_of(owner, key) for key in range(KEYS)]
    columns = {"id": ids, "owner": [owner] * KEYS, "value": [value] * KEYS}
    return pa.table(columns, schema=ROWS)


def _incremented(counter: pa.Table) -> pa.Table:
    value = counter["value"][0].as_py() + 1
    return pa.table({"id": [COUNTER], "owner": [COUNTER], "value": [value]}, schema=ROWS)


def _upkeep(table: Table, chance: random.Random) -> None:
    try:
        if chance.random() < 0.5:
            table.maintenance.rollback()
        else:
            table.maintenance.clean()
    except TableError:
        return  # another one does it
