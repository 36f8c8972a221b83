"""Checkpoints that are whole, and wrong: every size and checksum fits, and a file is not as it was.

A lie about a file changes the checkpoint's own counts too, as a faulty writer would.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.support.forge import footer_hash


@dataclass
class Checkpoint:
    """A checkpoint that is rewritten."""

    read: Callable[[str], bytes]
    write: Callable[[str, bytes], None]
    path: str

    def lie(self, lie: str) -> bool:
        """Tell a lie about the newest live file that it can be told about; tell if there is one."""
        state = json.loads(json.loads(self.read(self.path))["state"])
        if not LIES[lie](self, state):
            return False
        body = json.dumps(state)
        digest = hashlib.sha256(body.encode()).hexdigest()
        self.write(self.path, json.dumps({"checksum": digest, "state": body}).encode())
        return True

    def tables(self, state: dict[str, Any], name: str) -> list[tuple[list[Any], pa.Table]]:
        """Return the files of a table in all parts, oldest first, with their rows."""
        entries = [each for part in state["parts"] for each in part["files"] if each[0] == name]
        return [(entry, pq.read_table(io.BytesIO(self.read(entry[1])))) for entry in entries]

    def live(self, state: dict[str, Any]) -> tuple[list[Any], pa.Table, int]:
        """Return the newest live file: the entry of its table, its rows, and where it stands."""
        gone: set[str] = set()
        for name in ("removed", "condemned"):
            for _, rows in self.tables(state, name):
                gone.update(rows["path"].to_pylist())
        for entry, rows in reversed(self.tables(state, "added")):
            for at in reversed(range(rows.num_rows)):
                if rows["path"][at].as_py() not in gone:
                    return entry, rows, at
        message = "no file is live"
        raise AssertionError(message)

    def put(self, state: dict[str, Any], entry: list[Any], rows: pa.Table) -> None:
        """Write a table in place of what it was; its reference fits again."""
        if not rows.num_rows:
            for part in state["parts"]:
                part["files"] = [each for each in part["files"] if each[1] != entry[1]]
            return
        sink = io.BytesIO()
        pq.write_table(
            rows, sink, compression="zstd", row_group_size=4_096, write_page_checksum=True
        )
        body = sink.getvalue()
        self.write(entry[1], body)
        digest = hashlib.sha256(body).hexdigest()
        entry[2:] = [rows.num_rows, len(body), footer_hash(body), digest]

    def count(self, state: dict[str, Any], added: list[Any], path: str, more: int) -> None:
        """Change how many files a directory is said to have."""
        state["files"] += more
        (part,) = (each for each in state["parts"] if added[1] in str(each) or not added[2])
        for entry, rows in self.tables({"parts": [part]}, "places"):
            here = pc.equal(rows["directory"], path.rpartition("/")[0])
            counts = pc.add(rows["files"], pc.if_else(here, more, 0))
            at = rows.schema.get_field_index("files")
            self.put(state, entry, rows.set_column(at, rows.schema.field(at), counts))


def leave_out(checkpoint: Checkpoint, state: dict[str, Any]) -> bool:
    """Leave a live file out."""
    entry, rows, at = checkpoint.live(state)
    if rows.num_rows == 1:
        return False
    checkpoint.count(state, entry, rows["path"][at].as_py(), -1)
    checkpoint.put(state, entry, pa.concat_tables([rows[:at], rows[at + 1 :]]))
    return True


def add(checkpoint: Checkpoint, state: dict[str, Any]) -> bool:
    """Add a file that nobody wrote."""
    entry, rows, at = checkpoint.live(state)
    path = rows["path"][at].as_py()
    other = rows[at : at + 1]
    column = pa.array([path.replace(".base.", ".log.") + "x"])
    other = other.set_column(0, rows.schema.field(0), column)
    assert rows.column_names[0] == "path"
    checkpoint.count(state, entry, path, 1)
    checkpoint.put(state, entry, pa.concat_tables([rows, other]).sort_by("path"))
    return True


def miscount(checkpoint: Checkpoint, state: dict[str, Any]) -> bool:
    """Say that a live file has a row more."""
    entry, rows, at = checkpoint.live(state)
    counts = rows["rows"].to_pylist()
    counts[at] += 1
    where = rows.schema.get_field_index("rows")
    checkpoint.put(state, entry, rows.set_column(where, rows.schema.field(where), [counts]))
    return True


def unmask(checkpoint: Checkpoint, state: dict[str, Any]) -> bool:
    """Leave the newest deletion vectors out."""
    tables = checkpoint.tables(state, "masked")
    for entry, rows in tables:
        checkpoint.put(state, entry, rows[:0])
    return bool(tables)


LIES: dict[str, Callable[[Checkpoint, dict[str, Any]], bool]] = {
    "a file is left out": leave_out,
    "a file is added": add,
    "a file has another row": miscount,
    "masks are left out": unmask,
}
