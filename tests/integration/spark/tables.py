"""Small tables and frames that the Spark suites share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from plait import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TASKS = 3
"""More than the sessions here have cores, so that some begin when others have ended."""
KINDS = [(kind, places) for kind in ("cow", "mor") for places in (False, True)]
"""Table types, with partitions and without."""
DDL = "id bigint, part string, rev bigint, name string"


def make(
    path: Path,
    table_type: str = "cow",
    *,
    partitioned: bool = False,
    keyed: bool = True,
    buckets: int = 3,
    ordering: str | None = None,
) -> Table:
    """Create a table of ``DDL``."""
    return Table.create(
        str(path),
        DDL,
        record_key=["id"] if keyed else [],
        partition_by=["part"] if partitioned else [],
        table_type=table_type,
        buckets=buckets if keyed else None,
        ordering=ordering,
    )


def frame(spark: SparkSession, start: int, stop: int, rev: int, *, tasks: int = TASKS) -> DataFrame:
    """Give rows of ids from start to stop, spread so that each task meets every bucket."""
    return spark.range(start, stop, 1, tasks).selectExpr(
        "id",
        "concat('p', id % 3) AS part",
        f"{rev}L AS rev",
        "concat('name ', id) AS name",
    )


def arrow_rows(start: int, stop: int, rev: int, step: int = 1) -> pa.Table:
    """Give rows as those of ``frame`` in Arrow: where they are not what is tested, no job runs."""
    ids = range(start, stop, step)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": [f"p{key % 3}" for key in ids],
            "rev": pa.array([rev] * len(ids), pa.int64()),
            "name": [f"name {key}" for key in ids],
        }
    )


def begun(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query; again if the machine was too slow for Spark.

    A Python process that Spark starts without its daemon has ten seconds, which no setting changes.
    """
    while True:
        try:
            return start()
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error):
                raise


def revisions(table: Table) -> dict[int, int]:
    """Give what the table holds as the Arrow scan sees it: the revision of each id, once."""
    rows = table.scan().to_arrow()
    ids = rows["id"].to_pylist()
    assert len(set(ids)) == len(ids), "INV-08: one live row a key"
    return dict(zip(ids, rows["rev"].to_pylist(), strict=True))


def assert_sound(table: Table) -> None:
    """See to it that verification finds nothing, and nothing is pending."""
    report = table.check.verify()
    assert report.problems == (), report.to_dict()
    assert table.inspect.timeline().pending == ()


def assert_sound_in_the_end(table: Table, files: int) -> None:
    """See to it that what late tasks of a failed job leave goes too, and ``files`` stay.

    Spark does not wait for the other tasks of a job that failed; what they write afterwards is
    provably theirs, and goes with the next rollback and clean.
    """
    root = Path(str(table.inspect.describe()["uri"]))
    for _ in range(100):
        table.maintenance.rollback()
        table.maintenance.clean()
        found = [path for path in root.glob("*/*") if path.suffix in (".parquet", ".bin")]
        if len(found) == files and not table.inspect.timeline().pending:
            break
        time.sleep(0.2)
    assert len(found) == files, found
    assert_sound(table)
