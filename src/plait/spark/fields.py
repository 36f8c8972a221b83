"""Partition fields in Spark: the same values as ``files/partition_values.py`` computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from plait.model.partitioning import BUCKET, TRUNCATE, PartitionField
from plait.spark.values import Values, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
_LONG_MIN = -(1 << 63)
_CALENDAR = {"year": "YEAR", "month": "MM"}
_BIGINT, _INT, _DATE = pa.int64(), pa.int32(), pa.date32()


def has_value(field: PartitionField, kind: pa.DataType) -> bool:
    """Tell whether Spark can compute a field of a column of this type."""
    if field.is_column or field.transform in (BUCKET, TRUNCATE):
        return True
    wall_clock = pa.types.is_timestamp(kind) and kind.tz is None
    return not field.is_custom and not (wall_clock and field.transform == "hour")


def field_value(values: Values, field: PartitionField, source: Column, kind: pa.DataType) -> Column:
    """Return the value of a field that has one in Spark.

    Args:
        values: makes columns.
        field: what is computed.
        source: its column, in the table's type.
        kind: this type.
    """
    f = values.functions
    if field.is_column:
        return source
    if field.transform == BUCKET:
        number = f.pmod(f.xxhash64(source), f.lit(field.size)).cast(spark_type(_INT))
        value: Column = f.when(source.isNotNull(), number)
        return value
    if field.transform == TRUNCATE:
        return _truncated(values, field.size, source, kind)
    if pa.types.is_date32(kind):
        return _first_day(values, field, source)
    if kind.tz is None:
        return _first_day(values, field, source.cast(spark_type(_DATE)))
    micros = f.unix_micros(source)
    if field.transform == "hour":
        return _hour(values, micros)
    # In no zone but UTC, so that the days of a session do not matter; rounded down.
    before = f.when((micros < 0) & (f.pmod(micros, f.lit(_DAY_US)) != 0), 1).otherwise(0)
    days = (f.call_function("div", micros, f.lit(_DAY_US)) - before).cast(spark_type(_INT))
    return _first_day(values, field, f.date_from_unix_date(days))


def _hour(values: Values, micros: Column) -> Column:
    f = values.functions
    rest = f.pmod(micros, f.lit(_HOUR_US))
    least = f.lit(_LONG_MIN)
    value: Column = f.timestamp_micros(
        f.when(micros < least + rest, least).otherwise(micros - rest)
    )
    return value


def _first_day(values: Values, field: PartitionField, day: Column) -> Column:
    unit = _CALENDAR.get(field.transform)
    return day if unit is None else values.functions.trunc(day, unit)


def _truncated(values: Values, width: int, source: Column, kind: pa.DataType) -> Column:
    f = values.functions
    value: Column
    if pa.types.is_string(kind):
        value = f.left(source, f.lit(width))
    elif pa.types.is_binary(kind):
        value = f.substring(source, 1, width)
    else:
        least, number = f.lit(-(1 << (kind.bit_width - 1))), source.cast(spark_type(_BIGINT))
        least = least.cast(spark_type(_BIGINT))
        rest = f.pmod(number, f.lit(width).cast(spark_type(_BIGINT)))
        value = f.when(number < least + rest, least).otherwise(number - rest)
    return value
