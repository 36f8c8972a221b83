"""Spark jobs of tasks that each send one report home: their size, their run, their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from plait.errors import RolledBackError
from plait.ports import Ports
from plait.spark.session import local_cores
from plait.spark.task import Batches, TaskSetting, on_executor
from plait.spark.transfer import COLUMNS, TaskReport, find_error
from plait.spark.values import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOOK_S_MAX = 1.0
_A_CORE = 2
"""Tasks of one core: while one writes the other reads."""
_A_CORE_NEW = 8
"""Tasks of one core where nothing is known of the partitions that come: the smaller the tasks, the
less it matters that a hash divides a few partitions unevenly."""


def run(
    frame: DataFrame, work: Callable[[TaskSetting, Batches], TaskReport | None]
) -> list[TaskReport]:
    """Run work on every partition of a DataFrame; give the reports by task.

    Nothing but the reports comes to the driver.

    Raises:
        TableError: of ours, as a task met it.
        PySparkException: of Spark, or of the query that makes the rows.
    """
    secret = Ports().ids.nonce()
    try:
        rows = frame.mapInArrow(on_executor(work, secret), COLUMNS).collect()
    except PySparkException as error:
        found = find_error(str(error), secret)
        if found is None:
            raise
        raise found from error
    reports = sorted((TaskReport.from_row(tuple(row)) for row in rows), key=lambda each: each.task)
    for report in reports:
        if report.error is not None:
            raise report.error
    return reports


def counting(spark: SparkSession, tasks: int) -> DataFrame:
    """Return a DataFrame of so many tasks, whose rows say nothing."""
    return spark.range(0, tasks, 1, max(1, tasks))


def tasks_wanted(spark: SparkSession, *, into_files: bool = False) -> int:
    """Return the number of tasks to shuffle into: Spark's own, fitted to the cores if all are here.

    Args:
        spark: the session.
        into_files: whether rows meet files that are there. They can be divided evenly then, and
            what comes is mostly little: more than two tasks a core cost more than they balance.
    """
    text = str(spark.conf.get("spark.sql.shuffle.partitions", "200"))
    wanted = max(1, int(text)) if text.isascii() and text.isdigit() else 1
    cores = local_cores(str(spark.conf.get("spark.master", "")))
    if cores is None:
        return wanted
    return min(wanted, _A_CORE * cores) if into_files else max(wanted, _A_CORE_NEW * cores)


def speculates(spark: SparkSession) -> bool:
    """Tell whether Spark may run a task twice at once."""
    return str(spark.conf.get("spark.speculation", "false")).lower() == "true"


@contextmanager
def cancelled_with(
    spark: SparkSession, name: str, check_alive: Callable[[], None], *, interval_s: float
) -> Iterator[None]:
    """Run Spark jobs of this thread, and cancel them once the writer's instant was ended.

    Spark runs a job to its end whoever has lost interest. By tag, so that other jobs of the session
    go on, and Spark Connect too.

    Args:
        spark: the session that the jobs run in.
        name: tells this writer from others of the session.
        check_alive: raises RolledBackError once the instant was ended.
        interval_s: between two heartbeats, which look for that.

    Raises:
        RolledBackError: the instant was ended; its jobs were cancelled.
    """
    tag = f"plait-{name}"
    ended: list[RolledBackError] = []

    def look() -> None:
        try:
            if not ended:
                check_alive()
        except RolledBackError as error:
            ended.append(error)
        if ended:
            cancel(tag)  # each time: another job may have begun since

    add, cancel, remove = _tags_of(spark)
    add(tag)
    stop = Ports().background.every(min(_LOOK_S_MAX, interval_s / 2), look)
    try:
        yield
    except Exception as error:
        stop()
        if ended:
            raise ended[0] from error
        raise
    finally:
        stop()
        remove(tag)
    if ended:
        raise ended[0]


def _tags_of(spark: SparkSession) -> tuple[Callable[[str], object], ...]:
    """Return how to tag the jobs of this thread, to cancel those of a tag, and to stop tagging.

    A classic session finds its own tags only in the thread that set them; its context finds them.
    """
    if is_connect(spark):
        return spark.addTag, spark.interruptTag, spark.removeTag
    context = spark.sparkContext  # of classic sessions alone
    return context.addJobTag, context.cancelJobsWithTag, context.removeJobTag
