"""DDL text gives the schema that Spark would make of it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait.errors import SchemaError
from plait.expr import parse_ddl
from plait.model.schema import Schema


def test_every_storable_type_has_a_name() -> None:
    schema = parse_ddl(
        "id BIGINT NOT NULL, a: tinyint, b smallint COMMENT 'it\\'s', c int, d float, e double, "
        "f boolean, g string, h binary, i date, j timestamp, k timestamp_ntz, l decimal(10, 2), "
        "m map<string,array<struct<a:int,b:string not null>>>, `n o``p` varchar(10)"
    )
    inner = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string(), nullable=False)])
    assert schema.field("id") == pa.field("id", pa.int64(), nullable=False)
    assert schema.field("m").type == pa.map_(pa.string(), pa.list_(pa.field("element", inner)))
    assert schema.field("n o`p").type == pa.string()
    assert schema.field("j").type == pa.timestamp("us", "UTC")
    assert schema.field("k").type == pa.timestamp("us")
    assert schema.field("l").type == pa.decimal128(10, 2)
    assert list(Schema.create(schema).names) == schema.names


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("long", "bigint"),
        ("integer", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("bool", "boolean"),
        ("real", "float"),
        ("timestamp_ltz", "timestamp"),
        ("dec(5)", "decimal(5,0)"),
        ("numeric", "decimal(10,0)"),
        ("char(3)", "string"),
    ],
)
def test_other_names_of_types_are_known(alias: str, name: str) -> None:
    assert parse_ddl(f"x {alias}") == parse_ddl(f"x {name}")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("id", 0),
        ("id nothing", 0),
        ("id `bigint`", 0),
        ("id array<int", 12),
        ("id map<string>", 0),
        ("id struct<>", 9),
        ("a b c", 0),
        ("a int b", 6),
        ("< int", 0),
        ("a int, A string", 7),
        ("a int, b decimal(39,1)", 7),
        ("a int,\n b decimal(x)", 8),
        ("a int(5)", 0),
        ("a timestamp(3)", 0),
        ("a interval", 0),
        ("a int not", 6),
        ("a int comment x", 14),
        ("a int primary key", 0),
        ("a int;", 2),
        ("a int), (b int", 5),
        ("a int>) + cast(1 as struct<b int", 0),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place(text: str, position: int) -> None:
    with pytest.raises(SchemaError, match="character") as caught:
        parse_ddl(text)
    assert caught.value.facts["position"] == position


def test_deep_nesting_and_long_text_are_refused() -> None:
    for depth, why in ((40, "nested"), (5000, "levels")):
        with pytest.raises(SchemaError, match=why):
            parse_ddl("a " + "array<" * depth + "int" + ">" * depth)
    with pytest.raises(SchemaError, match="characters"):
        parse_ddl("a int, " * 1_000_000)
