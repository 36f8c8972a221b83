"""What steps make of a schema, and which are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import SchemaError
from plait.expr.ddl import parse_ddl
from plait.model.evolution import Evolution, is_wider
from plait.model.schema import ColumnNote, Schema, id_of, ids_in
from plait.model.steps import (
    AddColumn,
    AllowNull,
    CommentColumn,
    DefaultColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    Step,
    WidenColumn,
)

DDL = (
    "id bigint not null, day date, n int, price decimal(10,2), at struct<x:int,y:float>, "
    "items array<struct<name:string,count:smallint>>, tags map<string,int>"
)
USES = {"id": "record key", "day": "partition", "n": "ordering column"}


def begun() -> Evolution:
    schema = Schema.create(parse_ddl(DDL))
    return Evolution(schema, max(ids_in(schema.arrow)), USES)


def after(*steps: Step) -> Evolution:
    found = begun()
    for step in steps:
        found = found.taking(step)
    return found


def names(evolution: Evolution) -> list[str]:
    return evolution.schema.names


def test_a_new_column_has_an_id_that_no_other_ever_had() -> None:
    first = begun().last_id
    found = after(
        AddColumn("a", pa.struct([("b", pa.int32()), ("c", pa.string())])),
        DropColumn("a"),
        AddColumn("a", pa.int64()),
    )
    assert id_of(found.find("a")) == first + 4
    assert found.last_id == first + 4


@pytest.mark.parametrize(
    ("at", "where"),
    [(None, 7), ("", 0), ("id", 1), ("tags", 7)],
)
def test_a_new_column_comes_where_it_is_wanted(at: str | None, where: int) -> None:
    assert names(after(AddColumn("new", pa.int64(), after=at)))[where] == "new"


def test_a_default_counts_for_the_rows_that_are_there_and_for_those_that_come() -> None:
    found = after(AddColumn("new", pa.decimal128(6, 2), nullable=False, default="1.5"))
    assert found.schema.notes == {found.last_id: ColumnNote("", "1.50", "1.50")}
    changed = found.taking(DefaultColumn("new", 2))
    assert changed.schema.notes == {found.last_id: ColumnNote("", "1.50", "2.00")}
    widened = changed.taking(WidenColumn("new", pa.decimal128(8, 3)))
    assert widened.schema.notes == {found.last_id: ColumnNote("", "1.500", "2.000")}
    assert Schema.from_dict(widened.schema.to_dict()) == widened.schema


FIVE = datetime(2026, 1, 1, 5)  # noqa: DTZ001 - of a type without zone


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("date", FIVE),
        ("date", 5),
        ("timestamp_ntz", FIVE.replace(tzinfo=timezone(timedelta(hours=5)))),
        ("timestamp_ntz", pa.scalar(1, pa.timestamp("ns"))),
        ("timestamp", FIVE),
        ("float", 1e300),
        ("float", "-1e300"),
        ("double", "1e400"),
        ("float", True),
        ("int", True),
        ("int", 1.5),
        ("bigint", FIVE),
        ("boolean", 2),
        ("string", 5),
        ("string", b"x"),
        ("decimal(4,2)", 1.234),
    ],
    ids=str,
)
def test_a_default_that_its_column_cannot_keep_as_it_is_is_refused(
    kind: str, default: object
) -> None:
    type_ = parse_ddl(f"a {kind}").field("a").type
    with pytest.raises(SchemaError, match="is no value of column 'a'"):
        after(AddColumn("a", type_, default=default))
    with pytest.raises(SchemaError, match="is no value of column 'a'"):
        after(AddColumn("a", type_), DefaultColumn("a", default))


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        ("date", FIVE.replace(hour=0), "2026-01-01"),
        ("timestamp_ntz", FIVE.date(), "2026-01-01T00:00:00.000000"),
        (
            "timestamp",
            FIVE.replace(tzinfo=timezone(timedelta(hours=5))),
            "2026-01-01T00:00:00.000000Z",
        ),
        ("float", 0.1, "0.1"),
        ("float", "1e30", "1e+30"),
        ("float", float("inf"), "inf"),
        ("double", "-Infinity", "-inf"),
        ("int", 1.0, "1"),
        ("int", "1", "1"),
        ("boolean", "true", "true"),
        ("binary", "x", "78"),
        ("decimal(4,2)", 1.5, "1.50"),
    ],
    ids=str,
)
def test_a_text_says_a_default_in_the_type_of_its_column_as_a_value_of_it_does(
    kind: str, default: object, text: str
) -> None:
    found = after(AddColumn("a", parse_ddl(f"a {kind}").field("a").type, default=default))
    assert found.schema.notes[found.last_id].default == text


def test_members_of_structs_lists_and_maps_change_as_columns_do() -> None:
    found = after(
        AddColumn("at.z", pa.float64(), after="x"),
        RenameColumn("at.y", "why"),
        WidenColumn("items.element.count", pa.int64()),
        DropColumn("items.element.name"),
        WidenColumn("tags.value", pa.int64()),
        MoveColumn("at.why", ""),
        CommentColumn("at.x", "east"),
    )
    assert [each.name for each in found.find("at").type.fields] == ["why", "x", "z"]
    element = found.find("items").type.value_type
    assert [(each.name, each.type) for each in element.fields] == [("count", pa.int64())]
    assert found.find("tags").type.item_type == pa.int64()
    assert found.schema.notes == {id_of(found.find("at.x")): ColumnNote("east")}
    assert set(ids_in(begun().schema.arrow)) - set(ids_in(found.schema.arrow)) == {
        id_of(begun().find("items.element.name"))
    }


def test_a_renamed_column_keeps_its_id_its_place_and_its_use() -> None:
    found = after(RenameColumn("id", "key"), RenameColumn("n", "m"))
    assert names(found)[:3] == ["key", "day", "m"]
    assert id_of(found.find("key")) == id_of(begun().find("id"))
    assert found.uses == {"key": "record key", "day": "partition", "m": "ordering column"}
    with pytest.raises(SchemaError, match="record key"):
        found.taking(DropColumn("key"))


@pytest.mark.parametrize(
    "step",
    [
        AddColumn("N", pa.int64()),
        AddColumn("", pa.int64()),
        AddColumn("_commit_version", pa.int64()),
        AddColumn("a", pa.int64(), nullable=False),
        AddColumn("a", pa.int64(), default="x"),
        AddColumn("a", pa.list_(pa.int64()), default=[1]),
        AddColumn("a", pa.int8(), default=1_000),
        AddColumn("at.z", pa.int64(), default=1),
        AddColumn("day.z", pa.int64()),
        AddColumn("nothing.z", pa.int64()),
        AddColumn("a", pa.int64(), after="nothing"),
        AddColumn("a", pa.duration("s")),
        DropColumn("nothing"),
        DropColumn("id"),
        DropColumn("day"),
        DropColumn("n"),
        DropColumn("tags.key"),
        DropColumn("tags.value"),
        DropColumn("items.element"),
        RenameColumn("id", "DAY"),
        RenameColumn("id", "a.b"),
        RenameColumn("id", "_change_type"),
        RenameColumn("tags.value", "v"),
        RenameColumn("items.element", "e"),
        MoveColumn("id", "nothing"),
        MoveColumn("id", "id"),
        WidenColumn("id", pa.int32()),
        WidenColumn("n", pa.float64()),
        WidenColumn("n", pa.string()),
        WidenColumn("price", pa.decimal128(10, 3)),
        WidenColumn("price", pa.decimal128(9, 2)),
        WidenColumn("day", pa.timestamp("us")),
        AllowNull("id"),
        DefaultColumn("n", "x"),
        DefaultColumn("tags", {}),
    ],
    ids=repr,
)
def test_a_step_that_is_not_possible_is_refused(step: Step) -> None:
    with pytest.raises(SchemaError) as caught:
        begun().taking(step)
    assert caught.value.hint


WIDER = [
    (pa.int8(), pa.int16()),
    (pa.int16(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.date32(), pa.timestamp("us")),
    (pa.decimal128(4, 2), pa.decimal128(6, 2)),
    (pa.decimal128(4, 2), pa.decimal128(6, 4)),
]


@pytest.mark.parametrize(("old", "new"), WIDER, ids=str)
def test_a_wider_type_has_every_value_of_the_old_one(old: pa.DataType, new: pa.DataType) -> None:
    assert is_wider(new, old)
    assert not is_wider(old, new)
    assert not is_wider(old, old)
    found = Evolution(Schema.create(pa.schema([("a", old)])), 1).taking(WidenColumn("a", new))
    assert found.find("a").type == new


@given(st.integers(1, 38), st.integers(0, 38), st.integers(1, 38), st.integers(0, 38))
def test_a_decimal_only_widens_to_one_that_holds_its_greatest_value(
    digits: int, scale: int, more: int, to: int
) -> None:
    if scale > digits or to > more:
        return
    old, new = pa.decimal128(digits, scale), pa.decimal128(more, to)
    greatest = 10**digits - 1  # in units of the last digit
    holds = to >= scale and greatest * 10 ** (to - scale) < 10**more
    assert is_wider(new, old) == (holds and old != new)


def test_what_is_said_of_a_dropped_column_goes_with_it() -> None:
    found = after(AddColumn("a", pa.int64(), default=1, comment="c"), DropColumn("a"))
    assert not found.schema.notes
    assert replace(found, last_id=begun().last_id) == begun()
