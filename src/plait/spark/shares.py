"""Reads by Arrow code on the executors: a share of the files a task, and rows in Spark's types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from plait.spark.frame import position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARE_BYTES = 64 << 20
"""What one task reads, about."""
_TASK, _SHARE = "task", "share"


class ShareReader(Protocol):
    """Goes to executors as it is."""

    def read(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows of a share in Spark's types."""


def shares_to_spark(
    reader: ShareReader, shares: Sequence[bytes], struct: StructType, spark: SparkSession
) -> DataFrame:
    """Return a DataFrame of what a reader makes of shares; nothing is read yet.

    The driver sends each task its share as a row; no row of the table passes through it. The
    caller has seen to it that executors can reach the store.
    """
    if not shares:
        return spark.createDataFrame([], struct)
    rows = pa.table(
        {
            _TASK: pa.array(range(len(shares)), pa.int32()),
            _SHARE: pa.array(shares, pa.binary()),
        }
    )
    tasks = spark.createDataFrame(rows).repartitionById(len(shares), _TASK)
    numbered = StructType([StructField(position(at), f.dataType) for at, f in enumerate(struct)])
    return tasks.mapInArrow(_reading(reader), numbered).toDF(*struct.fieldNames())


def _reading(
    reader: ShareReader,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that ``mapInArrow`` runs: shares in, rows out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(1).to_pylist():
                for rows in reader.read(share):
                    yield rows.rename_columns(list(map(position, range(rows.num_columns))))

    return run
