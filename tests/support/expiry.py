"""Tables in which some rows have expired since 2001, and others will in 2901."""

from __future__ import annotations

import datetime as dt
import itertools

import pyarrow as pa

from plait import Table
from tests.support.build import listed

NAMES = map(str, itertools.count())
OLD, NEW = dt.datetime(2001, 1, 1, tzinfo=dt.UTC), dt.datetime(2901, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("p", pa.string()), ("v", pa.int64())]
)
Row = tuple[int, dt.datetime | None, str, int]
TYPES = ("cow", "mor")
KINDS = [(kind, keyed) for kind in TYPES for keyed in (True, False)]


def rows(*values: Row) -> pa.Table:
    columns = zip(*values, strict=True) if values else ((), (), (), ())
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def make(table_type: str = "cow", *, keyed: bool = True, **definition: object) -> Table:
    return make_at(f"memory://expiry-{next(NAMES)}", table_type, keyed=keyed, **definition)


def make_at(uri: str, table_type: str, *, keyed: bool = True, **definition: object) -> Table:
    """Make a table whose rows live for 30 days after ``ts``."""
    return Table.create(
        uri,
        SCHEMA,
        **{
            "record_key": ["id"] if keyed else [],
            "buckets": 2 if keyed else None,
            "table_type": table_type,
            "ttl": "ts 30d",
            **definition,
        },
    )


def filled(table: Table) -> Table:
    """Write 20 rows, of which every fourth is old and one has no time."""
    table.append(rows(*((i, OLD if i % 4 == 0 else NEW, "ab"[i % 2], 0) for i in range(20))))
    table.append(rows((50, None, "a", 0), (51, OLD, "b", 0)))
    return table


def content(table: Table, version: int | None = None) -> list[tuple[int, str, int]]:
    return listed(table, "id", "p", "v", version=version)  # type: ignore[return-value]  # of the schema


def ids(table: Table) -> list[int]:
    return [row[0] for row in content(table)]


def sound(table: Table) -> None:
    assert [str(p) for p in table.check.verify().problems] == []
    assert [str(p) for p in table.check.verify(history=True).problems] == []
    assert not table.inspect.timeline().pending


YOUNG = [i for i in range(20) if i % 4] + [50]
