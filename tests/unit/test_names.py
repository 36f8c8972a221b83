"""A text is one name wherever names are taken, and the names of change reads are kept free."""

from __future__ import annotations

import functools
import itertools

import pyarrow as pa
import pytest

from plait import Insert, OptionError, SchemaError, SchemaMismatchError, Table, Update

NUMBERS = itertools.count()


def place() -> str:
    return f"memory://names-{next(NUMBERS)}"


def test_a_text_is_one_column_and_is_refused_whole_if_it_is_none() -> None:
    """Its letters are columns."""
    ddl = "i bigint, d bigint, id bigint, day string"
    table = Table.create(place(), ddl, record_key="id", partition_by="day", ordering="i")
    spec = table._handle.cache.known().table.spec
    assert (spec.key, spec.layout.partition_by, spec.layout.ordering) == (("id",), ("day",), "i")
    for use in ("record_key", "partition_by"):
        with pytest.raises(SchemaMismatchError, match="'id'"):
            Table.create(place(), "i bigint, d bigint", **{use: "id"})
    with pytest.raises(OptionError, match="ordering takes one column, not 2"):
        Table.create(place(), "a int, b int", record_key="a", ordering=["a", "b"])  # type: ignore[arg-type]


def test_columns_in_one_text_are_one_column() -> None:
    table = Table.create(place(), "id bigint, i bigint, d bigint", record_key="id")
    table.insert(pa.table({"id": [1], "i": [2], "d": [3]}))
    assert table.scan("id").to_arrow().column_names == ["id"]
    assert table.snapshot().scan("id").to_arrow().column_names == ["id"]
    assert table.changes(0, columns="id").to_arrow().column_names[0] == "id"
    only = table.changes(0, columns="_change_type").to_arrow()
    assert only.column_names == ["_change_type"]
    with table.transaction() as tx:
        assert tx.scan("id").to_arrow().column_names == ["id"]


def test_a_merge_takes_its_key_as_one_text_and_one_clause_alone() -> None:
    table = Table.create(place(), "id bigint, v bigint", record_key="id")
    rows = pa.table({"id": [1], "v": [2]})
    table.merge(rows, on="id", matched=Update(), not_matched=Insert())
    with pytest.raises(OptionError, match="'v'"):
        table.merge(rows, on="v", matched=Update())
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 2}]


@pytest.mark.parametrize("given", [7, b"id", [7], {"id": 1, 2: 3}])
def test_what_is_no_name_is_refused(given: object) -> None:
    with pytest.raises(OptionError, match="record_key takes a name"):
        Table.create(place(), "id bigint", record_key=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"a", "b"}, frozenset("a")])
def test_names_without_an_order_are_refused(given: object) -> None:
    """The order of a key is that of its files, and differed from run to run."""
    uri = place()
    with pytest.raises(OptionError, match="record_key needs ordered names") as caught:
        Table.create(uri, "a int, b int", record_key=given)  # type: ignore[arg-type]
    assert "record_key=['a'" in caught.value.hint
    with pytest.raises(OptionError, match="partition_by needs ordered names"):
        Table.create(uri, "a int, b int", record_key="a", partition_by=given)  # type: ignore[arg-type]
    table = Table.create(uri, "a int, b int", record_key={"a": 1, "b": 2}.keys())
    for read in (table.scan, functools.partial(table.changes, 0)):
        with pytest.raises(OptionError, match="columns needs ordered names"):
            read(columns=given)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "name", ["_change_type", "_commit_version", "_commit_timestamp", "_Change_Type"]
)
def test_the_names_of_change_reads_are_refused_at_create(name: str) -> None:
    uri = place()
    with pytest.raises(SchemaError, match=name) as error:
        Table.create(uri, f"id bigint, {name} string", record_key="id")
    assert error.value.column == name
    assert Table.create(uri, "id bigint", record_key="id").changes(0).to_arrow().num_rows == 0
