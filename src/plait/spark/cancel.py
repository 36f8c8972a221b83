"""Cancel the Spark jobs of a writer that was rolled back meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plait.errors import RolledBackError
from plait.ports import Ports
from plait.spark.frame import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S_MAX = 1.0


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
