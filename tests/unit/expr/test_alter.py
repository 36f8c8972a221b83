"""Changes of columns in SQL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait.errors import SchemaError
from plait.expr.alter import parse_steps
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

UNDERSTOOD: dict[str, tuple[Step, ...]] = {
    "ADD COLUMN a int": (AddColumn("a", pa.int32()),),
    "add columns (a int, b string FIRST)": (
        AddColumn("a", pa.int32()),
        AddColumn("b", pa.string(), after=""),
    ),
    "ADD COLUMN a string NOT NULL DEFAULT 'x' COMMENT 'c' AFTER id": (
        AddColumn("a", pa.string(), nullable=False, default="x", comment="c", after="id"),
    ),
    "ADD COLUMN s.x.y decimal(10,2) DEFAULT -1.5": (
        AddColumn("s.x.y", pa.decimal128(10, 2), default="-1.5"),
    ),
    "ADD COLUMN d date DEFAULT DATE '2026-01-31'": (
        AddColumn("d", pa.date32(), default="2026-01-31"),
    ),
    "ADD COLUMN b boolean DEFAULT true": (AddColumn("b", pa.bool_(), default=True),),
    "ADD COLUMN c varchar(5)": (AddColumn("c", pa.string()),),
    "ADD COLUMN c array<char(5)>": (AddColumn("c", pa.list_(pa.field("element", pa.string()))),),
    "DROP COLUMN a": (DropColumn("a"),),
    "DROP COLUMNS (a, b)": (DropColumn("a"), DropColumn("b")),
    "RENAME COLUMN s.x TO w": (RenameColumn("s.x", "w"),),
    "ALTER COLUMN a TYPE bigint": (WidenColumn("a", pa.int64()),),
    "ALTER COLUMN a TYPE varchar(9)": (WidenColumn("a", pa.string()),),
    "CHANGE COLUMN a a bigint": (WidenColumn("a", pa.int64()),),
    "CHANGE COLUMN a b bigint COMMENT 'hi'": (
        WidenColumn("a", pa.int64()),
        CommentColumn("a", "hi"),
        RenameColumn("a", "b"),
    ),
    "ALTER COLUMN a COMMENT 'hi'": (CommentColumn("a", "hi"),),
    "ALTER COLUMN a DROP NOT NULL": (AllowNull("a"),),
    "ALTER COLUMN a SET DEFAULT 5": (DefaultColumn("a", "5"),),
    "ALTER COLUMN a DROP DEFAULT": (DefaultColumn("a", None),),
    "ALTER COLUMN `a` FIRST": (MoveColumn("a", ""),),
    "alter column s.a after b": (MoveColumn("s.a", "b"),),
}


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_what_spark_calls_a_change_of_columns_is_one(text: str) -> None:
    assert parse_steps(text) == UNDERSTOOD[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "ADD COLUMN a",
        "ADD COLUMN a foo",
        "ADD COLUMN a int DEFAULT rand()",
        "ADD COLUMN a int; DROP COLUMN b",
        "ADD PARTITION (x = 1)",
        "DROP COLUMN IF EXISTS a",
        "RENAME TO other",
        "SET TBLPROPERTIES ('a' = 'b')",
        "ALTER COLUMN a TYPE bigint USING a + 1",
        "ALTER COLUMN a TYPE bigint COMMENT 'x'",
        "ALTER COLUMN a TYPE string COLLATE UTF8_LCASE",
        "ALTER COLUMN a SET DEFAULT 1 COMMENT 'x'",
        "ADD COLUMN a int DEFAULT 1 DEFAULT 2",
        "ADD COLUMN a int COMMENT 'x' COMMENT 'y'",
        "ADD COLUMN a int NOT NULL NULL",
        "ADD COLUMN a int DEFAULT -TRUE",
        "ADD COLUMN a string DEFAULT -'x'",
        "ADD COLUMN a int USING b",
        "ADD COLUMN a int AFTER b.c",
        "ADD COLUMN IF NOT EXISTS a int",
        "ADD COLUMN a int, ADD COLUMN b int GENERATED ALWAYS AS (c)",
        "DROP COLUMN a CASCADE",
        "RENAME COLUMN IF EXISTS a TO b",
        "RENAME COLUMN a TO b.c",
        "CHANGE COLUMN a b.c bigint",
        "ADD COLUMN a " + "array<" * 600 + "int" + ">" * 600,
    ],
)
def test_any_other_text_is_refused_with_what_is_supported(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_steps(text)
    assert caught.value.hint
    assert not caplog.records
