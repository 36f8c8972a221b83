"""A text that is not UTF-8 is refused wherever it comes from: Arrow takes any bytes for one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import Table, Update
from plait.errors import BadRecordError, PredicateError, SchemaError
from tests.support.build import make

COLUMNS = "id bigint, x string, s struct<a:string>, l array<string>, m map<string,string>"


def strange(count: int = 1) -> pa.Array:
    buffers = [None, pa.array([2 * n for n in range(count + 1)], pa.int32()).buffers()[1]]
    return pa.Array.from_buffers(pa.string(), count, [*buffers, pa.py_buffer(b"\xff\xfe" * count)])


OFFSETS = pa.array([0, 1], pa.int32())
GIVEN: dict[str, dict[str, pa.Array]] = {
    "x": {"x": strange()},
    "dictionary": {"x": strange().dictionary_encode()},
    "s": {"s": pa.StructArray.from_arrays([strange()], names=["a"])},
    "l": {"l": pa.ListArray.from_arrays(OFFSETS, strange())},
    "m": {"m": pa.MapArray.from_arrays(OFFSETS, pa.array(["k"]), strange())},
    "key of m": {"m": pa.MapArray.from_arrays(OFFSETS, strange(), pa.array(["k"]))},
}


def made(table_type: str = "cow") -> Table:
    table = make(COLUMNS, buckets=1, table_type=table_type)
    table.upsert(pa.table({"id": [1]}), missing_columns="keep")
    return table


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_with_a_text_that_is_none_are_refused_before_anything_is_written(
    table_type: str, given: str
) -> None:
    table = made(table_type)
    rows = pa.table({"id": [7], **GIVEN[given]})
    for act in (
        lambda: table.upsert(rows, missing_columns="keep"),
        lambda: table.append(rows),
        lambda: table.merge(rows, matched=[Update()]),
        lambda: table.append(rows.to_reader()),
    ):
        with pytest.raises((BadRecordError, SchemaError)) as caught:
            act()
        assert str(caught.value)
    assert table.version == 1
    assert table.scan().count() == 1


def test_a_record_key_that_is_no_text_is_refused() -> None:
    table = make("k string, v bigint", record_key="k", partition_by="k")
    with pytest.raises(BadRecordError):
        table.upsert(pa.table({"k": strange(), "v": [1]}))
    with pytest.raises(BadRecordError):
        table.delete(keys=pa.table({"k": strange()}))
    assert table.version == 0


ASKED: dict[str, Callable[[Table, pa.Scalar], object]] = {
    "update": lambda t, text: t.update({"x": text}),
    "merge": lambda t, text: t.merge(pa.table({"id": [1]}), matched=[Update({"x": text})]),
    "default": lambda t, text: t.alter.columns().default("x", text).commit(),
    "added": lambda t, text: t.alter.columns().add("y", "string", default=text).commit(),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_value_that_is_no_text_is_refused(asked: str) -> None:
    table = made()
    with pytest.raises((PredicateError, SchemaError)):
        ASKED[asked](table, strange()[0])
    assert table.version == 1


def test_a_predicate_with_a_text_that_is_none_finds_nothing() -> None:
    assert made().scan(where=pc.field("x") == strange()[0]).count() == 0


@pytest.mark.parametrize("column", ["s", "l", "m"])
def test_the_row_with_the_text_is_named(column: str) -> None:
    """Rows that share memory with it are right."""
    kind = made().scan().to_arrow().schema.field(column).type
    good = {"s": {"a": "x"}, "l": ["x"], "m": [("k", "x")]}[column]
    values = pa.concat_arrays(
        [
            pa.array([good] * 5, kind),
            GIVEN[column][column].cast(kind),
            pa.array([good] * 5, kind),
        ]
    )
    with pytest.raises(BadRecordError) as caught:
        made().append(pa.table({"id": range(10, 21), column: values}))
    assert caught.value.sample["id"] == "15"
    assert made().append(pa.table({"id": range(10, 15), column: values.slice(0, 5)})).version == 2
