"""A few keys looked up in sorted rows: exactly the rows that have one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.arrow.key_filter import KeyFilter
from plait.files import keys
from plait.read.join import SortedBatch

SHAPES = {
    "number": (["n"], lambda n: {"n": n}),
    "text": (["s"], lambda n: {"s": f"key-{n:04d}"}),
    "two columns": (["p", "n"], lambda n: {"p": "ab"[n % 2], "n": n}),
    "small columns": (["d", "n"], lambda n: {"d": n % 3, "n": n}),
}
SCHEMA = {"n": pa.int64(), "s": pa.string(), "p": pa.string(), "d": pa.int16()}


def table(shape: str, numbers: Sequence[int]) -> pa.Table:
    columns, row = SHAPES[shape]
    schema = pa.schema([(name, SCHEMA[name]) for name in columns])
    return pa.Table.from_pylist([row(n) for n in numbers], schema=schema)


def in_order(shape: str, numbers: Sequence[int]) -> pa.Table:
    rows = table(shape, numbers)
    return rows.take(pa.array(keys.sort_order(keys.encode(rows, SHAPES[shape][0]))))


@pytest.mark.parametrize("shape", SHAPES)
@given(
    there=st.lists(st.integers(-50, 50), unique=True),
    wanted=st.lists(st.integers(-60, 60), min_size=1),
    step=st.integers(1, 20),
)
def test_exactly_the_rows_with_a_wanted_key_pass_with_their_positions(
    shape: str, there: list[int], wanted: list[int], step: int
) -> None:
    key = SHAPES[shape][0]
    whole = in_order(shape, [abs(n) for n in set(map(abs, there))])

    def blocks() -> Iterator[SortedBatch]:
        for start in range(0, whole.num_rows, step):
            rows = whole.slice(start, step)
            at = np.arange(start, start + rows.num_rows, dtype=np.uint64) * np.uint64(2)
            yield SortedBatch(rows, at)
        yield SortedBatch(whole.slice(0, 0))

    asked = [SortedBatch(table(shape, [abs(n) for n in wanted[at::2]])) for at in range(2)]
    sieve = KeyFilter.of(asked, key, 1 << 20)
    assert sieve is not None
    passed = list(sieve.sift(blocks()))
    among = {tuple(row.values()) for row in table(shape, [abs(n) for n in wanted]).to_pylist()}
    expected = [
        (2 * at, tuple(row.values()))
        for at, row in enumerate(whole.to_pylist())
        if tuple(row.values()) in among
    ]
    found = [
        (int(at), tuple(row.values()))
        for block in passed
        for at, row in zip(block.positions, block.rows.to_pylist(), strict=True)
    ]
    assert found == expected


def test_more_keys_than_may_be_held_are_not_collected() -> None:
    block = SortedBatch(table("text", range(100)))
    assert KeyFilter.of([block] * 3, ["s"], 500) is None
