"""The rows of the table machine: a key, a value, and a day that says whether a row has expired."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa

from plait import Table
from plait.read.scan import Scan
from plait.write.writer import Writer

Rows = dict[int, int]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("day", pa.date32())])
OVER, FAR = dt.date(2001, 1, 1), dt.date(2901, 1, 1)
EXPIRED = {5, 6}


def rows(keys: set[int], value: int) -> pa.Table:
    ids = sorted(keys)
    days = [OVER if number in EXPIRED else FAR for number in ids]
    return pa.table({"id": ids, "v": [value] * len(ids), "day": days}, schema=SCHEMA)


def content_of(scan: Scan) -> Rows:
    """Read a scan as the machine knows rows."""
    return held_in(scan.to_arrow())


def held_in(table: pa.Table) -> Rows:
    """Return rows as the machine knows them."""
    found = dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert len(found) == table.num_rows, "INV-08"
    return found


WRITES = ("upsert", "delete", "change")
"""A change adds rows, removes all of them, and adds the one with the least key again."""


@dataclass
class Open:
    """A writer that has its rows, and has not committed."""

    writer: Writer
    operation: str
    keys: set[int]
    value: int
    base: int
    retry: bool

    def changed(self, found: Rows) -> set[int]:
        """Return what it writes where it finds these rows: what is not there cannot go."""
        if self.operation != "change":
            return self.keys
        return {min(self.keys)} | (self.keys & set(found))


def begin(table: Table, operation: str, keys: set[int], value: int, *, on_conflict: str) -> Writer:
    """Open a writer, and give it its rows."""
    how = "delete" if operation == "delete" else "upsert"
    writer = table.writer(how, on_conflict=on_conflict).__enter__()
    data = rows(keys, value)
    writer.write(data.select(["id"]) if operation == "delete" else data)
    if operation == "change":
        writer.remove(data.select(["id"]))
        writer.write(rows({min(keys)}, value))
    return writer
