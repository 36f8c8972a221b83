"""Bad values are found one by one, and cost few decodings however many they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from plait.kafka.records.decode import isolated

COUNT = 10_000


@pytest.mark.parametrize(
    ("is_bad", "calls_max"),
    [
        (lambda _: False, 1),
        (lambda _: True, COUNT + 10),
        (lambda at: at % 2 == 1, COUNT * 3 // 2 + 10),
        (lambda at: at % 100 == 7, COUNT // 100 * 16),
        (lambda at: at == COUNT // 2, 40),
        (lambda at: at >= COUNT // 2, COUNT // 2 + 40),
        (lambda at: at < COUNT // 2, COUNT // 2 + 40),
    ],
    ids=["none", "all", "every second", "every hundredth", "one", "the last", "the first"],
)
def test_each_of_many_bad_values_costs_about_one_decoding(
    is_bad: Callable[[int], bool], calls_max: int
) -> None:
    calls: list[int] = []

    def decode(values: Sequence[bytes]) -> pa.Table:
        calls.append(len(values))
        numbers = [int(value) for value in values]
        wrong = [number for number in numbers if is_bad(number)]
        if wrong:
            message = f"{wrong[0]} is bad"
            raise ValueError(message)
        return pa.table({"n": pa.array(numbers, pa.int64())})

    found = isolated([str(number).encode() for number in range(COUNT)], decode)
    bad = [number for number in range(COUNT) if is_bad(number)]
    assert [tuple(each) for each in found.bad] == [(at, f"{at} is bad") for at in bad]
    assert found.rows["n"].to_pylist() == [n for n in range(COUNT) if not is_bad(n)]
    assert len(calls) <= calls_max
