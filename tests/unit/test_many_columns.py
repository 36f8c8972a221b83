"""What a write costs follows the number of columns, and not its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pyarrow as pa
import pytest

from plait import Insert, Table, Update
from tests.support.build import make

FEW, FACTOR = 100, 4


def wide(columns: int) -> Table:
    fields = [pa.field("id", pa.int64()), *(pa.field(f"c{n}", pa.int64()) for n in range(columns))]
    return make(pa.schema(fields), append=row(columns))


def row(columns: int) -> pa.Table:
    return pa.table({"id": [1], **{f"c{n}": [n] for n in range(columns)}})


def alter(table: Table, columns: int) -> None:
    change = table.alter.columns()
    for n in range(columns):
        change = change.add(f"new{n}", "bigint", default=n)
    change.commit()


def nested(table: Table, columns: int) -> None:
    members = pa.StructArray.from_arrays(
        [pa.array([n]) for n in range(columns)], [f"m{n}" for n in range(columns)]
    )
    table.upsert(row(columns).append_column("s", members), evolve="add")


ACTS: dict[str, Callable[[Table, int], object]] = {
    "upsert": lambda t, n: t.upsert(row(n)),
    "merge": lambda t, n: t.merge(row(n), matched=[Update()], not_matched=[Insert()]),
    "update": lambda t, n: t.update({f"c{i}": f"c{i} + 1" for i in range(n)}, where="id = 1"),
    "where": lambda t, n: t.scan(where=" and ".join(f"C{i} >= 0" for i in range(n))).to_arrow(),
    "alter": alter,
    "nested": nested,
    "brought": lambda t, n: t.upsert(
        pa.table({"id": [1], **{f"c{i}": [i] for i in range(2 * n)}}), evolve="add"
    ),
}


def calls(columns: int, act: Callable[[Table, int], object]) -> int:
    """Count the calls of Python functions; a loop that the interpreter makes itself is none."""
    table, counted = wide(columns), [0]

    def count(frame: FrameType, event: str, argument: object) -> None:
        del frame, argument
        counted[0] += event == "call"

    sys.setprofile(count)
    try:
        act(table, columns)
    finally:
        sys.setprofile(None)
    return counted[0]


@pytest.mark.long(3)
@pytest.mark.parametrize("act", ACTS)
def test_no_call_looks_at_every_column_for_each_column(act: str) -> None:
    calls(3, ACTS[act])  # what is imported late is imported now
    few, many = (calls(FEW * times, ACTS[act]) for times in (1, FACTOR))
    assert many < few * FACTOR * 1.2
