"""Generated columns have the same values whether Arrow or Spark brings the rows (RFC 0031)."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from plait import ConstraintError, Insert, OptionError, Table, Update
from plait.model.partitioning import parse_field
from plait.model.schema import plain_type
from plait.spark.route import field_value, has_value
from plait.spark.values import Values, spark_schema, spark_type

pytestmark = pytest.mark.spark

DDL = (
    "id bigint, at timestamp, local timestamp_ntz, name string, price decimal(9,2), n int, x double"
)
RULES = {
    "y": ("date", "year(at)"),
    "m": ("date", "month(local)"),
    "d": ("date", "day(at)"),
    "h": ("timestamp", "hour(at)"),
    "b": ("int", "bucket(7, name)"),
    "c": ("bigint", "truncate(10, id)"),
    "t": ("string", "truncate(3, name)"),
    "text": ("string", "concat(substring(trim(name), 2, 7), '-', CAST(n AS string))"),
    "share": (
        "decimal(12,4)",
        "CASE WHEN n > 0 THEN CAST(price / CAST(n AS decimal(5,0)) AS decimal(12,4)) END",
    ),
    "cost": ("decimal(12,2)", "CAST(price * n AS decimal(12,2))"),
    "sum": ("bigint", "id + coalesce(n, 0) * 2"),
    "ratio": ("double", "CASE WHEN n = 0 THEN NULL ELSE x / n END"),
    "big": ("boolean", "n > 3 AND name IS NOT NULL"),
    "near": ("int", "CAST(x AS int)"),
    "most": ("double", "greatest(x, 0.5e0)"),
}
TRANSFORMS = ("y", "m", "d", "h", "b", "c", "t")
BEGIN = dt.datetime(1969, 12, 28, 22, 30, tzinfo=dt.UTC)
COUNT = 60
KINDS = {
    "id": pa.int64(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "name": pa.string(),
    "price": pa.decimal128(9, 2),
    "n": pa.int32(),
    "x": pa.float64(),
}


def rows() -> pa.Table:
    moments = [BEGIN + dt.timedelta(hours=7 * n, microseconds=n) for n in range(COUNT)]
    columns = {
        "id": [n * 3 - 50 for n in range(COUNT)],
        "at": [None if n % 13 == 5 else each for n, each in enumerate(moments)],
        "local": [each.replace(tzinfo=None) for each in moments],
        "name": [None if n % 11 == 3 else f" Straße {'é' * (n % 4)}{n}" for n in range(COUNT)],
        "price": [None if n % 7 == 6 else f"{n * 37 % 100}.{n % 100:02}" for n in range(COUNT)],
        "n": [None if n % 17 == 9 else n % 9 - 2 for n in range(COUNT)],
        "x": [0.1 * n - 2.75 for n in range(COUNT)],
    }
    prices = pa.array(columns.pop("price"), pa.string()).cast(KINDS["price"])
    arrays = {name: pa.array(values, KINDS[name]) for name, values in columns.items()}
    return pa.table([(arrays | {"price": prices})[name] for name in KINDS], names=list(KINDS))


def make(place: Path, **how: object) -> Table:
    ddl = DDL + "".join(f", {name} {kind}" for name, (kind, _) in RULES.items())
    generated = {name: text for name, (_, text) in RULES.items()}
    asked: dict[str, object] = {"record_key": "id", "partition_by": "d", "buckets": 2, **how}
    return Table.create(str(place), ddl, generated=generated, **asked)  # type: ignore[arg-type]  # of several tests


def framed(spark: SparkSession, data: pa.Table) -> DataFrame:
    return spark.createDataFrame(data, schema=spark_schema(data.schema))


def by_id(found: pa.Table) -> pa.Table:
    return found.sort_by("id").combine_chunks()


def _saved(table: Table, data: DataFrame | pa.Table) -> None:
    if isinstance(data, pa.Table):
        table.append(data)
    else:
        data.write.format("plait").mode("append").save(str(table.inspect.describe()["uri"]))


WRITES: dict[str, Callable[[Table, DataFrame | pa.Table], object]] = {
    "append": lambda table, data: table.append(data),
    "upsert": lambda table, data: table.upsert(data),
    "overwrite": lambda table, data: table.overwrite(data),
    "merge": lambda table, data: table.merge(data, matched=[Update()], not_matched=[Insert()]),
    "df.write": _saved,
}


@pytest.mark.long(1)
@pytest.mark.parametrize("name", WRITES)
def test_arrow_and_spark_compute_the_same_values(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """INV-04: the bytes of a row do not say which engine brought it."""
    given, by_arrow, by_spark = rows(), make(tmp_path / "a"), make(tmp_path / "s")
    WRITES[name](by_arrow, given)
    WRITES[name](by_spark, framed(spark, given))
    one, other = (by_id(table.scan().to_arrow()) for table in (by_arrow, by_spark))
    assert one.equals(other)
    assert one.num_rows == COUNT
    for column in RULES:
        assert one[column].null_count < COUNT, column
    for table in (by_arrow, by_spark):
        assert not table.check.verify(data=True).problems
    where = "d = DATE '1970-01-02'"
    assert by_spark.scan(where=where).to_spark(spark).count() == by_arrow.scan(where=where).count()


def test_spark_sql_computes_the_same_values_of_what_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    """People compare with what their own queries compute."""
    table = make(tmp_path / "t")
    table.append(rows())
    frame = table.scan().to_spark(spark)
    values, differing = Values.of(frame), []
    for name, (kind, text) in RULES.items():
        if name in TRANSFORMS:
            field = parse_field(text)
            (source,) = field.sources
            assert has_value(field, KINDS[source])
            computed = field_value(values, field, values.column(source), KINDS[source])
        else:
            computed = values.functions.expr(text)
        computed = computed.cast(spark_type(plain_type(kind)))
        differing.append((~values.column(name).eqNullSafe(computed)).alias(name))
    found = frame.select(differing).toArrow()
    assert found.num_rows == COUNT
    assert {name for name in RULES if pc.any(found[name]).as_py()} == set()


def test_a_frame_with_another_value_is_refused_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """INV-03."""
    table = make(tmp_path / "t")
    table.append(rows().slice(0, 10))
    before = by_id(table.scan().to_arrow())
    frame = framed(spark, rows())
    wrong = itertools.cycle(("'no' AS text", "id AS sum"))
    for write, bad in zip(WRITES.values(), wrong, strict=False):
        with pytest.raises(Exception, match="GENERATED"):
            write(table, frame.selectExpr("*", bad))
    with pytest.raises(ConstraintError):
        table.upsert(frame.selectExpr("*", "id AS sum"))
    assert by_id(table.scan().to_arrow()).equals(before)
    partly = frame.selectExpr("*", "CASE WHEN id < 20 THEN id + coalesce(n, 0) * 2 END AS sum")
    with ExitStack() as stack:
        writer = stack.enter_context(table.writer("upsert"))
        writer.write(partly)
        writer.write(framed(spark, rows().slice(0, 3)))
    plain = make(tmp_path / "p")
    plain.append(rows())
    assert by_id(table.scan().to_arrow()).equals(by_id(plain.scan().to_arrow()))


def test_a_spark_session_updates_and_deletes_by_the_sources(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t")
    table.upsert(framed(spark, rows()))
    source = framed(spark, rows().select(["id", "at", "n"])).selectExpr("id", "at", "n + 1 AS n")
    table.merge(source, matched=[Update({"n": "s.n"})])
    with pytest.raises(OptionError):
        table.merge(source, matched=[Update({"at": "s.at"}, when="s.id > 1")])
    table.delete(keys=source.where("id < 0").select("id", "at"))
    found = table.scan().to_arrow()
    assert found.num_rows == COUNT - 17
    pairs = zip(*(found[name].to_pylist() for name in ("id", "n", "sum")), strict=True)
    assert all(total == number + (n or 0) * 2 for number, n, total in pairs)
    assert not table.check.verify(data=True).problems


def test_a_query_that_streams_computes_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "in"
    framed(spark, rows()).write.parquet(str(place))
    table = make(tmp_path / "t")
    stream = spark.readStream.schema(spark.read.parquet(str(place)).schema).parquet(str(place))
    query = (
        stream.writeStream.format("plait")
        .option("path", str(tmp_path / "t"))
        .option("operation", "upsert")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    plain = make(tmp_path / "p")
    plain.append(rows())
    assert by_id(table.scan().to_arrow()).equals(by_id(plain.scan().to_arrow()))
