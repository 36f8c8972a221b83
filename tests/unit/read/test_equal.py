"""Equality of columns value by value, of every type that a table holds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.read.equal import fingerprints, same_rows, same_values, unmatched

NAN = float("nan")
PAIRS = pa.struct([("x", pa.int64()), ("y", pa.float64())])
CASES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [1, -1, None]),
    (pa.int64(), [0, 1 << 40, None]),
    (pa.float32(), [0.0, 1.5, NAN, None]),
    (pa.float64(), [0.0, -0.0, NAN, None]),
    (pa.decimal128(30, 2), [Decimal("0.10"), Decimal(-1), None]),
    (pa.string(), ["", "a", "ab", None]),
    (pa.binary(), [b"", b"\0", None]),
    (pa.date32(), [dt.date(2026, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None]),
    (PAIRS, [{"x": 1, "y": NAN}, {"x": 1, "y": None}, {"x": None, "y": None}, None]),
    (pa.list_(pa.float64()), [[], [1.0], [1.0, NAN], [NAN, 1.0], [None], None]),
    (pa.list_(PAIRS), [[], [{"x": 1, "y": 2.0}], [{"x": 1, "y": 2.5}], [None], None]),
    (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", None)], [("b", 1)], None]),
    (pa.list_(pa.list_(pa.string())), [[["a"]], [["a"], []], [[], ["a"]], [[None]], None]),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=lambda x: str(x)[:40])
def test_values_are_the_same_just_where_they_are(kind: pa.DataType, values: list[Any]) -> None:
    """Every value with every other, in arrays that are slices of larger ones."""
    places = [(a, b) for a in range(len(values)) for b in range(len(values))]
    pad = [values[0]]
    one = pa.array([*pad, *(values[a] for a, _ in places)], kind).slice(1)
    other = pa.array([*pad, *pad, *(values[b] for _, b in places)], kind).slice(2)
    expected = [a == b for a, b in places]
    assert same_values(one, other).tolist() == expected
    assert same_rows(pa.table({"c": one}), pa.table({"c": other})).tolist() == expected
    array = pa.array([*pad, *values], kind).slice(1)
    prints, again = (
        fingerprints(pa.record_batch({"n": pa.nulls(len(values), pa.int64()), "c": array}))
        for _ in range(2)
    )
    assert len(np.unique(prints, axis=0)) == len(values), "rows have one print where they are one"
    assert (prints == again).all()


def test_nulls_count_by_where_they_stand() -> None:
    rows = pa.record_batch({"a": pa.array([1, None]), "b": pa.array([None, 1])})
    assert len(np.unique(fingerprints(rows), axis=0)) == 2


def test_equal_rows_are_matched_one_to_one() -> None:
    def prints(values: list[int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return fingerprints(pa.record_batch({"a": pa.array(values, pa.int64())}))

    lost, found = unmatched(prints([1, 1, 2, 3, 1]), prints([3, 1, 4, 4]))
    assert (lost.tolist(), found.tolist()) == ([1, 2, 4], [2, 3])
    lost, found = unmatched(prints([]), prints([5]))
    assert (lost.tolist(), found.tolist()) == ([], [0])
