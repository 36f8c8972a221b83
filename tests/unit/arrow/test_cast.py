"""Casts to the table's types: every value comes through unchanged, or none does."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from plait.arrow.cast import Fit, LossyError, apply, fit, missing_value

UTC = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")

LOSSLESS = [
    (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
    (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
    (pa.array(["a"], pa.string_view()), pa.string(), ["a"]),
    (pa.array([b"a"], pa.large_binary()), pa.binary(), [b"a"]),
    (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
    (pa.array([255], pa.uint8()), pa.int16(), [255]),
    (pa.array([2**63 - 1], pa.uint64()), pa.int64(), [2**63 - 1]),
    (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
    (pa.array([7], pa.int64()), pa.decimal128(5, 2), [Decimal("7.00")]),
    (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), pa.decimal128(5, 1), [Decimal("1.5")]),
    (pa.array([Decimal("2.00")], pa.decimal128(9, 2)), pa.int32(), [2]),
    (pa.array([1.0, None]), pa.int64(), [1, None]),
    (pa.array([0.5], pa.float64()), pa.float32(), [0.5]),
    (pa.array([1, 2], pa.int64()), pa.float64(), [1.0, 2.0]),
    (pa.array([5], pa.timestamp("ms", "Europe/Berlin")), UTC, None),
    (pa.array([5_000], pa.timestamp("ns")), LOCAL, None),
    (pa.array([86_400_000], pa.date64()), pa.date32(), None),
    (pa.array([86_400], pa.timestamp("s")), pa.date32(), None),
    (pa.array([3], pa.date32()), LOCAL, None),
    (pa.nulls(2), pa.list_(pa.int64()), [None, None]),
    (pa.array([[1], None, [2, 3]], pa.large_list(pa.uint8())), pa.list_(pa.int64()), None),
    (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), pa.list_(pa.int64()), [[1, 2]]),
    (pa.array([[1, None], None], pa.list_view(pa.int8())), pa.list_(pa.int64()), [[1, None], None]),
    (pa.array([[0.5]]), pa.list_(pa.float32()), [[0.5]]),
    (pa.array([[2**64 - 1]], pa.list_(pa.uint64())), pa.list_(pa.decimal128(20, 0)), None),
    (pa.nulls(2), pa.map_(pa.string(), pa.int64()), [None, None]),
]

LOSSY = [
    (pa.array([300], pa.int64()), pa.int8()),
    (pa.array([10]), pa.decimal128(3, 2)),
    (pa.array([2**63], pa.uint64()), pa.int64()),
    (pa.array([2**53 + 1]), pa.float64()),
    (pa.array([0.1]), pa.float32()),
    (pa.array([1.5]), pa.int64()),
    (pa.array([float("nan")]), pa.int64()),
    (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), pa.decimal128(5, 1)),
    (pa.array([1], pa.timestamp("ns")), LOCAL),
    (pa.array([2**62], pa.timestamp("s")), LOCAL),
    (pa.array([86_401], pa.timestamp("s")), pa.date32()),
    (pa.array([86_400_001], pa.date64()), pa.date32()),
    (pa.array([[0.1]]), pa.list_(pa.float32())),
    (pa.array([{"a": [2**40]}]), pa.struct([("a", pa.list_(pa.int32()))])),
]

APART = [
    (pa.string(), pa.int64()),
    (pa.int64(), pa.string()),
    (pa.string(), pa.binary()),
    (pa.float64(), pa.decimal128(10, 2)),
    (pa.bool_(), pa.int8()),
    (LOCAL, UTC),
    (UTC, LOCAL),
    (UTC, pa.date32()),
    (pa.bool8(), pa.int8()),
    (pa.list_(pa.bool8()), pa.list_(pa.bool_())),
    (pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.struct([("a", pa.int64())])),
    (pa.struct([("a", pa.int64())]), pa.list_(pa.int64())),
]


@pytest.mark.parametrize(("source", "target", "values"), LOSSLESS)
def test_a_cast_keeps_every_value(
    source: pa.Array, target: pa.DataType, values: list[object] | None
) -> None:
    assert fit(source.type, target) < Fit.NEVER
    found = apply(source, target)
    assert found.type == target
    if values is not None:
        assert found.to_pylist() == values
    elif not pa.types.is_nested(target):
        assert found.cast(source.type).equals(source)


@pytest.mark.parametrize(("source", "target"), LOSSY)
def test_a_cast_refuses_a_value_that_would_change(source: pa.Array, target: pa.DataType) -> None:
    assert Fit.TOTAL < fit(source.type, target) < Fit.NEVER
    with pytest.raises(LossyError):
        apply(source, target)


@pytest.mark.parametrize(("source", "target"), APART)
def test_types_that_would_need_a_decision_do_not_fit(
    source: pa.DataType, target: pa.DataType
) -> None:
    assert fit(source, target) is Fit.NEVER


def test_struct_fields_go_by_name_and_missing_ones_are_null() -> None:
    source = pa.array([{"b": 1, "a": "x"}], pa.struct([("b", pa.int8()), ("a", pa.string())]))
    target = pa.struct([("a", pa.string()), ("b", pa.int64()), ("c", pa.date32())])
    assert apply(source, target).to_pylist() == [{"a": "x", "b": 1, "c": None}]


@pytest.mark.parametrize(
    ("values", "kind", "path"),
    [
        ([{"a": 1}, None], pa.struct([pa.field("a", pa.int64(), nullable=False)]), None),
        ([{"a": None}], pa.struct([pa.field("a", pa.int64(), nullable=False)]), "x.a"),
        ([[1], [None]], pa.list_(pa.field("element", pa.int64(), nullable=False)), "x.element"),
        (
            [[("k", None)]],
            pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
            "x.value",
        ),
    ],
)
def test_a_null_inside_of_a_nested_value_is_found_by_its_path(
    values: list[object], kind: pa.DataType, path: str | None
) -> None:
    loose = pa.infer_type(values) if not pa.types.is_map(kind) else pa.map_(pa.string(), pa.int64())
    padded = pa.array([*values, *values], loose).slice(len(values))
    assert missing_value(padded, pa.field("x", kind)) == path
