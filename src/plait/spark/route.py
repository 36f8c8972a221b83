"""Which task stages which bucket: the same answer in Spark SQL and here.

A table's buckets are divided among a fixed number of tasks, so that each (partition, bucket) has
exactly one: ``pmod(bucket + share of the partition, tasks)``. A few partitions, hashed without
looking, would leave one task with most of the work. So the share is a number that differs between
neighbours: integers and dates as they are, and the CRC of strings, whose low bits differ with the
last digit. Where rows meet files, and some bits of ``xxhash64(partition columns)`` divide their
bytes more evenly, it is those. Rows are sent by the task's number itself
(``repartitionById``): hashing it again would leave some tasks empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.cast import apply_or_null
from plait.files.hash import key_hashes
from plait.files.partition_values import values_of
from plait.model.bucket import BucketId, Partition, partition_parse
from plait.model.partitioning import PartitionField
from plait.model.plan import TableSpec
from plait.model.schema import type_name
from plait.model.value import array_of
from plait.spark.field_sql import field_sql

Numbers = npt.NDArray[np.int64]


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
        named = bool(spec.partition_by) and set(spec.partition_sources) <= set(columns)
        by_partition = named and all(_field(spec, each) is not None for each in spec.fields)
        by_partition = by_partition and not spec.across  # a key may be in any of them
        count = max(1, spec.buckets.count)
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

    def sql(self) -> str:
        """Return the task of a row as a Spark SQL expression, an int.

        Values that do not fit the table's types count as null here: the task refuses them.
        """
        terms = []
        if self.spec.keyed:
            terms.append(f"pmod({self._hash(self.spec.buckets.hashed)}, {self.spec.buckets.count})")
        if self.by_partition:
            terms += [f"pmod({share}, {self.tasks})" for share in self._share_terms()]
        return f"cast(pmod({' + '.join(terms) or '0'}, {self.tasks}) AS int)"

    def tasks_of(self, files: pa.Table) -> Numbers:
        """Return the task of each live file (LIVE)."""
        tasks: Numbers = (_buckets(files) + self._shares_of(files)) % self.tasks
        return tasks

    def tasks_of_rows(self, rows: pa.RecordBatch) -> Numbers:
        """Return the task of each row, as ``sql`` does."""
        tasks = np.zeros(rows.num_rows, np.int64)
        if self.spec.keyed:
            names = self.spec.buckets.hashed
            hashes = key_hashes(typed(rows, self.spec, names), names)
            tasks += hashes.view(np.int64) % max(1, self.spec.buckets.count)
        if self.by_partition:
            placing = typed(rows, self.spec, self.spec.partition_sources)
            columns = [values_of(field, placing) for field in self.spec.fields]
            values = pa.RecordBatch.from_arrays(columns, names=list(self.spec.partition_by))
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
        names = self.spec.partition_by
        kinds = [field.kind(self.spec.schema.arrow) for field in self.spec.fields]
        columns = [array_of([p[at] for p in partitions], kind) for at, kind in enumerate(kinds)]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _shares(self, values: pa.RecordBatch, shift: int | None) -> Numbers:
        """Return the share of each row of partition values."""
        if shift is not None:
            names = self.spec.partition_by
            kept: Numbers = key_hashes(values, names).view(np.int64) >> shift
            return kept % self.tasks
        shares = np.zeros(values.num_rows, np.int64)
        for column in values.columns:
            coded = column.dictionary_encode(null_encoding="encode")
            shares += (_numbers(coded.dictionary) % self.tasks)[coded.indices.to_numpy()]
        return shares

    def _share_terms(self) -> list[str]:
        """Return the terms that ``_shares`` adds up, in SQL."""
        schema = self.spec.schema.arrow
        kinds = [field.kind(schema) for field in self.spec.fields]
        values = [
            f"cast({_field(self.spec, field)} AS {type_name(kind)})"
            for field, kind in zip(self.spec.fields, kinds, strict=True)
        ]
        if self.shift is not None:
            return [f"shiftright(xxhash64({', '.join(values)}), {self.shift})"]
        return list(map(_number_sql, values, kinds))

    def _hash(self, names: Sequence[str]) -> str:
        return f"xxhash64({', '.join(_cast(self.spec, name) for name in names)})"


def _cast(spec: TableSpec, name: str) -> str:
    return f"try_cast({quoted(name)} AS {type_name(spec.schema.arrow.field(name).type)})"


def _field(spec: TableSpec, field: PartitionField) -> str | None:
    """Return a partition field in SQL; None if there is no way to say it."""
    name = field.sources[0]
    return field_sql(field, _cast(spec, name), spec.schema.arrow.field(name).type)


_TASKS_SOME = 32
"""Tasks that cost little even where most of them stay empty."""
_GROUPS_MANY = 2_000
"""So many (partition, bucket) pairs are divided evenly by any hash."""
_SHIFTS = 32


def typed(rows: pa.RecordBatch, spec: TableSpec, names: Sequence[str]) -> pa.RecordBatch:
    """Return columns in the table's types, to hash; the task refuses what does not fit."""
    fields = spec.schema.arrow
    columns = [apply_or_null(rows.column(name), fields.field(name).type) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def _numbers(column: pa.Array) -> Numbers:
    """Return a partition column as numbers; see ``_number_sql``."""
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


def _number_sql(column: str, kind: pa.DataType) -> str:
    """Return a partition column as a number in SQL, so that neighbours fall to different tasks."""
    if pa.types.is_string(kind):
        return f"coalesce(crc32({column}), 0L)"
    if pa.types.is_date32(kind):
        return f"coalesce(unix_date({column}), 0)"
    if pa.types.is_integer(kind):
        return f"coalesce({column}, 0)"
    return f"xxhash64({column})"


def _buckets(files: pa.Table) -> Numbers:
    numbers: Numbers = np.maximum(files["bucket"].to_numpy(), 0).astype(np.int64)
    return numbers


def quoted(name: str) -> str:
    """Write a column name for Spark SQL.

    >>> quoted("a.`b")
    '`a.``b`'
    """
    return "`" + name.replace("`", "``") + "`"
