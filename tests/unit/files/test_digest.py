"""Digests: equal for the same rows in any order and division, different for others."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.files.digest import digest_of, row_hashes
from plait.model.changes import Digest

MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("many", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(38, 2)),
        ("list", pa.list_(pa.int64())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("struct", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])),
    ]
)
ROWS: list[dict[str, object]] = [
    {},
    {"flag": True},
    {"flag": False},
    {"tiny": 0},
    {"tiny": 1},
    {"many": 0},
    {"many": 1},
    {"single": 1.5},
    {"double": 1.5},
    {"double": 0.0},
    {"double": float("nan")},
    {"text": ""},
    {"text": "a"},
    {"raw": b""},
    {"raw": b"a"},
    {"day": dt.date(1970, 1, 1)},
    {"at": MOMENT},
    {"price": Decimal("1.50")},
    {"list": []},
    {"list": [None]},
    {"list": [None, None]},
    {"list": [1, 2]},
    {"list": [2, 1]},
    {"map": []},
    {"map": [("a", 1)]},
    {"map": [("a", None)]},
    {"struct": {"x": None, "y": None}},
    {"struct": {"x": 1, "y": []}},
    {"struct": {"x": 1, "y": ["a"]}},
    {"text": "a", "raw": b"a", "many": 1},
]


def batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def test_rows_that_differ_anywhere_have_other_hashes() -> None:
    """Every type, the empty value of each beside null, places in lists, types beside each other."""
    assert len(set(row_hashes(batch(ROWS)).tolist())) == len(ROWS)


def test_few_rows_have_the_hashes_that_they_have_among_many() -> None:
    """Few are hashed value by value; sums of decisions are compared with those of checkpoints."""
    ends: list[int | None] = [0, 1, -1, None]
    columns = {
        "flag": pa.array([True, False, None, True] * 10),
        "tiny": pa.array([*ends, 127, -128, 5, None] * 5, pa.int8()),
        "short": pa.array([*ends, 32767, -32768, 5, None] * 5, pa.int16()),
        "whole": pa.array([*ends, 2**31 - 1, -(2**31), 5, None] * 5, pa.int32()),
        "long": pa.array([*ends, 2**63 - 1, -(2**63), 5, None] * 5, pa.int64()),
        "text": pa.array(["", "a", "é" * 20, None, "x" * 31, "y" * 32, "z" * 600, "b"] * 5),
        "raw": pa.array([b"", b"\xff", None, b"\0" * 40] * 10),
        "none": pa.nulls(40, pa.string()),
        "at": pa.array(range(40)),
    }
    every = pa.record_batch(columns)
    for seed in (0, 1):
        many = row_hashes(every, seed=seed).tolist()
        assert len(set(many)) == len(many)
        for size in (1, 3, 16):
            few = [row_hashes(every.slice(at, size), seed=seed) for at in range(0, 40, size)]
            assert np.concatenate(few).tolist() == many


@given(st.lists(st.sampled_from(ROWS)), st.randoms(use_true_random=False), st.integers(0, 30))
def test_order_and_division_do_not_matter(
    rows: list[dict[str, object]], chance: object, cut: int
) -> None:
    whole = digest_of([batch(rows)])
    assert whole.rows == len(rows)
    mixed = list(rows)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    parts = batch(mixed)
    assert digest_of([parts.slice(0, cut), parts.slice(cut)]) == whole
    assert digest_of([parts.slice(0, cut)]) + digest_of([parts.slice(cut)]) == whole


@given(st.lists(st.sampled_from(ROWS), min_size=1), st.sampled_from(ROWS))
def test_one_row_more_or_twice_is_seen(
    rows: list[dict[str, object]], more: dict[str, object]
) -> None:
    assert digest_of([batch([*rows, more])]) != digest_of([batch(rows)])


def test_values_that_change_their_rows_are_seen() -> None:
    """Sums of columns alone would not see it."""
    one = batch([{"many": 1, "text": "a"}, {"many": 2, "text": "b"}])
    two = batch([{"many": 2, "text": "a"}, {"many": 1, "text": "b"}])
    assert digest_of([one]) != digest_of([two])


def test_a_column_that_was_added_and_is_null_leaves_the_digest_as_it_is() -> None:
    """A batch that comes again after the table got a column is still the same batch."""
    few = pa.record_batch({"b": ["x", None], "a": [1, 2]})
    more = pa.record_batch({"a": [1, 2], "c": pa.nulls(2, pa.int64()), "b": ["x", None]})
    assert digest_of([few]) == digest_of([more])


@pytest.mark.parametrize("first", [0, 1])
def test_what_lies_under_a_null_does_not_count(first: int) -> None:
    """Arrow lets elements stay in the buffers of a null; files and plain arrays have none."""
    offsets, numbers = pa.array([0, 2, 3, 5], pa.int32()), pa.array([1, 2, 3, 4, 5], pa.int64())
    texts, hidden = pa.array(["a", "b", "c", "d", "e"]), pa.array([True, False, True])
    lists = pa.ListArray.from_arrays(offsets, numbers)
    covered = {
        "list": pa.ListArray.from_arrays(offsets, numbers, mask=hidden),
        "map": pa.MapArray.from_arrays(offsets, texts, numbers, mask=hidden),
        "struct": pa.StructArray.from_arrays([lists], names=["inner"], mask=hidden),
        "deep": pa.ListArray.from_arrays(
            pa.array([0, 1, 1, 3], pa.int32()),
            pa.ListArray.from_arrays(offsets, numbers, mask=hidden),
        ),
    }
    for name, array in covered.items():
        plain = pa.array(array.to_pylist(), array.type)
        one, two = (pa.record_batch({name: each}).slice(first) for each in (array, plain))
        for exact in (False, True):
            assert row_hashes(one, exact=exact).tolist() == row_hashes(two, exact=exact).tolist()


def test_floats_that_are_equal_count_as_equal() -> None:
    odd = np.array([0x7FF8000000000001, 0x8000000000000000], np.uint64).view(np.float64)
    plain = np.array([np.nan, 0.0])
    one, two = (pa.record_batch({"x": pa.array(values)}) for values in (odd, plain))
    assert digest_of([one]) == digest_of([two])


def test_what_a_digest_is_never_changes() -> None:
    """It stands in decisions: a replay after an update of Plait is still a replay."""
    assert digest_of([batch(ROWS)]) == Digest(30, 16324292556881891087)
    whole = Digest(1, (1 << 64) - 1) + Digest(2, 3)
    assert whole == Digest(3, 2), "it is a sum"
    with pytest.raises(AttributeError):
        whole.rows = 1  # type: ignore[misc]
