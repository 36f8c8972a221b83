"""Paths of columns whose names have dots and backticks."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait import SchemaError, Table
from plait.model.steps import column_path, path_parts
from tests.support.memory import forget

URI = "memory://column-paths"
SCHEMA = pa.schema([("id", pa.int64()), ("a.b", pa.int32()), ("a", pa.struct([("b", pa.int32())]))])


@given(st.lists(st.text(min_size=1), min_size=1))
def test_a_path_says_its_names_again_whatever_they_contain(names: list[str]) -> None:
    assert path_parts(column_path(names)) == tuple(names)


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "`a", "`a`b", "a`b", "``"])
def test_a_text_that_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(SchemaError, match="not a path"):
        path_parts(path)


def test_a_column_with_a_dot_is_not_taken_for_a_part_of_another() -> None:
    """INV-04: what is brought or changed is the column that was meant."""
    forget(URI)
    table = Table.create(URI, SCHEMA, record_key="id")
    table.alter.columns().widen("`a.b`", "bigint").commit()
    wider = table.schema
    assert (wider.field("a.b").type, wider.field("a").type) == (pa.int64(), SCHEMA.field("a").type)
    row = {"id": 1, "a.b": 2**40, "a": {"b": 3, "c.d": "n"}, "a.c": "k"}
    table.upsert(pa.Table.from_pylist([row]), evolve="add")
    assert table.scan().to_arrow().to_pylist() == [row]
    table.alter.columns().sql("RENAME COLUMN `a.c` TO z").rename("a.`c.d`", "e").commit()
    assert table.scan().to_arrow().to_pylist() == [
        {"id": 1, "a.b": 2**40, "a": {"b": 3, "e": "n"}, "z": "k"}
    ]
    table.alter.columns().drop("`a.b`").commit()
    assert table.schema.names == ["id", "a", "z"]
