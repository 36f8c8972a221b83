"""Keys of a look-up name rows as they are, or are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from plait import Table
from plait.errors import BadRecordError, OptionError
from tests.support.build import make

NEW_YEAR = datetime(2026, 1, 1)  # noqa: DTZ001 - of a type without zone
FINE = pd.Timestamp("2026-01-01 00:00:00.000000001")
KEPT: dict[str, object] = {
    "bigint": 1,
    "decimal(10,2)": Decimal(1),
    "date": date(2026, 1, 1),
    "timestamp": NEW_YEAR.replace(tzinfo=UTC),
    "timestamp_ntz": NEW_YEAR,
    "string": "1",
}
"""The only key of a table with a key of that type."""
OTHER: list[tuple[str, object]] = [
    ("bigint", 1.5),
    ("bigint", 1.999),
    ("bigint", Decimal("1.5")),
    ("bigint", np.float64(1.5)),
    ("bigint", pa.scalar(1.5)),
    ("decimal(10,2)", Decimal("1.004")),
    ("date", datetime(2026, 1, 1, 13)),  # noqa: DTZ001
    ("date", NEW_YEAR.replace(tzinfo=UTC)),
    ("date", FINE),
    ("date", 20454),
    ("timestamp", FINE.tz_localize("UTC")),
    ("timestamp", NEW_YEAR),
    ("timestamp_ntz", FINE),
    ("timestamp_ntz", NEW_YEAR.replace(tzinfo=UTC)),
    ("string", b"1"),
]
SAME: list[tuple[str, object]] = [
    *KEPT.items(),
    ("bigint", 1.0),
    ("bigint", Decimal("1.00")),
    ("bigint", np.int32(1)),
    ("bigint", pa.scalar(1, pa.int16())),
    ("decimal(10,2)", 1),
    ("date", NEW_YEAR),
    ("date", pd.Timestamp(NEW_YEAR)),
    ("timestamp", datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))),
]


def made(kind: str) -> Table:
    table = make(f"id {kind}, v int")
    keys = pa.array([KEPT[kind]], table.schema.field("id").type)
    table.upsert(pa.table([keys, pa.array([7], pa.int32())], names=["id", "v"]))
    return table


@pytest.mark.parametrize(("kind", "key"), OTHER, ids=str)
def test_a_key_that_a_column_cannot_keep_as_it_is_is_refused(kind: str, key: object) -> None:
    with pytest.raises(BadRecordError, match="'id'") as caught:
        made(kind).get([KEPT[kind], key])
    assert caught.value.facts["column"] == "id"


@pytest.mark.parametrize(("kind", "key"), SAME, ids=str)
def test_a_key_is_found_in_every_form_that_loses_nothing(kind: str, key: object) -> None:
    assert made(kind).get([key], "v").to_pylist() == [{"v": 7}]


def test_no_key_of_a_tuple_or_a_dict_changes_on_its_way() -> None:
    table = make("a bigint, b string", record_key=["a", "b"])
    table.upsert(pa.table({"a": [1], "b": ["x"]}))
    for key in ((1.7, "x"), {"a": 1.7, "b": "x"}):
        with pytest.raises(BadRecordError, match=r"'a'.*1\.7"):
            table.get([key])


def test_an_array_of_arrow_names_the_keys_of_one_column() -> None:
    table = made("bigint")
    structs = pa.array([{"id": 1}])
    for keys in (pa.array([1, 2]), pa.chunked_array([[1], [2]]), pa.array([1.0]), structs):
        assert table.get(keys, "v").to_pylist() == [{"v": 7}]
    with pytest.raises(BadRecordError):
        table.get(pa.array([1.5]))
    both = make("a int, b int", record_key=["a", "b"])
    for arrow in (pa.array([1]), pa.chunked_array([[1]])):
        with pytest.raises(OptionError, match="columns"):
            both.get(arrow)
    with pytest.raises(OptionError, match="columns"):
        table.upsert(pa.array([1]))
