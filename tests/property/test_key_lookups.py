"""Keys in clustered buckets against a dictionary, whatever was done to them before."""

from __future__ import annotations

from collections.abc import Callable, Collection
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import Insert, Table, Update
from tests.support.build import make
from tests.support.effort import share

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
ROWS = 120
Held = dict[int, int]


def rows(keys: Collection[int], value: int) -> pa.Table:
    return pa.table([sorted(keys), [value] * len(keys)], schema=SCHEMA)


def upsert(table: Table, keys: set[int], value: int, held: Held) -> Held:
    table.upsert(rows(keys, value))
    return held | dict.fromkeys(keys, value)


def merge(table: Table, keys: set[int], value: int, held: Held) -> Held:
    table.merge(rows(keys, value), matched=[Update({"v": "s.v + 1"})], not_matched=[Insert()])
    return held | {key: value + (key in held) for key in keys}


def update(table: Table, keys: set[int], value: int, held: Held) -> Held:
    table.update({"v": f"v + {value}"}, where=f"id IN ({', '.join(map(str, keys))})")
    return held | {key: held[key] + value for key in keys & set(held)}


def delete_keys(table: Table, keys: set[int], _: int, held: Held) -> Held:
    table.delete(keys=rows(keys, 0).select(["id"]))
    return {key: value for key, value in held.items() if key not in keys}


def delete_where(table: Table, keys: set[int], _: int, held: Held) -> Held:
    table.delete(where=" OR ".join(f"id = {key}" for key in keys))
    return {key: value for key, value in held.items() if key not in keys}


def cluster(table: Table, _keys: set[int], value: int, held: Held) -> Held:
    table.maintenance.cluster(order_by="v", kind=("sort", "hilbert")[value % 2])
    return held


def compact(table: Table, _keys: set[int], value: int, held: Held) -> Held:
    table.maintenance.compact(full=value % 2 == 0)
    return held


ACTS: list[Callable[[Table, set[int], int, Held], Held]] = [
    upsert, merge, update, delete_keys, delete_where, cluster, compact,
]  # fmt: skip


@settings(max_examples=share(20))
@given(
    table_type=st.sampled_from(["cow", "mor"]),
    acts=st.lists(
        st.tuples(st.sampled_from(ACTS), st.sets(st.integers(0, ROWS + 9), min_size=1, max_size=3)),
        min_size=2,
        max_size=8,
    ),
)
def test_every_key_has_the_row_that_a_dictionary_has(
    table_type: str, acts: list[tuple[Callable[[Table, set[int], int, Held], Held], set[int]]]
) -> None:
    """INV-08: in files of 30 row groups, with key indexes of several blocks."""
    table = make(SCHEMA, buckets=1, table_type=table_type)
    held = {key: key * 37 % 101 for key in range(ROWS)}
    table.insert(pa.table([list(held), list(held.values())], schema=SCHEMA))
    with (
        mock.patch("plait.arrow.output.ORDERED_GROUP_ROWS", 4),
        mock.patch("plait.files.key_index.BLOCK_ENTRIES", 16),
    ):
        table.maintenance.cluster(order_by="v", kind="sort")
        for value, (act, keys) in enumerate(acts):
            held = act(table, keys, 1000 + value, held)
            for key in keys:
                found = table.scan(where=f"id = {key}").to_arrow()["v"].to_pylist()
                assert found == ([held[key]] if key in held else [])
        found = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
        assert found == held
        assert not table.check.verify().problems
