"""Change reads in Spark: the same Arrow code on the executors, one share of the files a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from plait.expr import Where
from plait.model.plan import CHANGED, ChangeWindow, StoreSpec
from plait.model.schema import Schema
from plait.read.changes import ADDED_COLUMNS, ChangeScan
from plait.read.scan import known_columns
from plait.spark.frame import check_types, spark_schema
from plait.spark.snapshot_transfer import packed, unpacked
from plait.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARE_BYTES = 64 << 20
"""What one task reads, about."""
_TASK, _SHARE = "task", "share"


@dataclass(frozen=True, slots=True)
class ShareReader:
    """Reads the changes in a share of a window's files; goes to executors as it is."""

    store: StoreSpec
    window: ChangeWindow
    """Without files: each share brings its own."""
    columns: tuple[str, ...]
    shown: tuple[str, ...]
    """Those of the columns that are given."""
    where: Where

    @classmethod
    def of(cls, scan: ChangeScan, shown: Sequence[str] | None = None) -> ShareReader:
        """Read what a scan would, all of its columns or some."""
        window = replace(scan.window, files=CHANGED.empty_table())
        columns = tuple(scan.schema.names)
        return cls(scan.store.spec, window, columns, tuple(shown or columns), scan.where)

    def read(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows in Spark's types."""
        window = replace(self.window, files=unpacked(share))
        scan = ChangeScan(open_store(self.store), window, columns=self.columns, where=self.where)
        wanted = to_arrow_schema(spark_schema(scan.schema), timezone="UTC")
        for batch in scan.to_reader():
            yield batch.cast(wanted).select(self.shown)


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
    frame = spark.createDataFrame(rows).repartitionById(len(shares), _TASK)
    # Columns by position: ``mapInArrow`` takes names with dots for something else.
    places = StructType([StructField(f"c{at}", f.dataType) for at, f in enumerate(struct.fields)])
    return frame.mapInArrow(_reading(ShareReader.of(scan)), places).toDF(*struct.fieldNames())


def _reading(
    reader: ShareReader,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that ``mapInArrow`` runs: shares in, rows out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(1).to_pylist():
                for rows in reader.read(share):
                    yield rows.rename_columns([f"c{at}" for at in range(rows.num_columns)])

    return run


def check_asked(asked: StructType, known: Schema) -> None:
    """Refuse columns that are neither the table's nor added, or of another type.

    Raises:
        SchemaMismatchError: there is such a column.
    """
    fields = pa.schema([*known.arrow, *ADDED_COLUMNS])
    chosen = [fields.field(name) for name in known_columns(asked.fieldNames(), fields)]
    check_types(asked, spark_schema(pa.schema(chosen)))


@dataclass
class Share(ds.InputPartition):
    """Files that one task reads, packed."""

    files: bytes


class ChangeReader(ds.DataSourceReader):
    """Reads the changes of a window as Arrow batches; filters stay with Spark, as in a scan."""

    def __init__(self, scan: ChangeScan, asked: StructType) -> None:
        """Plan to read the columns asked for, of those that the scan has."""
        check_asked(asked, scan.window.snapshot.spec.schema)
        self._shares = scan.divided(SHARE_BYTES)
        self._reader = ShareReader.of(scan, asked.fieldNames())

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Divide the files among tasks; one that has none gives no row."""
        return [Share(packed(share)) for share in self._shares or [CHANGED.empty_table()]]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the share of one task."""
        return self._reader.read(partition.files)  # type: ignore[attr-defined]  # of partitions()

    def __getstate__(self) -> dict[str, object]:
        """Leave the shares behind on the way to a task: it gets its own."""
        return {**self.__dict__, "_shares": []}
