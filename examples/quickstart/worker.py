"""One of the five processes: a PySpark driver of its own that writes to the shared table.

``python -m examples.quickstart.worker ROLE TABLE CSV WORKSPACE``
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from examples.quickstart.channel import Channel
from examples.quickstart.processes import die_with_parent
from examples.quickstart.roles import SOURCE_DDL, Role, role_of
from plait.ports import Ports
from plait.spark import session
from plait.storage import open_store
from plait.table import Table
from plait.txn.table_handle import open_handle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SPARK = {
    "spark.driver.memory": "700m",
    # five JVMs that live for a minute on two cores: quick to start counts, not to run long
    "spark.driver.defaultJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "2",
}


class Reporter:
    """Tells the orchestrator of the phases of the commit; holds the doomed one before publish.

    The hold makes the kill certain: however late it comes, nothing was published before.
    """

    def __init__(self, channel: Channel, role: Role) -> None:
        self._channel = channel
        self._doomed = role.doomed
        self._redone = 0

    def phase(self, name: str, **facts: object) -> None:
        """Hear of a phase."""
        del facts
        if name == "redo":
            self._redone += 1
            self._channel.say("redoing", times=self._redone)
        elif name == "publish" and self._doomed:
            self._channel.say("holding")
            threading.Event().wait()
        elif name == "publish":
            self._channel.say("publishing")


def spark_rows(role: Role, csv: str) -> DataFrame:
    """Return the rows of a role as a DataFrame of a Spark of this process's own."""
    spark = session(master="local[1]", **_SPARK, **{"spark.app.name": f"quickstart-{role.name}"})
    source = spark.read.csv(csv, schema=SOURCE_DDL, header=True, nullValue="NA")
    return source.where(role.where).selectExpr(*role.columns())


def run(role: Role, uri: str, rows: DataFrame, channel: Channel) -> None:
    """Begin, wait for the others, write, publish."""
    table = Table(open_handle(open_store(uri), Ports(observer=Reporter(channel, role))))
    with table.writer("upsert", on_conflict="retry") as writer:
        channel.say("begun", instant=str(writer.instant))
        channel.wait_for_go()
        channel.say("writing")
        writer.write(rows)
    result = writer.result
    channel.say("committed", version=result.version, attempts=result.attempts)


def main(arguments: list[str], source: Callable[[Role, str], DataFrame] = spark_rows) -> int:
    """Run one role."""
    name, uri, csv, workspace = arguments
    channel, role = Channel(Path(workspace), name), role_of(name)
    die_with_parent()
    try:
        channel.say("starting Spark")
        run(role, uri, source(role, csv), channel)
    except Exception as error:
        channel.say("failed", message=f"{type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
