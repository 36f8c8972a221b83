"""Partition fields in Spark SQL: the same values as ``files/partition_values.py`` computes."""

from __future__ import annotations

import pyarrow as pa

from plait.model.partitioning import BUCKET, TRUNCATE, PartitionField

_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
_FIRST_DAY = {"year": "trunc({}, 'YEAR')", "month": "trunc({}, 'MM')", "day": "{}"}


def field_sql(field: PartitionField, source: str, kind: pa.DataType) -> str | None:
    """Return the value of a field; None if Spark SQL cannot compute it.

    Args:
        field: what is computed.
        source: its column in SQL, in the table's type.
        kind: this type.
    """
    if field.is_column:
        return source
    if field.transform == BUCKET:
        return f"if({source} IS NULL, NULL, cast(pmod(xxhash64({source}), {field.size}L) AS int))"
    if field.transform == TRUNCATE:
        return _truncated(field.size, source, kind)
    if field.is_custom:
        return None
    if pa.types.is_date32(kind):
        return _FIRST_DAY[field.transform].format(source)
    if kind.tz is None:
        day = f"cast({source} AS date)"
        return None if field.transform == "hour" else _FIRST_DAY[field.transform].format(day)
    micros = f"unix_micros({source})"
    if field.transform == "hour":
        least = f"cast('{-(1 << 63)}' AS bigint)"
        rest = f"pmod({micros}, {_HOUR_US}L)"
        return f"timestamp_micros(if({micros} < {least} + {rest}, {least}, {micros} - {rest}))"
    before = f"if({micros} < 0 AND pmod({micros}, {_DAY_US}L) <> 0, 1, 0)"
    day = f"date_from_unix_date(cast(({micros} DIV {_DAY_US}L) - {before} AS int))"
    return _FIRST_DAY[field.transform].format(day)


def _truncated(width: int, source: str, kind: pa.DataType) -> str:
    if pa.types.is_string(kind):
        return f"left({source}, {width})"
    if pa.types.is_binary(kind):
        return f"substring({source}, 1, {width})"
    least = f"cast('{-(1 << (kind.bit_width - 1))}' AS bigint)"
    number = f"cast({source} AS bigint)"
    rest = f"pmod({number}, {width}L)"
    return f"if({number} < {least} + {rest}, {least}, {number} - {rest})"
