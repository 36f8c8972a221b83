"""Change reads in Spark: the same Arrow code on the executors, one share of the files a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from plait.expr import Where
from plait.model.plan import CHANGED, ChangeWindow, StoreSpec
from plait.model.schema import Schema
from plait.read.changes import ADDED_COLUMNS, ChangeScan
from plait.read.scan import known_columns
from plait.spark.frame import check_types, in_spark_types, position, spark_schema
from plait.spark.transfer import packed, unpacked
from plait.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARE_BYTES = 64 << 20
"""What one task reads, about."""
_TASK, _SHARE = "task", "share"


@dataclass(frozen=True, slots=True)
class ChangeShares:
    """Reads the changes in a share of a window's files; goes to executors as it is."""

    store: StoreSpec
    window: ChangeWindow
    """Without files: each share brings its own."""
    columns: tuple[str, ...]
    shown: tuple[str, ...]
    """Those of the columns that are given."""
    where: Where

    @classmethod
    def of(cls, scan: ChangeScan, shown: Sequence[str] | None = None) -> ChangeShares:
        """Read what a scan would, all of its columns or some."""
        window = replace(scan.window, files=CHANGED.empty_table())
        columns = tuple(scan.schema.names)
        return cls(scan.store.spec, window, columns, tuple(shown or columns), scan.where)

    def read(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows in Spark's types."""
        window = replace(self.window, files=unpacked(share))
        scan = ChangeScan(open_store(self.store), window, columns=self.columns, where=self.where)
        return (batch.select(self.shown) for batch in in_spark_types(scan.to_reader()))


def changes_to_spark(scan: ChangeScan, spark: SparkSession) -> DataFrame:
    """Return a DataFrame of a change read; nothing is read yet.

    The driver sends each task its share of the files as a row; no row of the table passes through
    it. The caller has seen to it that executors can reach the store.
    """
    struct = spark_schema(scan.schema)
    shares = scan.divided(SHARE_BYTES)
    if not shares:
        return spark.createDataFrame([], struct)
    rows = pa.table(
        {
            _TASK: pa.array(range(len(shares)), pa.int32()),
            _SHARE: pa.array(map(packed, shares), pa.binary()),
        }
    )
    tasks = spark.createDataFrame(rows).repartitionById(len(shares), _TASK)
    numbered = StructType([StructField(position(at), f.dataType) for at, f in enumerate(struct)])
    return tasks.mapInArrow(_reading(ChangeShares.of(scan)), numbered).toDF(*struct.fieldNames())


def _reading(
    reader: ChangeShares,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that ``mapInArrow`` runs: shares in, rows out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(1).to_pylist():
                for rows in reader.read(share):
                    yield rows.rename_columns(list(map(position, range(rows.num_columns))))

    return run


def check_asked(asked: StructType, known: Schema) -> None:
    """Refuse columns that are neither the table's nor added, or of another type.

    Raises:
        SchemaMismatchError: there is such a column.
    """
    fields = pa.schema([*known.arrow, *ADDED_COLUMNS])
    chosen = [fields.field(name) for name in known_columns(asked.fieldNames(), fields)]
    check_types(asked, spark_schema(pa.schema(chosen)))
