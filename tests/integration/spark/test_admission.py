"""What a column of Spark may be: one answer for a schema and for rows of every writer."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from plait import Insert, Table, Update
from plait.errors import SchemaError, TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
_NAMES = itertools.count()

REFUSED = {
    "void": "null",
    "years": "interval '1-2' year to month",
    "days": "interval '1' day",
    "variant": "parse_json('{\"a\":1}')",
    "time": "time'12:00:00'",
    "collation": "'ab' collate UTF8_LCASE",
    "void in a struct": "named_struct('a', null)",
    "empty array": "array()",
    "empty map": "map()",
    "variant in an array": "array(parse_json('1'))",
    "collation in a map": "map('a', 'ab' collate UNICODE)",
    "collation in a struct": "named_struct('a', 'ab' collate UTF8_LCASE)",
    "names by case": "named_struct('a', 1, 'A', 2)",
}
TAKEN = {
    "char": "cast('ab' as char(5))",
    "varchar": "cast('ab' as varchar(5))",
    "decimal": "cast(1.5 as decimal(38,10))",
    "binary": "X'00ff'",
    "nested": "array(named_struct('a', map('k', array(1Y))))",
}


def _frame(spark: SparkSession, text: str) -> DataFrame:
    return spark.sql(f"select 1L id, {text} c").coalesce(1)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path)


def _table(place: str, schema: object, **definition: object) -> Table:
    return Table.create(f"{place}/{next(_NAMES)}", schema, **definition)  # type: ignore[arg-type]


def test_a_type_that_no_column_has_is_refused_of_schemas_and_of_rows(
    spark: SparkSession, place: str
) -> None:
    columns = "id bigint, c string, s struct<a: string>, m map<string, string>"
    for name, text in REFUSED.items():
        frame = _frame(spark, text)
        with pytest.raises(SchemaError):
            _table(place, frame.schema)
        table = _table(place, "id bigint", record_key="id")
        for write in (table.append, table.upsert):
            with pytest.raises(SchemaError):
                write(frame, evolve="add")
        assert table.version == 0, name
        if name in ("void", "empty array", "empty map", "void in a struct"):
            continue  # their rows fit every column of that shape
        with pytest.raises(TableError):
            table.merge(frame, not_matched=Insert())
        table = _table(place, columns, record_key="id")
        with pytest.raises(SchemaError):
            table.append(frame)
        with pytest.raises(Exception, match="column"):
            frame.write.format("plait").mode("append").save(table._handle.store.address.uri)
        assert table.version == 0, name


def test_a_type_that_a_column_has_is_taken_of_schemas_and_of_rows(
    spark: SparkSession, place: str
) -> None:
    for text in TAKEN.values():
        frame = _frame(spark, text)
        table = _table(place, frame.schema, record_key="id")
        table.append(frame)
        frame.selectExpr("id + 1 id", "c").write.format("plait").mode("append").save(
            table._handle.store.address.uri
        )
        table.merge(frame, matched=Update({"c": "s.c"}), not_matched=Insert())
        other = _table(place, "id bigint")
        other.append(frame, evolve="add")
        expected = other.scan().to_arrow()["c"].to_pylist()
        assert table.scan().to_arrow()["c"].to_pylist() == expected * 2


def test_coded_texts_and_odd_types_of_arrow_are_read_by_spark(
    spark: SparkSession, place: str
) -> None:
    value = pa.array([2**64 - 1], pa.uint64())
    rows = pa.table(
        {
            "id": [1],
            "d": pa.array(["a"]).dictionary_encode(),
            "s": pa.StructArray.from_arrays([value], ["m"]),
            "l": pa.array([[1]], pa.list_view(pa.int8())),
        }
    )
    table = _table(place, rows.schema)
    table.append(rows)
    (row,) = table.scan().to_spark(spark).collect()
    assert (row.d, int(row.s.m), row.l) == ("a", 2**64 - 1, [1])
