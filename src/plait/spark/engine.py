"""The Spark engine: DataFrames stay distributed, executors write, the driver publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.arrow.clauses import rows_spec
from plait.engine import Engine
from plait.errors import OptionError
from plait.model.bucket import Partition
from plait.model.changes import Digest, WriteStatus
from plait.model.plan import Snapshot
from plait.model.request import FileSet, WritePlan
from plait.model.store_address import StoreAddress
from plait.spark.frame import (
    arrow_schema,
    check_frame,
    is_frame,
    is_session,
    numbered,
    require_reachable,
    union,
)
from plait.spark.job import cancelled_with, run, tasks_wanted
from plait.spark.rewrite import rewrite_on
from plait.spark.staging import SparkStaging
from plait.spark.task import SumRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine(Engine):
    """Stages Spark DataFrames, classic and Connect. No row of them passes through the driver."""

    def __init__(self, session: SparkSession | None = None) -> None:
        """Work in a session; without one, in that of the DataFrames that come."""
        self._session = session

    @property
    def name(self) -> str:
        """The engine's name."""
        return SparkStaging.engine

    def accepts(self, data: object) -> bool:
        """Tell whether this engine takes such data."""
        return is_frame(data)

    def opened(self, data: object) -> tuple[object, pa.Schema]:
        """Return a DataFrame and its columns; raise OptionError for anything else."""
        if not is_frame(data):
            message = f"not a Spark DataFrame: {type(data).__qualname__}"
            raise OptionError(message, hint="use one writer for each engine", key="data", value="")
        return data, arrow_schema(data.schema)

    def within(self, session: object) -> SparkEngine:
        """Return an engine that works in a session, also where no DataFrame tells which.

        Raises:
            OptionError: this is no session of Spark.
        """
        if not is_session(session):
            message = f"not a Spark session: {type(session).__qualname__}"
            raise OptionError(message, hint="pass a SparkSession as spark=", key="spark", value="")
        return SparkEngine(session)

    def require_reachable(self, store: StoreAddress) -> None:
        """Refuse a store inside of this process, where no executor is.

        Raises:
            CapabilityMissingError: it is one.
        """
        require_reachable(store)

    @property
    def width(self) -> int:
        """The number of tasks that rewrite files at once."""
        return tasks_wanted(self._required(), into_files=True)

    def rewrite(
        self,
        plan: WritePlan,
        snapshot: Snapshot,
        sets: Sequence[FileSet],
        announce: Callable[[Iterable[Partition]], None],
    ) -> WriteStatus:
        """Put the visible rows of each set of files into one file, on executors."""
        spark = self._required()
        require_reachable(plan.store)
        interval_s = plan.options.seconds("heartbeat.interval")
        name = str(plan.instant)
        with cancelled_with(spark, name, lambda: announce(()), interval_s=interval_s):
            return rewrite_on(spark, plan, snapshot, sets, self.width)

    def _required(self) -> SparkSession:
        if self._session is None:
            message = "files are rewritten in a Spark session, and none was given"
            raise OptionError(message, hint="pass it as spark=", key="spark", value="none")
        return self._session

    def staging(
        self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]
    ) -> SparkStaging:
        """Begin one writer's work.

        Raises:
            CapabilityMissingError: executors, which are other processes, cannot reach the store.
        """
        require_reachable(plan.store)
        return SparkStaging(plan, announce, self._session)

    def digest(self, data: object, plan: WritePlan) -> Digest:
        """Return the digest of a DataFrame's rows, which executors compute.

        Raises:
            OptionError: this is no DataFrame.
            SchemaMismatchError: columns do not fit the table; no job is run.
        """
        if not is_frame(data):
            message = f"not a Spark DataFrame: {type(data).__qualname__}"
            raise OptionError(message, hint="pass a Spark DataFrame", key="data", value="")
        schema, layout = arrow_schema(data.schema), plan.spec
        if plan.request.joins:
            layout = rows_spec(plan.request.operation, layout, schema)
        check_frame(schema, layout, plan.request.operation)
        frame = union([data], layout, plan.request.operation)
        reports = run(numbered(frame), SumRows(plan, tuple(frame.columns)))
        return sum((report.status.digest or Digest() for report in reports), Digest())
