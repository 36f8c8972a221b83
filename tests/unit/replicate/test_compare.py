"""The comparison finds every difference, whatever the size of a part."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.replicate import SinkSchema
from plait.replicate.compare import compare

SCHEMA = pa.schema(
    [("p", pa.string()), ("id", pa.int64()), ("v", pa.float64()), ("s", pa.string())]
)
SINK_SCHEMA = SinkSchema(SCHEMA, ("p", "id"))
VALUES = st.tuples(
    st.one_of(st.none(), st.floats(allow_nan=True)), st.one_of(st.none(), st.sampled_from("ab"))
)
SIDES = st.dictionaries(
    st.tuples(st.sampled_from([None, "", "a"]), st.integers(0, 6)), VALUES, max_size=12
)


def batches(side: dict, size: int):
    rows = [dict(zip(SCHEMA.names, (*key, *value), strict=True)) for key, value in side.items()]
    table = pa.Table.from_pylist(rows, SCHEMA)
    return table.to_batches(max_chunksize=size)


def plain(value: object) -> object:
    """NaN is equal to itself here, and so are both zeros."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def same(one: tuple, other: tuple) -> bool:
    return all(plain(a) == plain(b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
@given(table=SIDES, sink=SIDES, size=st.integers(1, 5), parts=st.integers(1, 4))
def test_every_difference_is_found_once_and_nothing_else(table, sink, size, parts) -> None:
    rows = max(1, len(table))
    found = list(
        compare(
            batches(table, size),
            batches(sink, size),
            SINK_SCHEMA,
            rows=rows,
            part_rows=math.ceil(rows / parts),
        )
    )
    wanted = [(r["p"], r["id"]) for part in found for r in part.wanted.to_pylist()]
    extra = [(r["p"], r["id"]) for part in found for r in part.extra.to_pylist()]
    expected = [k for k in table if k not in sink or not same(table[k], sink[k])]
    assert sorted(wanted, key=str) == sorted(expected, key=str)
    assert sorted(extra, key=str) == sorted((k for k in sink if k not in table), key=str)
    assert sum(part.missing for part in found) == sum(k not in sink for k in table)


@given(
    table=SIDES,
    sink=SIDES,
    again=st.lists(st.tuples(st.integers(0, 20), st.one_of(st.none(), VALUES)), max_size=6),
)
def test_a_key_that_the_table_has_is_never_too_many_however_often_it_is_shown(
    table, sink, again
) -> None:
    """A cursor over a store that changes may show a row twice, or an older value of it too."""
    shown = batches(sink, 3)
    other = dict(sink)
    for at, value in again:
        if sink:
            key = sorted(sink, key=str)[at % len(sink)]
            other[key] = sink[key] if value is None else value
            shown += batches({key: other[key]}, 1)
    found = list(compare(batches(table, 3), shown, SINK_SCHEMA, rows=1))
    wanted = [(r["p"], r["id"]) for part in found for r in part.wanted.to_pylist()]
    extra = [(r["p"], r["id"]) for part in found for r in part.extra.to_pylist()]
    assert sorted(extra, key=str) == sorted((k for k in sink if k not in table), key=str)
    unsure = {
        key
        for key in table
        if key not in sink or not (same(table[key], sink[key]) and same(sink[key], other[key]))
    }
    assert unsure <= set(wanted) <= set(table)
    assert len(set(wanted)) == len(wanted)
    assert sum(part.missing for part in found) == sum(k not in sink for k in table)
