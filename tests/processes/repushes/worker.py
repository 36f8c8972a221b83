"""A writer, or a repusher, in a process of its own.

write PLAN NUMBER       upserts and deletes keys of its own until a line comes; then says what it
                        knows of them, as JSON
repush PLAN LAYOUT      lays the table out anew, by the number of the layout
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from plait import Table
from plait.model.plan import COW

SCHEMA = pa.schema(
    [("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("note", pa.string())]
)
PLACES = np.array(["x", "y", "z"])
LAYOUTS: tuple[dict[str, object], ...] = (
    {"buckets": 64, "table_type": "cow", "partition_by": ()},
    {"buckets": 8, "table_type": "cow", "partition_by": "p"},
    {"buckets": 16, "table_type": "mor", "partition_by": ()},
)
FIRST = LAYOUTS[2]
"""The layout that the table is made with."""
BATCH, FEW = 200, 2
"""Rows of a batch at most; few where each of their buckets is written again."""
GONE = -1


@dataclass(frozen=True)
class Plan:
    """What all processes of a run know."""

    uri: str
    rows: int
    """How many are there before anybody writes. A tenth more keys come and go."""
    writers: int
    per_task: int
    spark: bool

    @property
    def keys(self) -> int:
        """How many keys there may be."""
        return self.rows + self.rows // 10

    @classmethod
    def read(cls, file: str) -> Plan:
        """Read a plan from its file."""
        return cls(**json.loads(Path(file).read_text(encoding="utf-8")))


def rows(ids: np.ndarray, value: int | None) -> pa.Table:
    """Make rows from their keys, all with one value, or with the key as their value."""
    values = ids if value is None else np.full(len(ids), value)
    notes = np.char.add("note ", (ids % 9_973).astype(str))
    columns = {"id": ids, "p": PLACES[ids % 3], "v": values, "note": notes}
    return pa.table(columns, schema=SCHEMA)


def write(plan: Plan, number: int) -> dict[str, object]:
    """Write until told to stop; no conflict is anybody's fault here."""
    over, draw = threading.Event(), random.Random(number)
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    table, known, commits, longest_s = Table.open(plan.uri), dict[int, int](), 0, 0.0
    while not over.is_set():
        commits += 1
        first = draw.randrange(plan.keys)
        most = FEW if table._handle.cache.known().table.spec.layout.table_type == COW else BATCH
        own = np.arange(first, min(first + draw.randint(1, most) * plan.writers, plan.keys))
        ids = own[own % plan.writers == number]
        value = plan.keys * commits + 1
        began = time.monotonic()
        if draw.random() < 0.3:
            table.delete(keys=rows(ids, 0).select(["id"]), on_conflict="retry")
            known.update(dict.fromkeys(ids.tolist(), GONE))
        else:
            with table.writer("upsert", on_conflict="retry") as writer:
                writer.write(rows(ids, value))
                over.wait(draw.random() * 0.05)  # a swap may come between
            known.update(dict.fromkeys(ids.tolist(), value))
        longest_s = max(longest_s, time.monotonic() - began)
    return {"known": list(known.items()), "commits": commits, "longest_s": round(longest_s, 2)}


def repush(plan: Plan, layout: int) -> dict[str, object]:
    """Repush; a line tells when it begins, so that nobody is killed while Spark starts."""
    spark = None
    if plan.spark:
        from plait.spark import session

        spark = session()
    sys.stdout.write("began\n")
    sys.stdout.flush()
    wanted = {**LAYOUTS[layout], "rows_per_task": plan.per_task}
    return Table.open(plan.uri).layout.repush(**wanted, spark=spark).to_dict()  # type: ignore[arg-type]  # of one layout


if __name__ == "__main__":
    role, file, which = sys.argv[1:]
    done = (write if role == "write" else repush)(Plan.read(file), int(which))
    sys.stdout.write(json.dumps(done) + "\n")
