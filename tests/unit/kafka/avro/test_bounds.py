"""A few bytes may say that they are a great many values: the work for a record is bounded."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from plait.kafka.records.avro.decoder import AvroDecoder
from plait.kafka.records.avro.schema import PARTS_MAX, Node, parse_schema
from tests.fuzz.decoders import One, fuzz, long
from tests.support.effort import share
from tests.support.steps import at_most

ID = pa.schema([("id", pa.int64())])
NULLS = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.list_(pa.int64())))])


@pytest.mark.long(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hostile_record_is_a_row_or_bad_after_bounded_work(seed: int) -> None:
    """``make fuzz`` decodes many more."""
    fuzzing = fuzz(seed, share(12))
    assert fuzzing.failures == []
    assert fuzzing.counts["rows"] > share(10)
    assert fuzzing.counts["bad records"] > share(10)


def record(*fields: tuple[str, object], name: str = "Top") -> dict[str, object]:
    parts = [{"name": each, "type": kind} for each, kind in fields]
    return {"type": "record", "name": name, "fields": parts}


def doubled(levels: int) -> object:
    """Make a type of 2 ** levels values, none of which has a byte."""
    found: object = record(("x", "null"), name="R0")
    for level in range(1, levels + 1):
        found = record(("a", found), ("b", f"R{level - 1}"), name=f"R{level}")
    return found


def schema(*fields: tuple[str, object]) -> Node:
    return parse_schema(json.dumps(record(*fields)))


def nested_nulls(count: int) -> bytes:
    return long(count) + (long(9_999) + long(0)) * count + long(0)


NOTHING = {"type": "array", "items": {"type": "array", "items": "null"}}
CASES = {
    "doubled": (schema(("id", "long"), ("x", doubled(20))), long(1)),
    "in a union": (schema(("id", "long"), ("x", ["null", doubled(20)])), long(1) * 2),
    "in an array": (
        schema(("id", "long"), ("x", {"type": "array", "items": doubled(20)})),
        long(1) + long(3),
    ),
    "in a map": (
        schema(("id", "long"), ("x", {"type": "map", "values": doubled(20)})),
        long(1) * 3,
    ),
    "passed over": (schema(("id", "long"), ("x", NOTHING)), long(1) + nested_nulls(1_000)),
    "read": (schema(("l", NOTHING)), nested_nulls(1_000)),
    "endless": (schema(("id", "long"), ("x", "Top")), long(1)),
    "empty": (schema(("x", "Top"), ("y", "Top"), ("id", "long")), b""),
}


@pytest.mark.parametrize(("node", "value"), CASES.values(), ids=CASES)
def test_a_record_of_far_more_values_than_bytes_is_bad(node: Node, value: bytes) -> None:
    before = pa.total_allocated_bytes()
    decoder = AvroDecoder(NULLS, One(node))
    with at_most(3_000_000):
        found = decoder.decode([bytes([0, 0, 0, 0, 1]) + value])
    assert found.rows.num_rows == 0
    assert [each.at for each in found.bad] == [0]
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_good_records_stay_good_beside_one_that_takes_too_many_steps() -> None:
    node = schema(("id", "long"), ("x", ["null", doubled(20)]))
    values = [long(number) + long(0) for number in range(300)]
    values[100] = long(100) + long(1)
    values[299] = long(299) + long(1)
    found = AvroDecoder(ID, node).decode(values)
    assert [each.at for each in found.bad] == [100, 299]
    assert found.rows["id"].to_pylist() == [*range(100), *range(101, 299)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: "[" * 200_000,
        lambda: '{"type":"array","items":' * 200_000,
        lambda: json.dumps(record(("id", ["null"] + ["long"] * PARTS_MAX))),
        lambda: json.dumps({"type": "enum", "name": "E", "symbols": ["a"] * (PARTS_MAX + 1)}),
        lambda: json.dumps("a" * (17 << 20)),
        lambda: '{"type": "fixed", "name": "F", "size": NaN}',
        lambda: '"\ud800"',
    ],
)
def test_a_schema_beyond_its_bounds_is_a_clear_error(make: Callable[[], str]) -> None:
    text = make()
    with at_most(3_000_000), pytest.raises(ValueError, match=r"."):
        parse_schema(text)


def test_wide_and_deep_records_that_have_bytes_are_read() -> None:
    """The bound is far from what a record with as many bytes as values needs."""
    wide = schema(*((f"f{number}", "long") for number in range(5_000)), ("id", "long"))
    assert AvroDecoder(ID, wide).decode([long(1) * 5_001]).rows["id"].to_pylist() == [1]
    empty = schema(*((f"f{number}", "null") for number in range(5_000)), ("id", "long"))
    assert AvroDecoder(ID, empty).decode([long(1)]).rows["id"].to_pylist() == [1]
    deep: object = "boolean"
    for level in range(16):
        deep = record(("a", deep), name=f"D{level}")
    lists = schema(("id", "long"), ("x", {"type": "array", "items": ["null", deep]}))
    value = long(1) + long(5_000) + (long(1) + b"\1") * 5_000 + long(0)
    assert AvroDecoder(ID, lists).decode([value]).rows["id"].to_pylist() == [1]
