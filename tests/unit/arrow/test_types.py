"""Every type that Spark and Parquet share comes through buffer, runs, merges and files."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.support.livetable import LiveTable

_NUMBERS = itertools.count()
DAY = dt.date(2026, 1, 31)
MOMENT = dt.datetime(2026, 1, 31, 23, 59, 59, 999_999)  # noqa: DTZ001

VALUES: dict[pa.DataType, list[object]] = {
    pa.bool_(): [True, False, None],
    pa.int8(): [-128, 127, None],
    pa.int16(): [-1, 1, None],
    pa.int32(): [-(2**31), 2**31 - 1, None],
    pa.int64(): [-(2**63), 2**63 - 1, None],
    pa.float32(): [0.5, -0.0, None],
    pa.float64(): [1e300, float("inf"), None],
    pa.string(): ["", "ü\0x", None],
    pa.binary(): [b"", b"\x00\xff", None],
    pa.date32(): [dt.date(1, 1, 1), DAY, None],
    pa.timestamp("us"): [MOMENT, dt.datetime(1900, 1, 1), None],  # noqa: DTZ001
    pa.timestamp("us", "UTC"): [
        MOMENT.replace(tzinfo=dt.UTC),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        None,
    ],
    pa.decimal128(9, 2): [Decimal("1.50"), Decimal("-9999999.99"), None],
    pa.decimal128(38, 10): [Decimal("0.0000000001"), Decimal(10) ** 27, None],
    pa.list_(pa.int64()): [[], [1, None], None],
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.date32()))]): [
        {"a": None, "b": [DAY]},
        {"a": "x", "b": None},
        None,
    ],
    pa.map_(pa.string(), pa.struct([("n", pa.int32())])): [[("k", {"n": 1})], [], None],
    pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int64(), nullable=False)]))): [
        [{"x": 1}, None],
        [],
        None,
    ],
}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_values_of_every_type_come_back(table_type: str) -> None:
    kinds = list(VALUES)
    schema = pa.schema([("id", pa.int64()), *((f"c{at}", kind) for at, kind in enumerate(kinds))])
    options = {"write.buffer.size": "8KiB", "write.bucket.size": "4KiB"}
    table = LiveTable(
        f"memory://types-{next(_NUMBERS)}",
        schema,
        key=["id"],
        buckets=2,
        table_type=table_type,
        options=options,
    )

    def rows(ids: range, turn: int) -> pa.Table:
        columns = [pa.array([VALUES[kind][(i + turn) % 3] for i in ids], kind) for kind in kinds]
        return pa.table([pa.array(ids), *columns], schema=schema)

    wanted: dict[int, dict[str, object]] = {}
    for turn, ids in enumerate((range(60), range(30, 90), range(80, 81))):
        data = rows(ids, turn)
        table.write("upsert", data.slice(0, 20), data.slice(20))
        wanted.update({row["id"]: row for row in data.to_pylist()})
    found = {row["id"]: row for row in table.rows()}
    assert found == wanted


PLAIN_KEYS = [
    kind for kind in VALUES if not pa.types.is_nested(kind) and not pa.types.is_floating(kind)
]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", PLAIN_KEYS, ids=str)
@pytest.mark.parametrize("composite", [False, True])
def test_a_key_of_any_type_finds_its_row(
    kind: pa.DataType, table_type: str, composite: bool
) -> None:
    key = ["k", "n"] if composite else ["k"]
    schema = pa.schema([("k", kind), ("n", pa.string()), ("v", pa.int64())])
    table = LiveTable(
        f"memory://key-types-{next(_NUMBERS)}", schema, key=key, table_type=table_type
    )
    one, two, _ = VALUES[kind]
    table.write("upsert", pa.table([[one, two], ["", ""], [1, 2]], schema=schema))
    table.write("upsert", pa.table([[two], [""], [3]], schema=schema))
    table.write("delete", pa.table([[one], [""]], schema=pa.schema(list(schema)[:2])).select(key))
    assert table.rows() == [{"k": two, "n": "", "v": 3}]
