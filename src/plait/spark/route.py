"""Which task stages which bucket: the same answer in Spark SQL and here.

A table's buckets are divided among a fixed number of tasks, so that each (partition, bucket) has
exactly one: ``pmod(bucket + xxhash64(partition columns), tasks)``. Rows are sent there by this
number itself (``repartitionById``): hashing it again would leave some tasks empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.files.hash import key_hashes
from plait.model.bucket import BucketId, partition_parse, partition_text
from plait.model.plan import TableSpec
from plait.model.schema import type_name
from plait.model.value import array_of

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Route:
    """Divides the buckets of a table among tasks."""

    spec: TableSpec
    tasks: int
    by_partition: bool
    """Off where rows do not name their partition: a bucket number is then one task's everywhere."""

    @classmethod
    def plan(
        cls, spec: TableSpec, *, columns: Sequence[str], wanted: int, groups: int = 0
    ) -> Route:
        """Choose the number of tasks.

        Args:
            spec: the table's layout.
            columns: what the rows have.
            wanted: the most tasks that are of use.
            groups: (partition, bucket) pairs that the table has; 0 if that says nothing.
        """
        by_partition = bool(spec.partition_by) and set(spec.partition_by) <= set(columns)
        count = max(1, spec.buckets.count)
        if by_partition:
            tasks = min(wanted, max(2 * groups, _TASKS_SOME)) if groups else wanted
        else:
            # Each task gets as many buckets as the others.
            tasks = -(-count // -(-count // max(1, min(wanted, count))))
        return cls(spec, max(1, tasks), by_partition)

    def sql(self) -> str:
        """Give the task of a row as a Spark SQL expression, an int.

        Values that do not fit the table's types count as null here: the task refuses them.
        """
        terms = []
        if self.spec.keyed:
            terms.append(f"pmod({self._hash(self.spec.key)}, {self.spec.buckets.count})")
        if self.by_partition:
            terms.append(f"pmod({self._hash(self.spec.partition_by)}, {self.tasks})")
        return f"cast(pmod({' + '.join(terms) or '0'}, {self.tasks}) AS int)"

    def tasks_of(self, files: pa.Table) -> Numbers:
        """Give the task of each live file (LIVE)."""
        numbers = np.maximum(files["bucket"].to_numpy(), 0).astype(np.int64)
        if self.by_partition and files.num_rows:
            coded = files["partition"].combine_chunks().dictionary_encode()
            shares = self._shares(coded.dictionary)
            numbers = numbers + shares[coded.indices.to_numpy()]
        tasks: Numbers = numbers % self.tasks
        return tasks

    def task_of(self, bucket: BucketId) -> int:
        """Give the task of one bucket."""
        partition, number = bucket
        share = 0
        if self.by_partition:
            share = int(self._shares(pa.array([partition_text(partition)]))[0])
        return (max(number, 0) + share) % self.tasks

    def _shares(self, texts: pa.Array) -> Numbers:
        names = self.spec.partition_by
        rows = [partition_parse(text) for text in texts.to_pylist()]
        kinds = [self.spec.schema.arrow.field(name).type for name in names]
        columns = [array_of([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
        hashes = key_hashes(pa.table(columns, names=list(names)), names)
        shares: Numbers = np.remainder(hashes.view(np.int64), np.int64(self.tasks))
        return shares

    def _hash(self, names: Sequence[str]) -> str:
        kinds = self.spec.schema.arrow
        cast = (f"try_cast({quoted(n)} AS {type_name(kinds.field(n).type)})" for n in names)
        return f"xxhash64({', '.join(cast)})"


_TASKS_SOME = 32
"""Tasks that cost little even where most of them stay empty."""


def quoted(name: str) -> str:
    """Write a column name for Spark SQL.

    >>> quoted("a.`b")
    '`a.``b`'
    """
    return "`" + name.replace("`", "``") + "`"
