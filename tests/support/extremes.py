"""The values at the ends of every type that a table has, alone and inside of other types."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

_MIN, _MAX = -(1 << 63), (1 << 63) - 1
_LAST_DAY, _LAST_US = (1 << 31) - 1, (1 << 62)
_DAY_10000, _US_10000 = 2_932_897, 253_402_300_800_000_000
"""Python has no days from here on."""
_FLOATS = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1]

LEAVES: dict[str, pa.Array] = {
    "boolean": pa.array([True, False]),
    "tinyint": pa.array([-128, 127], pa.int8()),
    "smallint": pa.array([-(1 << 15), (1 << 15) - 1], pa.int16()),
    "int": pa.array([-(1 << 31), (1 << 31) - 1], pa.int32()),
    "bigint": pa.array([_MIN, _MAX, (1 << 53) + 1]),
    "float": pa.array(
        [math.nan, math.inf, -math.inf, -0.0, 1e-45, 3.4028234663852886e38], pa.float32()
    ),
    "double": pa.array(_FLOATS),
    "decimal(38,0)": pa.array([Decimal(10**38 - 1), Decimal(1 - 10**38)], pa.decimal128(38, 0)),
    "decimal(38,38)": pa.array([Decimal(1).scaleb(-38), Decimal(0)], pa.decimal128(38, 38)),
    "string": pa.array(["", "\x00", "\x1b[31m", "a\u2028b", "\U0010ffff", "x" * 300]),
    "binary": pa.array([b"", b"\x00\xff", b"\xff" * 300]),
    "date": pa.array([-_LAST_DAY, _LAST_DAY, -719_163, _DAY_10000, 0], pa.date32()),
    "timestamp": pa.array([-_LAST_US, _LAST_US, _US_10000, -1], pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array([-_LAST_US, _LAST_US, _US_10000, -1], pa.timestamp("us")),
}
"""By type; nulls are not among them."""


def _struct(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array, pa.nulls(len(array), pa.int64())], ["m", "n"])


def _list(array: pa.Array) -> pa.Array:
    """Return a list of each value and a null."""
    nulls = pa.nulls(len(array), array.type)
    order = [at + side for at in range(len(array)) for side in (0, len(array))]
    pairs = pa.concat_arrays([array, nulls]).take(pa.array(order))
    return pa.ListArray.from_arrays(list(range(0, len(order) + 1, 2)), pairs)


def _map(array: pa.Array) -> pa.Array:
    keys = pa.array([f"k{at}" for at in range(len(array))])
    return pa.MapArray.from_arrays(list(range(len(array) + 1)), keys, array)


WRAPS: dict[str, tuple[str, Callable[[pa.Array], pa.Array]]] = {
    "alone": ("{}", lambda array: array),
    "struct": ("struct<m: {}, n: bigint>", _struct),
    "array": ("array<{}>", _list),
    "map": ("map<string, {}>", _map),
    "deep": ("array<struct<m: array<{}>, n: bigint>>", lambda array: _list(_struct(_list(array)))),
}
"""By name: the type around another in DDL, and the values in it."""


def column(leaf: str, wrap: str) -> tuple[str, pa.Array]:
    """Return a type and its values, the last of which is null."""
    ddl, wrapped = WRAPS[wrap]
    values = wrapped(LEAVES[leaf])
    return ddl.format(leaf), pa.concat_arrays([values, pa.nulls(1, values.type)])
