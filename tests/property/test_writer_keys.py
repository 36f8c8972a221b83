"""EncodedMessage keys: their order and their equality are those of the values."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.files import keys
from tests.support.effort import share

COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.text(alphabet="\0\x01aé\U0010ffff", max_size=4),
    pa.binary(): st.binary(max_size=4),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.decimal128(9, 2): st.decimals(-9_999_999, 9_999_999, places=2),
    pa.decimal128(38, 0): st.integers(-(10**37), 10**37),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3))
    row = st.tuples(*(COLUMNS[kind] for kind in kinds))
    some = draw(st.lists(row, min_size=1, max_size=12))
    rows = draw(st.lists(st.sampled_from(some), min_size=1, max_size=40))
    arrays = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    table = pa.table(arrays, names=[f"c{at}" for at in range(len(kinds))])
    return table.slice(draw(st.integers(0, len(rows) - 1)))


def plain(table: pa.Table) -> list[tuple[Any, ...]]:
    """Give rows whose order in Python is that of Arrow: texts by their bytes."""
    rows = table.to_pylist()
    return [tuple(v.encode() if isinstance(v, str) else v for v in row.values()) for row in rows]


@given(tables())
@settings(max_examples=share(150))
def test_encoded_keys_sort_and_compare_as_their_values(table: pa.Table) -> None:
    rows = plain(table)
    encoded = keys.encode(table, table.column_names)
    order = keys.sort_order(encoded)
    assert order.tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    assert keys.merge_order(encoded).tolist() == order.tolist()
    ordered, rows = keys.take(encoded, order), [rows[at] for at in order]
    new = [True, *(a != b for a, b in itertools.pairwise(rows))]
    assert keys.starts(ordered).tolist() == new
    for at, row in enumerate(rows):
        bound = keys.at(ordered, at)
        assert keys.count_until(ordered, bound) == sum(other <= row for other in rows)
