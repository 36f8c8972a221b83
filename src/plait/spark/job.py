"""Run one Spark job of tasks that each send one report home."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from plait.spark.report import COLUMNS, Report, find_error
from plait.spark.task import Batches, Place, on_executor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(frame: DataFrame, work: Callable[[Place, Batches], Report | None]) -> list[Report]:
    """Run work on every partition of a DataFrame; give the reports by task.

    Nothing but the reports comes to the driver.

    Raises:
        TableError: of ours, as a task met it.
        PySparkException: of Spark, or of the query that makes the rows.
    """
    try:
        rows = frame.mapInArrow(on_executor(work), COLUMNS).collect()
    except PySparkException as error:
        found = find_error(str(error))
        if found is None:
            raise
        raise found from error
    reports = sorted((Report.from_row(tuple(row)) for row in rows), key=lambda each: each.task)
    for report in reports:
        if report.error is not None:
            raise report.error
    return reports


def tasks_wanted(spark: SparkSession) -> int:
    """Give the number of tasks that Spark is told to shuffle into."""
    text = str(spark.conf.get("spark.sql.shuffle.partitions", "200"))
    return max(1, int(text)) if text.isascii() and text.isdigit() else 1


def speculates(spark: SparkSession) -> bool:
    """Tell whether Spark may run a task twice at once."""
    return str(spark.conf.get("spark.speculation", "false")).lower() == "true"
