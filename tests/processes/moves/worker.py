"""A writer in a process of its own: it inserts, moves and deletes keys that others write too."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from plait import DuplicateKeyError, Table
from plait.errors import CommitError, LockError, StorageError
from tests.services.process import die_with_parent

SCHEMA = "id bigint, place string, by string"
PLACES = "abcdefgh"
_KINDS = ("upsert", "upsert", "upsert", "insert", "insert", "keep", "delete", "compact")

BEAT_S, TIMEOUT_S = 0.5, 3.0


@dataclass(frozen=True)
class Plan:
    """What all processes of a run know."""

    folder: str
    """Of journals, on a local disk."""
    uri: str
    keys: int
    batch: int
    """The most keys of one commit."""
    options: Mapping[str, object] = field(default_factory=dict)
    lock: str | None = None
    slowness: float = 1
    """Of the store: heartbeats are so many times longer."""

    def open(self) -> Table:
        """Open the table, whose lock may be a service that its metadata names."""
        return Table.open(self.uri, storage_options=self.options or None, allow=self.allow)

    @property
    def allow(self) -> tuple[str, ...]:
        """The addresses that a process of the run may turn to."""
        return (self.lock,) if self.lock and "://" in self.lock else ()

    @property
    def over(self) -> Path:
        """A file that is there once nobody is to begin another commit."""
        return Path(self.folder) / "over"


def create(plan: Plan, kind: str, policy: str, *, index: bool) -> None:
    """Make the table, with half of the keys."""
    table = Table.create(
        plan.uri,
        SCHEMA,
        record_key="id",
        partition_by="place",
        buckets=2,
        table_type=kind,
        policy=policy,
        unique="table",
        lock=plan.lock,
        properties={
            "heartbeat.interval": f"{BEAT_S * plan.slowness:g}s",
            "heartbeat.timeout": f"{TIMEOUT_S * plan.slowness:g}s",
        },
        storage_options=plan.options or None,
    )
    ids = pa.array(range(0, plan.keys, 2), pa.int64())
    places = pa.array([PLACES[number % len(PLACES)] for number in range(len(ids))])
    table.upsert(pa.table({"id": ids, "place": places, "by": ["first"] * len(ids)}))
    if index:
        table.index.create()


def work(plan: Plan, name: str) -> None:
    """Commit until told to stop; a conflict or a key that is there already is nobody's fault."""
    die_with_parent()
    draw, table = random.Random(name), _opened(plan)
    with (Path(plan.folder) / f"{name}.log").open("a", encoding="utf-8") as log:
        number = 0
        while not plan.over.exists():
            number += 1
            count = draw.randint(1, plan.batch)
            step: dict[str, Any] = {
                "id": f"{name}-{number}",
                "kind": draw.choice(_KINDS),
                "place": draw.choice(PLACES),
                "keys": draw.sample(range(plan.keys), count),
            }
            _note(log, step)
            try:
                version = _do(table, step)
            except (DuplicateKeyError, CommitError, LockError, StorageError) as error:
                _note(log, {"id": step["id"], "met": type(error).__name__})
                continue
            if version is not None:
                _note(log, {"id": step["id"], "version": version})


def _note(log: TextIO, facts: Mapping[str, Any]) -> None:
    log.write(json.dumps(facts) + "\n")
    log.flush()


def _opened(plan: Plan) -> Table:
    while True:
        try:
            return plan.open()
        except (StorageError, LockError):
            continue


def _do(table: Table, step: dict[str, Any]) -> int | None:
    """Carry out a step; return the version of a commit of rows."""
    if step["kind"] == "compact":
        table.maintenance.compact()
        return None
    ids = pa.array(step["keys"], pa.int64())
    asked: dict[str, Any] = {"commit_id": step["id"], "on_conflict": "retry"}
    if step["kind"] == "delete":
        return table.delete(keys=pa.table({"id": ids}), **asked).version
    count = len(ids)
    rows = pa.table({"id": ids, "place": [step["place"]] * count, "by": [step["id"]] * count})
    if step["kind"] == "insert":
        return table.insert(rows, **asked).version
    if step["kind"] == "keep":
        return table.upsert(rows, missing_columns="keep", **asked).version
    return table.upsert(rows, **asked).version
