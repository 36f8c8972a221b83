"""Rows of the repush machine: a key, a column that the key decides, one that it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from plait import Delete, Insert, Table, Update
from plait.model.clauses import Clauses
from plait.read.scan import Scan
from plait.write.request import merge_request, update_request
from plait.write.writer import Writer

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("g", pa.int64()),
        ("p", pa.string()),
        ("o", pa.int64()),
        ("v", pa.int64()),
    ]
)
NULL = -1
KEY = ("id", "g")
"""The second column is decided by the first, so that either may choose the bucket."""
PLACES = ((), ("g",), ("p",), ("truncate(3, id)",), ("truncate(1, p)", "bucket(2, g)"))
"""What a table may be partitioned by: nothing, what the key decides, and what it does not, as
columns and as transforms."""


class Row(NamedTuple):
    id: int
    p: str
    o: int
    v: int

    @property
    def dict(self) -> dict[str, object]:
        return {"id": self.id, "g": self.id % 3, "p": self.p, "o": self.o, "v": self.v}


@dataclass(frozen=True)
class Layout:
    """Where rows lie, as the machine draws it."""

    partition_by: tuple[str, ...]
    ordering: bool
    table_type: str
    buckets: int
    by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] | None = field(default=None, compare=False)
    """The order of rows that a repush is told; it does not say which rows there are."""

    def identity(self, row: Row) -> tuple[str, int]:
        """Return what makes the row one (INV-08)."""
        if "truncate(1, p)" in self.partition_by:
            return (row.p[:1], row.id)
        return (row.p if "p" in self.partition_by else "", row.id)

    def collides(self, rows: Rows) -> bool:
        """Tell whether rows would be one here."""
        return len({self.identity(row) for row in rows.values()}) < len(rows)

    def options(self) -> dict[str, object]:
        """Return it as arguments of ``Layout.repush``."""
        return {
            "partition_by": self.partition_by,
            "ordering": "o" if self.ordering else "",
            "table_type": self.table_type,
            "buckets": self.buckets,
            "bucket_by": self.by,
            "sort_by": self.sort_by,
        }


Rows = dict[tuple[str, int], Row]


def table_of(given: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([row.dict for row in given], schema=SCHEMA)


def rows_of(scan: Scan) -> list[Row]:
    found = scan.to_arrow().to_pylist()
    assert all(row["g"] == row["id"] % 3 for row in found)
    return sorted(row_of(row) for row in found)


def row_of(found: dict[str, Any]) -> Row:
    """Read a row; a value that was never given is NULL."""
    value = NULL if found["v"] is None else found["v"]
    return Row(found["id"], found["p"], found["o"], value)


@dataclass(frozen=True)
class Act:
    """One write: what is asked, and what it makes of rows."""

    operation: str
    given: tuple[Row, ...]
    limit: int

    def open(self, table: Table) -> Writer:
        """Open its writer, and give it its rows."""
        writer = self._writer(table).__enter__()
        data = table_of(list(self.given))
        match self.operation:
            case "upsert" | "insert" | "overwrite" | "merge" | "append":
                writer.write(data)
            case "partial":
                writer.write(data.drop_columns(["v"]))
            case "delete":
                writer.write(data.select(KEY))
            case "change":
                writer.write(data)
                writer.remove(data.filter(pa.compute.field("id") >= self.limit))
                writer.write(data.slice(0, 1))
            case _:
                pass
        return writer

    def _writer(self, table: Table) -> Writer:
        retry, spec = "retry", table._handle.cache.refresh().table.spec
        match self.operation:
            case "insert":
                return table.writer("insert", on_conflict=retry, on_duplicate="skip")
            case "partial":
                return table.writer("upsert", on_conflict=retry, missing_columns="keep")
            case "where":
                return table.writer("delete", where=f"id < {self.limit}", on_conflict=retry)
            case "update":
                values = {"v": "v + 1000"}
                asked = update_request(values, spec, where=f"id < {self.limit}", on_conflict=retry)
            case "merge":
                asked = merge_request(_clauses(self.limit), None, spec, on_conflict=retry)
            case "change":
                return table.writer("upsert", on_conflict=retry)
            case name:
                return table.writer(name, on_conflict=retry)
        return table._writer(asked)

    def applied(  # noqa: C901, PLR0912 - one case an operation
        self, rows: Rows, layout: Layout
    ) -> Rows:
        """Return the rows after it."""
        left = dict(rows)
        match self.operation:
            case "upsert":
                for row in self.given:
                    _put(left, row, layout)
            case "insert":
                for row in self.given:
                    left.setdefault(layout.identity(row), row)
            case "overwrite":
                left = {layout.identity(row): row for row in self.given}
            case "where":
                left = {key: row for key, row in rows.items() if not self.chooses(row)}
            case "update":
                left = {key: self._updated(row) for key, row in rows.items()}
            case "delete":
                gone = {row.id for row in self.given}
                left = {key: row for key, row in rows.items() if row.id not in gone}
            case "partial":
                for row in self.given:
                    before = rows.get(layout.identity(row))
                    value = row._replace(v=NULL if before is None else before.v)
                    _put(left, value, layout)
            case "merge":
                self._merge(left, layout)
            case "change":
                self._change(left, layout)
            case name:
                raise AssertionError(name)
        return left

    def chooses(self, row: Row) -> bool:
        """Tell whether the predicate of an operation by predicate holds for a row."""
        return row.id < self.limit

    def _updated(self, row: Row) -> Row:
        return row._replace(v=_plus(row.v, 1000)) if self.chooses(row) else row

    def _merge(self, left: Rows, layout: Layout) -> None:
        for row in self.given:
            key = layout.identity(row)
            before = left.get(key)
            if before is None:
                left[key] = row
            elif row.id < self.limit:
                del left[key]
            else:
                left[key] = before._replace(v=_plus(before.v, row.v))

    def _change(self, left: Rows, layout: Layout) -> None:
        fresh: Rows = {}
        for row in self.given:
            fresh[layout.identity(row)] = row
        for row in self.given:
            if row.id >= self.limit:
                left.pop(layout.identity(row), None)
                fresh.pop(layout.identity(row), None)
        for row in [*fresh.values(), *self.given[:1]]:
            _put(left, row, layout)


def _plus(value: int, more: int) -> int:
    return NULL if value == NULL else value + more


def _put(left: Rows, row: Row, layout: Layout) -> None:
    before = left.get(layout.identity(row))
    if before is None or not layout.ordering or row.o >= before.o:
        left[layout.identity(row)] = row


def _clauses(limit: int) -> Clauses:
    return Clauses(
        matched=(Delete(when=f"s.id < {limit}"), Update({"v": "t.v + s.v"})),
        not_matched=(Insert(),),
    )


@dataclass
class Open:
    """A writer that has its rows, and has not committed."""

    writer: Writer
    act: Act
    base: int
    layout: Layout


@dataclass
class StopAt:
    """Stops the process at a phase."""

    at: str

    def phase(self, name: str, **facts: object) -> None:
        if name == self.at:
            raise KeyboardInterrupt
