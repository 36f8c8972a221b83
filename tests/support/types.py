"""Types of Arrow that rows may have, and what a table makes of them: the table of admission."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa


class Moods(pa.ExtensionType):
    """A type of somebody else's, whose storage alone says nothing."""

    def __init__(self) -> None:
        """Stand for an integer."""
        super().__init__(pa.int64(), "tests.moods")

    def __arrow_ext_serialize__(self) -> bytes:
        """Say nothing more."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Moods:
        """Make one again."""
        return cls()


def _coded(values: pa.Array, index: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0], index), values)


def _wrapped(kind: pa.BaseExtensionType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


_ONE = Decimal("1.5")
_UINT64 = pa.array([2**64 - 1], pa.uint64())
_SMALL = pa.Array.from_buffers(
    pa.decimal128(2, 5), 1, [None, pa.py_buffer((15).to_bytes(16, "little"))]
)
TAKEN: dict[str, tuple[pa.Array, str]] = {
    "bool": (pa.array([True]), "boolean"),
    "int8": (pa.array([-128], pa.int8()), "tinyint"),
    "uint8": (pa.array([255], pa.uint8()), "smallint"),
    "uint16": (pa.array([65_535], pa.uint16()), "int"),
    "uint32": (pa.array([2**32 - 1], pa.uint32()), "bigint"),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)"),
    "float16": (pa.array([1.5], pa.float16()), "float"),
    "large_string": (pa.array(["a"], pa.large_string()), "string"),
    "string_view": (pa.array(["a"], pa.string_view()), "string"),
    "large_binary": (pa.array([b"a"], pa.large_binary()), "binary"),
    "binary_view": (pa.array([b"a"], pa.binary_view()), "binary"),
    "fixed binary": (pa.array([b"ab"], pa.binary(2)), "binary"),
    "date64": (pa.array([dt.date(2020, 1, 1)], pa.date64()), "date"),
    "timestamp[s]": (pa.array([1], pa.timestamp("s")), "timestamp_ntz"),
    "timestamp[ms, UTC]": (pa.array([1], pa.timestamp("ms", "UTC")), "timestamp"),
    "timestamp[ns, Tokyo]": (pa.array([1_000], pa.timestamp("ns", "Asia/Tokyo")), "timestamp"),
    "decimal32": (pa.array([_ONE], pa.decimal32(5, 2)), "decimal(5,2)"),
    "decimal64": (pa.array([_ONE], pa.decimal64(12, 2)), "decimal(12,2)"),
    "decimal256": (pa.array([_ONE], pa.decimal256(30, 2)), "decimal(30,2)"),
    "decimal, scale < 0": (pa.array([Decimal(100)], pa.decimal128(5, -2)), "decimal(7,0)"),
    "decimal, scale > digits": (_SMALL, "decimal(5,5)"),
    "dictionary": (_coded(pa.array(["a"]), pa.int32()), "string"),
    "dictionary of views": (_coded(pa.array(["a"], pa.string_view()), pa.uint32()), "string"),
    "dictionary of large": (_coded(pa.array(["a"], pa.large_string()), pa.int8()), "string"),
    "dictionary of uint64": (_coded(_UINT64, pa.int8()), "decimal(20,0)"),
    "run-end": (pa.RunEndEncodedArray.from_arrays([1], ["a"]), "string"),
    "uuid": (_wrapped(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))), "binary"),
    "json": (_wrapped(pa.json_(), pa.array(["{}"])), "string"),
    "list": (pa.array([[1]], pa.list_(pa.int64())), "array<bigint>"),
    "large_list": (pa.array([[2**64 - 1]], pa.large_list(pa.uint64())), "array<decimal(20,0)>"),
    "fixed list": (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), "array<bigint>"),
    "list_view": (pa.array([[1]], pa.list_view(pa.int64())), "array<bigint>"),
    "large_list_view": (pa.array([[1]], pa.large_list_view(pa.int64())), "array<bigint>"),
    "struct": (pa.array([{"m": 1}], pa.struct([("m", pa.uint8())])), "struct<m:smallint>"),
    "map": (
        pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.uint8())),
        "map<string,smallint>",
    ),
}
"""By name: one value, and the type of the column that is made for it."""

_VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
REFUSED: dict[str, pa.Array] = {
    "null": pa.nulls(1),
    "duration": pa.array([1], pa.duration("us")),
    "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "time32": pa.array([1], pa.time32("s")),
    "time64": pa.array([1], pa.time64("us")),
    "decimal of 39": pa.array([_ONE], pa.decimal256(39, 2)),
    "empty struct": pa.array([{}], pa.struct([])),
    "union": pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
    ),
    "variant": pa.array([{"value": b"", "metadata": b""}], _VARIANT),
    "bool8": _wrapped(pa.bool8(), pa.array([1], pa.int8())),
    "extension": _wrapped(Moods(), pa.array([1])),
    "names by case": pa.array([(1, 2)], pa.struct([("a", pa.int64()), ("A", pa.int64())])),
    "names twice": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
    "empty name": pa.array([(1,)], pa.struct([("", pa.int64())])),
}
"""By name: one value of a type that no column is made for."""

AROUND: dict[str, tuple[str, Callable[[pa.Array], pa.Array]]] = {
    "alone": ("{}", lambda a: a),
    "struct": ("struct<m:{}>", lambda a: pa.StructArray.from_arrays([a], ["m"])),
    "list": ("array<{}>", lambda a: pa.ListArray.from_arrays([0, len(a)], a)),
    "map": ("map<string,{}>", lambda a: pa.MapArray.from_arrays([0, 1], pa.array(["k"]), a)),
    "deep": (
        "array<struct<m:array<{}>>>",
        lambda a: pa.ListArray.from_arrays(
            [0, 1], pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], a)], ["m"])
        ),
    ),
}
"""By name: the type around another, and a value around a value."""
