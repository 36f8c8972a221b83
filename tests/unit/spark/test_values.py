"""Fields that differ, names that nothing has, and no SQL text for Spark: what needs no Spark."""

from __future__ import annotations

import ast
from pathlib import Path

import pyarrow as pa
import pytest

import plait.spark
from plait.model.schema import FIELD_ID
from plait.spark.values import aliases_of, unchanged

ROOM = Path(plait.spark.__file__).parent
TAKE_TEXT = {"expr", "selectExpr", "sql"}
"""Methods that parse SQL."""
MAY_TAKE_TEXT = {"where", "filter", "cast", "try_cast", "schema", "createDataFrame", "agg"}
"""Methods that parse a text, and take other things too."""
ALLOWED = {("values.py", "expr")}
"""Predicates, whose text has one meaning (``expr/spark_sql.py``)."""


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number)})


def struct(*members: pa.Field) -> pa.Field:
    return field("s", pa.struct(list(members)), 9)


A, B = field("a", pa.int32(), 1), field("b", pa.int32(), 2)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(struct(field("a", pa.int32(), 3), B), id="a namesake of a dropped member"),
        pytest.param(struct(B, A), id="another order"),
        pytest.param(struct(A.with_name("b"), B.with_name("a")), id="names swapped"),
        pytest.param(struct(A, B, field("c", pa.int32(), 3)), id="one more"),
        pytest.param(struct(A.with_type(pa.int64()), B), id="a wider one"),
    ],
)
def test_a_struct_is_unchanged_only_with_the_same_members_in_the_same_order(
    other: pa.Field,
) -> None:
    mine = struct(A, B)
    assert unchanged(mine, struct(A, B))
    assert unchanged(mine, struct(A, B.with_nullable(nullable=False)))
    key = field("key", pa.string(), 10).with_nullable(nullable=False)
    deep = [pa.list_, lambda item: pa.map_(key, item)]
    for around in (lambda item: item.type, *deep):
        there = field("c", around(mine), 11), field("c", around(other), 11)
        assert not unchanged(*there)
        assert unchanged(there[1], there[1])


def test_an_alias_is_the_name_of_no_column() -> None:
    aliases = aliases_of([("a",), ("a", "b"), ("a",)], ["id", "__PLAIT_0", "__plait__1"])
    assert list(aliases) == [("a",), ("a", "b")]
    assert len(set(aliases.values())) == len(aliases)
    assert all(name.startswith("__plait___") for name in aliases.values())


@pytest.mark.parametrize("module", sorted(ROOM.glob("*.py")), ids=lambda path: path.name)
def test_spark_gets_columns_and_no_sql_text(module: Path) -> None:
    """What a text means is for the settings of a session to say."""
    found = []
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        text = any(
            isinstance(each, ast.JoinedStr)
            or (isinstance(each, ast.Constant) and isinstance(each.value, str))
            for each in node.args
        )
        if name in TAKE_TEXT or (name in MAY_TAKE_TEXT and text):
            found.append((module.name, name))
    assert set(found) <= ALLOWED | {("session.py", "createDataFrame")}
