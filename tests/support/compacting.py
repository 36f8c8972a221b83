"""Tables with many versions of their rows, for tests of compaction."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from plait import Table
from tests.support import build

SCHEMA = "id bigint, place string, value bigint"
Row = tuple[int, str, int]


def rows(*values: Row) -> pa.Table:
    ids, places, numbers = zip(*values, strict=True) if values else ((), (), ())
    return pa.table(
        {"id": list(ids), "place": list(places), "value": list(numbers)},
        schema=pa.schema([("id", pa.int64()), ("place", pa.string()), ("value", pa.int64())]),
    )


def make(table_type: str = "mor", *, keyed: bool = True, **contract: object) -> Table:
    return build.make(
        SCHEMA,
        record_key=["id"] if keyed else [],
        buckets=2 if keyed else None,
        table_type=table_type,
        **contract,
    )


def content(table: Table, version: int | None = None) -> list[Row]:
    return build.listed(table, "id", "place", "value", version=version)  # type: ignore[return-value]  # of the schema


def files(table: Table) -> int:
    return int(table._handle.cache.snapshot().files.num_rows)


def filled(table: Table, rounds: int = 5, count: int = 40) -> dict[int, int]:
    """Write all ids, then some of them again and again; return what the table holds."""
    held = dict.fromkeys(range(count), 0)
    table.upsert(rows(*((i, "a", 0) for i in held)))
    for value in range(1, rounds):
        some = [i for i in held if i % (value + 1) == 0]
        table.upsert(rows(*((i, "a", value) for i in some)))
        held.update(dict.fromkeys(some, value))
    table.delete(where="id >= 35")
    return {i: v for i, v in held.items() if i < 35}


def expected(held: Mapping[int, int]) -> list[Row]:
    return sorted((i, "a", v) for i, v in held.items())


def sound(table: Table) -> None:
    """Check every invariant, the history's too."""
    report = table.check.verify(history=False)
    assert [str(p) for p in report.problems] == []
    assert [str(p) for p in table.check.verify(history=True).problems] == []
