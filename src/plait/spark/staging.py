"""One writer's work in Spark: DataFrames are collected, and staged by one job at commit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema

from plait.errors import OptionError, SchemaMismatchError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import Changes, WriteStats, WriteStatus
from plait.model.instant import Operation
from plait.model.plan import Snapshot, WritePlan
from plait.model.schema import type_name
from plait.spark.tasks import STATUS, Stage, collected
from plait.write.check import input_schema, prepare
from plait.write.staging import ArrowStaging, Task

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET = "__plait_bucket"


class SparkStaging:
    """Stages DataFrames with executors; no row of them passes through the driver.

    A DataFrame is evaluated when the writer commits, and again if buckets must be redone: one
    that gives other rows each time should be persisted by the caller.
    """

    def __init__(self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]) -> None:
        self._plan = plan
        self._announce = announce
        self._frames: list[DataFrame] = []
        self._rounds = 0
        self._last: WriteStatus | None = None

    def write(self, data: object) -> None:
        """Take a DataFrame, after a look at its columns and types.

        Raises:
            SchemaMismatchError: columns are missing, unknown, or of a type that does not fit.
        """
        frame: DataFrame = data  # type: ignore[assignment]  # the engine accepted it
        plan = self._plan
        if plan.operation is Operation.DELETE and plan.predicate is not None:
            message = "a delete by predicate takes no rows"
            raise OptionError(message, hint="give either keys or where", key="where", value="rows")
        empty = to_arrow_schema(frame.schema).empty_table()
        for _ in prepare(empty, plan.spec, plan.operation):
            pass
        self._frames.append(self._typed(frame))

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Run one job over all DataFrames; a later call runs it again on a newer snapshot."""
        self._rounds += 1
        staged = self._run(snapshot)
        if self._last is not None:
            staged = _with_garbage(staged, self._last.changes, self._last.changes)
        self._last = staged
        return staged

    def close(self) -> None:
        """Forget the DataFrames."""
        self._frames.clear()

    def _run(self, snapshot: Snapshot) -> WriteStatus:
        plan = self._plan
        frame = functools.reduce(lambda one, other: one.unionByName(other), self._frames)
        overwrite = plan.operation is Operation.OVERWRITE
        # rows of an overwrite fall on empty ground; what goes is told by the driver, below
        ground = replace(snapshot, files=snapshot.files.slice(0, 0)) if overwrite else snapshot
        label = f"r{self._rounds}"
        routed, dropped = self._routed(frame)
        stage = Stage(plan, ground, label, dropped)
        rows = routed.mapInArrow(stage.run, STATUS).collect()
        status = collected((row["status"], row["error"]) for row in rows)
        if overwrite:
            status = WriteStatus.concat([status, self._removed(snapshot, status)])
        return status

    def _removed(self, snapshot: Snapshot, status: WriteStatus) -> WriteStatus:
        """Let what an overwrite replaces go: files whole, or by predicate."""
        texts = sorted(set(status.changes.added["partition"].to_pylist()))
        from plait.model.bucket import partition_parse  # noqa: PLC0415

        task = Task(
            label=f"r{self._rounds}driver", partitions=[partition_parse(text) for text in texts]
        )
        staging = ArrowStaging(self._plan, self._announce, task=task)
        try:
            return staging.stage(snapshot, None)
        finally:
            staging.close()

    def _typed(self, frame: DataFrame) -> DataFrame:
        """Bring columns into the table's order and types."""
        plan = self._plan
        schema = input_schema(plan.spec, plan.operation, frame.columns)
        present = {name.lower(): name for name in frame.columns}
        return frame.select(*[self._column(field, present) for field in schema])

    def _column(self, field: pa.Field, present: dict[str, str]) -> Column:
        kind = type_name(field.type)
        if field.name.lower() not in present:
            return F.lit(None).cast(kind).alias(field.name)
        name = present[field.name.lower()].replace("`", "``")
        column = F.col(f"`{name}`")
        return column.cast(kind).alias(field.name)

    def _routed(self, frame: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """Send each bucket to one task. Hashing a bucket number again would skew."""
        spec = self._plan.spec
        if not spec.keyed:
            return frame, ()
        for name in spec.key:
            if name not in frame.columns:
                message = f"the key column {name!r} is missing"
                raise SchemaMismatchError(message, column=name, expected=list(spec.key))
        bucket = F.pmod(F.xxhash64(*map(_quoted, spec.key)), F.lit(spec.buckets.count))
        setting = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or "200"
        tasks = int(setting)
        if spec.partition_by and set(spec.partition_by) <= set(frame.columns):
            places = [*map(_quoted, spec.partition_by), bucket]
            route = F.pmod(F.xxhash64(*places), F.lit(tasks))
        else:
            tasks = min(tasks, spec.buckets.count)
            route = F.pmod(bucket, F.lit(tasks))
        routed = frame.withColumn(BUCKET, route.cast("int")).repartitionById(tasks, F.col(BUCKET))
        return routed, (BUCKET,)


def _quoted(name: str) -> Column:
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


def _with_garbage(status: WriteStatus, first: Changes, last: Changes) -> WriteStatus:
    """Name the files of an earlier round, which nobody will ever read."""
    old = [
        *first.added["path"].to_pylist(),
        *filter(None, last.masked["dv_path"].to_pylist()),
        *filter(None, last.touched["key_path"].to_pylist()),
        *last.garbage["path"].to_pylist(),
    ]
    garbage = pa.table([pa.array(sorted(set(old)), pa.string())], schema=first.garbage.schema)
    changes = replace(status.changes, garbage=pa.concat_tables([status.changes.garbage, garbage]))
    stats: WriteStats = status.stats
    return WriteStatus(changes, stats)
