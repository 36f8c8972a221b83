"""Which task stages which bucket: the same answer in Spark and here.

A table's buckets are divided among a fixed number of tasks, so that each (partition, bucket) has
exactly one: ``pmod(bucket + share of the partition, tasks)``. A few partitions, hashed without
looking, would leave one task with most of the work. So the share is a number that differs between
neighbours: integers and dates as they are, and the CRC of strings, whose low bits differ with the
last digit. Where rows meet files, and some bits of ``xxhash64(partition columns)`` divide their
bytes more evenly, it is those. Rows are sent by the task's number itself
(``repartitionById``): hashing it again would leave some tasks empty.

The values of partition fields are those that ``files/partition_values.py`` computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.cast import apply_or_null
from plait.files.hash import key_hashes
from plait.files.partition_values import values_of
from plait.model.bucket import BucketId, Partition, partition_parse
from plait.model.partitioning import BUCKET, TRUNCATE, PartitionField
from plait.model.plan import TableSpec
from plait.model.value import array_of
from plait.spark.values import Values, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

Numbers = npt.NDArray[np.int64]
_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
_LONG_MIN = -(1 << 63)
_CALENDAR = {"year": "YEAR", "month": "MM"}
_BIGINT, _INT, _DATE = pa.int64(), pa.int32(), pa.date32()


@dataclass(frozen=True, slots=True)
class Route:
    """Divides the buckets of a table among tasks."""

    spec: TableSpec
    tasks: int
    by_partition: bool
    """Off where rows do not name their partition: a bucket number is then one task's everywhere."""
    shift: int | None = None
    """How many low bits of a partition's hash are left out; None for the number in its place."""

    @classmethod
    def plan(
        cls, spec: TableSpec, *, columns: Sequence[str], wanted: int, files: pa.Table
    ) -> Route:
        """Choose the number of tasks, and how partitions are divided among them.

        Args:
            spec: the table's layout.
            columns: what the rows have.
            wanted: the most tasks that are of use.
            files: the table's files (LIVE); none if the table is new.
        """
        named = bool(spec.layout.partition_by) and set(spec.partition_sources) <= set(columns)
        by_partition = named and all(_has_value(spec, each) for each in spec.fields)
        by_partition = by_partition and not spec.unique_in_table  # a key may be in any of them
        count = max(1, spec.layout.buckets.count)
        if not by_partition:
            # Each task gets as many buckets as the others.
            tasks = -(-count // -(-count // max(1, min(wanted, count))))
            return cls(spec, max(1, tasks), by_partition=False)
        if not files.num_rows:
            return cls(spec, max(1, wanted), by_partition=True)
        groups = files.group_by(["partition", "bucket"]).aggregate([("bytes", "sum")])
        tasks = max(1, min(wanted, max(2 * groups.num_rows, _TASKS_SOME)))
        plain = cls(spec, tasks, by_partition=True)
        return replace(plain, shift=plain._even_shift(groups))

    def task(self, values: Values) -> Column:
        """Return the task of a row as Spark computes it, an int.

        Values that do not fit the table's types count as null here: the task refuses them.
        """
        f, buckets, task = values.functions, self.spec.layout.buckets, values.functions.lit(0)
        if self.spec.keyed:
            hashed = (_typed_column(values, self.spec, name) for name in buckets.hashed)
            task = f.pmod(f.xxhash64(*hashed), f.lit(buckets.count))
        for share in self._share_values(values) if self.by_partition else ():
            task = task + f.pmod(share, f.lit(self.tasks))
        numbered: Column = f.pmod(task, f.lit(self.tasks)).cast(spark_type(pa.int32()))
        return numbered

    def tasks_of(self, files: pa.Table) -> Numbers:
        """Return the task of each live file (LIVE)."""
        tasks: Numbers = (_buckets(files) + self._shares_of(files)) % self.tasks
        return tasks

    def tasks_of_rows(self, rows: pa.RecordBatch) -> Numbers:
        """Return the task of each row, as ``sql`` does."""
        tasks = np.zeros(rows.num_rows, np.int64)
        if self.spec.keyed:
            buckets = self.spec.layout.buckets
            hashes = key_hashes(typed(rows, self.spec, buckets.hashed), buckets.hashed)
            tasks += hashes.view(np.int64) % max(1, buckets.count)
        if self.by_partition:
            placing = typed(rows, self.spec, self.spec.partition_sources)
            columns = [values_of(field, placing) for field in self.spec.fields]
            values = pa.RecordBatch.from_arrays(columns, names=list(self.spec.layout.partition_by))
            tasks += self._shares(values, self.shift)
        tasks %= self.tasks
        return tasks

    def task_of(self, bucket: BucketId) -> int:
        """Return the task of one bucket."""
        partition, number = bucket
        share = 0
        if self.by_partition:
            share = int(self._shares(self._values([partition]), self.shift)[0])
        return (max(number, 0) + share) % self.tasks

    def _even_shift(self, groups: pa.Table) -> int | None:
        """Find the share with which the most that one task has is the least."""
        if groups.num_rows > _GROUPS_MANY:
            return 0
        buckets, sizes = _buckets(groups), groups["bytes_sum"].to_numpy()
        values, rows = self._partitions(groups)

        def most(shift: int | None) -> float:
            shares = self._shares(values, shift)
            return float(np.bincount((buckets + shares[rows]) % self.tasks, sizes).max())

        choices: tuple[int | None, ...] = (None, *range(_SHIFTS))
        return min(choices, key=most)

    def _shares_of(self, files: pa.Table) -> Numbers:
        if not self.by_partition or not files.num_rows:
            return np.zeros(files.num_rows, np.int64)
        values, rows = self._partitions(files)
        each: Numbers = self._shares(values, self.shift)[rows]
        return each

    def _partitions(self, files: pa.Table) -> tuple[pa.RecordBatch, Numbers]:
        """Return the partitions of files as rows of the table's types, and which each file has."""
        coded = files["partition"].combine_chunks().dictionary_encode()
        parsed = [partition_parse(text) for text in coded.dictionary.to_pylist()]
        rows: Numbers = coded.indices.to_numpy()
        return self._values(parsed), rows

    def _values(self, partitions: Sequence[Partition]) -> pa.RecordBatch:
        """Return partitions as rows of the table's types."""
        names = self.spec.layout.partition_by
        kinds = [field.kind(self.spec.schema.arrow) for field in self.spec.fields]
        columns = [array_of([p[at] for p in partitions], kind) for at, kind in enumerate(kinds)]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _shares(self, values: pa.RecordBatch, shift: int | None) -> Numbers:
        """Return the share of each row of partition values."""
        if shift is not None:
            names = self.spec.layout.partition_by
            kept: Numbers = key_hashes(values, names).view(np.int64) >> shift
            return kept % self.tasks
        shares = np.zeros(values.num_rows, np.int64)
        for column in values.columns:
            coded = column.dictionary_encode(null_encoding="encode")
            shares += (_numbers(coded.dictionary) % self.tasks)[coded.indices.to_numpy()]
        return shares

    def _share_values(self, values: Values) -> list[Column]:
        """Return the terms that ``_shares`` adds up, as Spark computes them."""
        f, schema = values.functions, self.spec.schema.arrow
        kinds = [field.kind(schema) for field in self.spec.fields]
        columns = []
        for field, kind in zip(self.spec.fields, kinds, strict=True):
            name = field.sources[0]
            source = _typed_column(values, self.spec, name)
            value = field_value(values, field, source, schema.field(name).type)
            columns.append(value.cast(spark_type(kind)))
        if self.shift is not None:
            return [f.shiftright(f.xxhash64(*columns), self.shift)]
        return [_number(values, *pair) for pair in zip(columns, kinds, strict=True)]


def _typed_column(values: Values, spec: TableSpec, name: str) -> Column:
    return values.column(name).try_cast(spark_type(spec.schema.arrow.field(name).type))


_TASKS_SOME = 32
"""Tasks that cost little even where most of them stay empty."""
_GROUPS_MANY = 2_000
"""Number of (partition, bucket) pairs that any hash divides evenly."""
_SHIFTS = 32


def typed(rows: pa.RecordBatch, spec: TableSpec, names: Sequence[str]) -> pa.RecordBatch:
    """Return columns in the table's types, to hash; the task refuses what does not fit."""
    fields = spec.schema.arrow
    columns = [apply_or_null(rows.column(name), fields.field(name).type) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def _numbers(column: pa.Array) -> Numbers:
    """Return a partition column as numbers; see ``_number``."""
    kind = column.type
    if pa.types.is_string(kind):
        codes = [0 if text is None else crc32(text.encode()) for text in column.to_pylist()]
        return np.array(codes, np.int64)
    if pa.types.is_date32(kind):
        kind, column = pa.int32(), column.cast(pa.int32())
    if pa.types.is_integer(kind):
        numbers: Numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
        return numbers
    hashes: Numbers = key_hashes(pa.table([column], names=["c"]), ["c"]).view(np.int64)
    return hashes


def _number(values: Values, column: Column, kind: pa.DataType) -> Column:
    """Return a partition value as a number, so that neighbours fall to different tasks."""
    f = values.functions
    number: Column
    if pa.types.is_string(kind):
        number = f.coalesce(f.crc32(column), f.lit(0))
    elif pa.types.is_date32(kind):
        number = f.coalesce(f.unix_date(column), f.lit(0))
    elif pa.types.is_integer(kind):
        number = f.coalesce(column, f.lit(0))
    else:
        number = f.xxhash64(column)
    return number


def _has_value(spec: TableSpec, field: PartitionField) -> bool:
    return has_value(field, spec.schema.arrow.field(field.sources[0]).type)


def _buckets(files: pa.Table) -> Numbers:
    numbers: Numbers = np.maximum(files["bucket"].to_numpy(), 0).astype(np.int64)
    return numbers


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
