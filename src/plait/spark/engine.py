"""The Spark engine: DataFrames are staged by the executors; only statuses come to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from plait.model.bucket import Partition
from plait.model.plan import WritePlan
from plait.spark.staging import SparkStaging


class SparkEngine:
    """Takes Spark DataFrames, of a classic session or of Spark Connect."""

    @property
    def name(self) -> str:
        """Its name."""
        return "spark"

    def accepts(self, data: object) -> bool:
        """Tell whether this is a Spark DataFrame; nothing of Spark is imported for it."""
        return any(
            kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame"
            for kind in type(data).__mro__
        )

    def staging(
        self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]
    ) -> SparkStaging:
        """Begin one writer's work."""
        return SparkStaging(plan, announce)
