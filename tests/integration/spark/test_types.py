"""Every type that Spark and Parquet share, through every way in and out."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from plait import Table
from plait.files.hash import bucket_of, key_hashes
from plait.model.schema import Schema
from plait.spark.frame import arrow_schema
from plait.spark.values import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = """id bigint, flag boolean, i8 tinyint, i16 smallint, i32 int, f32 float, f64 double,
text string, body binary, day date, at timestamp, wall timestamp_ntz, small decimal(9,2),
large decimal(38,10), point struct<x:int,y:struct<z:string,w:decimal(5,1)>>, list array<int>,
deep array<struct<k:string,v:array<double>>>, map map<string,array<timestamp>>"""

UTC = dt.UTC
ROWS: list[dict[str, object]] = [
    {
        "id": 1,
        "flag": True,
        "i8": -128,
        "i16": 32767,
        "i32": -(1 << 31),
        "f32": 1.5,
        "f64": 1e300,
        "text": "žluťoučký \U0001f40e \x00",
        "body": b"\x00\xff",
        "day": dt.date(1, 1, 1),
        "at": dt.datetime(1582, 10, 4, 23, 59, 59, 999999, UTC),
        "wall": dt.datetime.fromisoformat("9999-12-31T23:59:59.999999"),
        "small": Decimal("-1234567.89"),
        "large": Decimal("1234567890123456789012345678.0123456789"),
        "point": {"x": 1, "y": {"z": "a", "w": Decimal("1.5")}},
        "list": [1, None, 3],
        "deep": [{"k": "a", "v": [1.0, None]}, None, {"k": None, "v": []}],
        "map": [("a", [dt.datetime(2026, 1, 31, 12, 0, 0, 1, UTC), None]), ("b", None)],
    },
    {
        "id": 2,
        "f32": float("inf"),
        "f64": -0.0,
        "text": "",
        "body": b"",
        "day": dt.date(9999, 12, 31),
        "at": dt.datetime(1900, 1, 1, tzinfo=UTC),
        "wall": dt.datetime.fromisoformat("0001-01-01T00:00:00"),
        "small": Decimal("0.00"),
        "point": {"x": None, "y": None},
        "list": [],
        "deep": [],
        "map": [],
    },
    {"id": 3, "point": {"x": 7, "y": {"z": None, "w": None}}},
]


@pytest.fixture(scope="module")
def data() -> pa.Table:
    plain = Schema.create(Table.create("memory://types", DDL).schema).arrow
    schema = pa.schema([field.remove_metadata() for field in plain])
    return pa.Table.from_pylist(ROWS, schema=schema)


def same(found: pa.Table, data: pa.Table) -> None:
    assert found.sort_by("id").to_pylist() == data.to_pylist()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_type_goes_in_and_out_unchanged(
    spark: SparkSession, tmp_path: Path, data: pa.Table, kind: str
) -> None:
    """The writer and the data source write it; Arrow, Parquet scan and data source read it."""
    frame = spark.createDataFrame(data, spark_schema(data.schema))
    for way in ("writer", "source"):
        place = str(tmp_path / way)
        table = Table.create(place, DDL, record_key=["id"], table_type=kind, buckets=2)
        if way == "writer":
            table.append(frame)
            table.upsert(frame)
        else:
            saved = frame.write.format("plait").mode("append")
            saved.save(place)
            saved.option("operation", "upsert").save(place)
        same(table.scan().to_arrow(), data)
        read = table.scan().to_spark(spark)
        same(pa.Table.from_batches(read.toArrow().cast(data.schema).to_batches()), data)
        source = spark.read.format("plait").load(place)
        assert source.schema == read.schema
        same(source.toArrow().cast(data.schema), data)


def test_times_are_exact_in_any_session_zone(
    spark: SparkSession, tmp_path: Path, data: pa.Table
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        table = Table.create(str(tmp_path / "t"), DDL, record_key=["id"], buckets=1)
        table.append(spark.createDataFrame(data, spark_schema(data.schema)))
        same(table.scan().to_arrow(), data)
        found = table.scan().to_spark(spark).selectExpr("unix_micros(at) us", "id").sort("id")
        micros = data["at"].cast(pa.int64()).to_pylist()
        assert [row.us for row in found.collect()] == micros
        source = spark.read.format("plait").load(str(tmp_path / "t")).sort("id")
        assert [r.us for r in source.selectExpr("unix_micros(at) us").collect()] == micros
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


KEYS = ["flag", "i8", "i16", "i32", "id", "text", "body", "day", "at", "wall", "small", "large"]


def test_spark_and_arrow_agree_on_every_bucket(spark: SparkSession, data: pa.Table) -> None:
    """For a key of each type, and for one of all of them; in one query."""
    keys = [*([name] for name in KEYS), KEYS]
    terms = [f"xxhash64({', '.join(columns)})" for columns in keys]
    terms += [f"int(pmod({term}, 7))" for term in terms]
    rows = spark.createDataFrame(data, spark_schema(data.schema))
    found = rows.selectExpr(*terms).toArrow().columns
    for columns, hashes, buckets in zip(keys, found[: len(keys)], found[len(keys) :], strict=True):
        ours = key_hashes(data, columns)
        assert hashes.to_pylist() == ours.view(np.int64).tolist(), columns
        assert buckets.to_pylist() == bucket_of(ours, 7).tolist(), columns


@pytest.mark.parametrize("kind", ["struct", "ddl", "arrow"])
def test_tables_are_created_from_spark_schemas(
    spark: SparkSession, tmp_path: Path, data: pa.Table, kind: str
) -> None:
    frame = spark.createDataFrame(data, spark_schema(data.schema))
    schemas = {"struct": frame.schema, "ddl": DDL, "arrow": arrow_schema(frame.schema)}
    table = Table.create(str(tmp_path / "t"), schemas[kind])
    assert Schema.create(table.schema).arrow.names == data.schema.names
    assert table.scan().to_spark(spark).schema.simpleString() == frame.schema.simpleString()
