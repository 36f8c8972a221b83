"""A writer in a process of its own: it inserts, moves and deletes keys that others write too."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait import DuplicateKeyError, Table
from plait.errors import CommitError

SCHEMA = "id bigint, place string, by string"
PLACES = "abcdefgh"
_KINDS = ("upsert", "upsert", "upsert", "insert", "insert", "keep", "delete", "compact")


@dataclass(frozen=True)
class Plan:
    """What all processes of a run know."""

    folder: str
    keys: int
    batch: int
    """The most keys of one commit."""

    @property
    def uri(self) -> str:
        """Where the table is."""
        return f"{self.folder}/table"

    @property
    def over(self) -> Path:
        """A file that is there once nobody is to begin another commit."""
        return Path(self.folder) / "over"


def create(plan: Plan, kind: str, policy: str, *, index: bool) -> None:
    """Make the table."""
    table = Table.create(
        plan.uri,
        SCHEMA,
        record_key="id",
        partition_by="place",
        buckets=2,
        table_type=kind,
        policy=policy,
        unique="table",
        properties={"heartbeat.interval": "500ms", "heartbeat.timeout": "3s"},
    )
    if index:
        table.create_index()


def work(plan: Plan, name: str) -> None:
    """Commit until told to stop; a conflict or a key that is there already is nobody's fault."""
    draw, table = random.Random(name), Table.open(plan.uri)
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
            log.write(json.dumps(step) + "\n")
            log.flush()
            try:
                _do(table, step)
            except (DuplicateKeyError, CommitError):
                continue


def _do(table: Table, step: dict[str, Any]) -> None:
    ids = pa.array(step["keys"], pa.int64())
    asked: dict[str, Any] = {"commit_id": step["id"], "on_conflict": "retry"}
    if step["kind"] == "compact":
        table.compact()
        return
    if step["kind"] == "delete":
        table.delete(keys=pa.table({"id": ids}), **asked)
        return
    count = len(ids)
    rows = pa.table({"id": ids, "place": [step["place"]] * count, "by": [step["id"]] * count})
    if step["kind"] == "insert":
        table.insert(rows, **asked)
    elif step["kind"] == "keep":
        table.upsert(rows, missing_columns="keep", **asked)
    else:
        table.upsert(rows, **asked)
