"""Change reads across a restore to before a column was widened: no value is lost or altered."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import RepushOpenError
from tests.support import build
from tests.support.protocol import beside

NIGHT = dt.datetime.fromisoformat("2020-01-02T03:04:05")
MIDNIGHT = dt.datetime.fromisoformat("2020-01-02T00:00:00")
WIDENED = {
    "integer": ("int", "bigint", 2**40, pa.int64()),
    "small integer": ("tinyint", "int", 1000, pa.int32()),
    "float": ("float", "double", 0.1, pa.float64()),
    "date": ("date", "timestamp_ntz", NIGHT, pa.timestamp("us")),
    "decimal": ("decimal(4,2)", "decimal(6,3)", decimal.Decimal("1.234"), pa.decimal128(6, 3)),
}


def make(kind: str, **options: Any) -> Table:
    return build.make(f"id bigint, a {kind}", **options)


def back_and_forth(name: str, **options: Any) -> Table:
    """Widen a column, write a value that the narrow type lacks, and restore the narrow type."""
    narrow, wide, value, kind = WIDENED[name]
    table = make(narrow, **options)
    table.upsert(pa.table({"id": [0], "a": pa.array([None], kind)}))
    table.alter.columns().widen("a", wide).commit()
    table.upsert(pa.table({"id": [1], "a": pa.array([value], kind)}))
    table.versions.restore(version=1)
    return table


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("name", WIDENED)
def test_a_window_shows_a_column_as_wide_as_it_was_within(name: str, table_type: str) -> None:
    """INV-04: the values are those that were written, whatever the last version has."""
    table, (_, _, value, kind) = back_and_forth(name, table_type=table_type), WIDENED[name]
    for since in (1, 2, 3):
        changes = table.changes(since=since)
        assert changes.schema.field("a").type == kind
        rows = [each for each in changes.to_arrow().to_pylist() if each["id"] == 1]
        assert [each["_change_type"] for each in rows] == ["insert", "delete"][since == 3 :]
        assert {each["a"] for each in rows} == {value}
        found = table.changes(since=since, where="a IS NOT NULL AND id = 1")
        assert found.count() == changes.count()
    assert table.changes(since=4).schema.field("a").type == table.schema.field("a").type
    assert table.scan().to_arrow().to_pylist() == [{"id": 0, "a": None}]


@pytest.mark.parametrize("name", WIDENED)
def test_bounds_and_predicates_are_those_of_the_wider_type(name: str) -> None:
    """INV-04: no file is left out whose value the narrow type would round."""
    table, value = back_and_forth(name), WIDENED[name][2]
    text = f"TIMESTAMP_NTZ '{value}'" if isinstance(value, dt.datetime) else str(value)
    for where in (f"a = {text}", f"a <= {text}", f"a >= {text}"):
        assert table.changes(since=1, where=where).count()["insert"] == 1
    assert table.changes(since=1, where=f"a < {text}").count()["insert"] == 0


def test_members_and_elements_are_as_wide_too() -> None:
    """INV-04."""
    table = make("struct<n:int,l:array<int>,m:map<string,int>>")
    table.alter.columns().widen("a.n", "bigint").commit()
    table.alter.columns().widen("a.l.element", "bigint").widen("a.m.value", "bigint").commit()
    kind = table.schema.field("a").type
    row = {"n": 2**40, "l": [2**41], "m": [("x", 2**42)]}
    table.upsert(pa.table({"id": [1], "a": pa.array([row], kind)}))
    table.versions.restore(version=0)
    rows = table.changes(since=0).to_arrow()
    assert rows["a"].to_pylist() == [row, row]


def test_a_column_keeps_its_name_of_the_last_version_and_gets_the_initial_value() -> None:
    """INV-04: only its type is that of a version before."""
    table = make("int")
    table.upsert(pa.table({"id": [0], "a": pa.array([0], pa.int32())}))
    table.alter.columns().add("b", "date", default=dt.date(2020, 1, 2)).commit()
    version = table.version
    assert version is not None
    table.alter.columns().widen("b", "timestamp_ntz").rename("b", "c").drop("a").commit()
    table.upsert(pa.table({"id": [1], "c": pa.array([NIGHT])}))
    table.versions.restore(version=version)
    table.delete(where="id = 0")
    rows = table.changes(since=version).to_arrow().to_pylist()
    assert [(each["id"], each["a"], each["b"]) for each in rows] == [
        (1, None, NIGHT),
        (1, None, NIGHT),
        (0, 0, MIDNIGHT),
    ]


def test_what_was_widened_in_two_ways_is_shown_with_a_type_for_both() -> None:
    """INV-04: decimals of more digits before and after the point."""
    table = make("decimal(4,2)")
    table.alter.columns().widen("a", "decimal(6,4)").commit()
    table.upsert(pa.table({"id": [1], "a": [decimal.Decimal("12.3456")]}))
    table.versions.restore(version=0)
    table.alter.columns().widen("a", "decimal(6,2)").commit()
    table.upsert(pa.table({"id": [2], "a": [decimal.Decimal("1234.56")]}))
    rows = table.changes(since=0).to_arrow()
    assert rows.schema.field("a").type == pa.decimal128(8, 4)
    assert set(rows["a"].to_pylist()) == {decimal.Decimal("12.3456"), decimal.Decimal("1234.56")}


def test_an_open_repush_is_not_restored_to_other_columns_and_follows_on() -> None:
    """RFC 0012: its rounds meet no columns that are wider than those of the table."""
    table = make("int")
    table.alter.columns().widen("a", "bigint").commit()
    table.upsert(pa.table({"id": [1], "a": [2**40]}))

    def meanwhile() -> None:
        table.upsert(pa.table({"id": [2], "a": [2**41]}))
        with pytest.raises(RepushOpenError):
            table.versions.restore(version=0)

    beside(table, "repush-follow", meanwhile).layout.repush(buckets=2)
    assert sorted(table.scan().to_arrow()["a"].to_pylist()) == [2**40, 2**41]
