"""In every clause of a merge an alias is the side, whatever columns are called."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import Delete, Insert, Update
from plait.errors import PredicateError
from tests.support.build import make

_PLAIN = "x"
_PART = pa.struct([("a", pa.int64()), ("b", pa.int64())])
_KINDS = {"bigint": pa.int64(), "struct<a: bigint, b: bigint>": _PART}


def _values(kind: pa.DataType, *numbers: int) -> pa.Array:
    if pa.types.is_struct(kind):
        return pa.array([{"a": n, "b": -n} for n in numbers], kind)
    return pa.array(numbers, kind)


def _merged(name: str, ddl: str, table_type: str, *, sourced: bool) -> list[list[object]]:
    """Run a merge of every clause with a column of some name, and return the rows by position."""
    kind = _KINDS[ddl]
    columns = f"id bigint, a bigint, `{name}` {ddl}"
    table = make(columns, table_type=table_type)
    known = {"id": [1, 2, 3, 4], "a": [10, 20, 30, 40], name: _values(kind, 1, 2, 3, 4)}
    table.upsert(pa.table(known))
    source = {"id": [1, 2, 5, 6], "a": [100, 200, 500, 600]}
    if sourced:
        source[name] = _values(kind, 7, 8, 9, 6)
    table.merge(
        pa.table(source),
        matched=[Delete(when="s.a = 200 AND t.a = 20"), Update({"a": "s.a + t.a"})],
        not_matched=[Insert({"id": "S.id", "a": "source.a + 1"}, when="s.a < 600")],
        not_matched_by_source=[Delete(when="t.a = 30"), Update({"a": "target.a + 2"})],
    )
    found = table.scan().to_arrow().sort_by("id")
    return [column.to_pylist() for column in found.columns]


@pytest.mark.long(8)
@pytest.mark.parametrize("sourced", [True, False], ids=["both", "table"])
@pytest.mark.parametrize("ddl", _KINDS)
@pytest.mark.parametrize("name", ["s", "t", "S", "T", "source", "target"])
def test_an_alias_means_its_side_in_every_clause_whatever_columns_there_are(
    name: str, ddl: str, sourced: bool
) -> None:
    for table_type in ("cow", "mor"):
        expected = _merged(_PLAIN, ddl, table_type, sourced=sourced)
        assert _merged(name, ddl, table_type, sourced=sourced) == expected
    assert expected[1] == [110, 42, 501]


@pytest.mark.parametrize("name", ["s", "t", "source", "target"])
def test_a_column_that_is_called_like_an_alias_is_reached_behind_one(name: str) -> None:
    columns = f"id bigint, a bigint, `{name}` struct<a: bigint, b: bigint>"
    table = make(columns)
    table.upsert(pa.table({"id": [1, 3], "a": [0, 0], name: _values(_PART, 5, 6)}))
    source = pa.table({"id": [1, 2], "a": [0, 0], name: _values(_PART, 70, 80)})
    table.merge(
        source,
        matched=[Update({"a": f"t.{name}.a + s.{name}.b"})],
        not_matched=[Insert({"a": f"s.{name}.b"})],
        not_matched_by_source=[Update({"a": f"t.{name}.b"})],
    )
    found = {row["id"]: row["a"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {1: 5 - 70, 2: -80, 3: -6}


@pytest.mark.parametrize(
    ("clause", "way"),
    [
        ({"matched": Update({"a": "s.b"})}, "t.s.b"),
        ({"matched": Update({"a": "t.b"})}, "s.t.b"),
        ({"not_matched": Insert({"a": "t.b"})}, "s.t.b"),
        ({"not_matched_by_source": Update({"a": "s.b"})}, "t.s.b"),
    ],
)
def test_the_error_for_what_an_alias_lacks_names_the_way_to_the_column(
    clause: dict[str, Update | Insert], way: str
) -> None:
    table = make("id bigint, a bigint, s struct<b: bigint>")
    source = pa.table({"id": [1], "t": pa.array([{"b": 1}])})
    with pytest.raises(PredicateError) as told:
        table.merge(source, **clause)
    assert way in told.value.hint
    assert table.version == 0


def test_outside_of_a_merge_a_column_is_meant_before_an_alias() -> None:
    table = make("id bigint, a bigint, t struct<a: int>", record_key=())
    table.append(pa.table({"id": [1, 2], "a": [5, 6], "t": [{"a": 7}, {"a": 8}]}))
    assert table.scan(where="t.a = 7").to_arrow()["id"].to_pylist() == [1]
    table.update({"a": "t.a"}, where="id = 1")
    assert sorted(table.scan().to_arrow()["a"].to_pylist()) == [6, 7]
