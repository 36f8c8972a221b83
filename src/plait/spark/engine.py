"""The Spark engine: DataFrames stay distributed, executors write, the driver publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from plait.errors import CapabilityMissingError
from plait.model.bucket import Partition
from plait.model.changes import Digest
from plait.model.request import WritePlan
from plait.spark.frame import is_frame, is_session
from plait.spark.staging import SparkStaging, digest_of_frame
from plait.storage import in_this_process


class SparkEngine:
    """Stages Spark DataFrames, classic and Connect. No row of them passes through the driver."""

    @property
    def name(self) -> str:
        """Its name."""
        return "spark"

    def accepts(self, data: object) -> bool:
        """Tell whether this engine takes such data: a session where no rows are needed."""
        return is_frame(data) or is_session(data)

    def staging(
        self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]
    ) -> SparkStaging:
        """Begin one writer's work.

        Raises:
            CapabilityMissingError: executors, which are other processes, cannot reach the store.
        """
        if in_this_process(plan.store):
            uri = plan.store.uri
            message = f"Spark's executors cannot reach {uri}: it is in this process's memory"
            hint = "keep the table on a disk or in an object store"
            raise CapabilityMissingError(message, hint=hint, capability="shared", uri=uri)
        return SparkStaging(plan, announce)

    def digest(self, data: object, plan: WritePlan) -> Digest:
        """Return the digest of a DataFrame's rows, which executors compute.

        Raises:
            OptionError: this is no DataFrame.
            SchemaMismatchError: columns do not fit the table; no job is run.
        """
        return digest_of_frame(data, plan)
