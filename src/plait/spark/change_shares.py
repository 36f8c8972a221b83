"""Change reads in Spark: the same Arrow code on the executors, one share of the files a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from plait.expr import Where
from plait.model.plan import CHANGED, ChangeWindow
from plait.model.schema import Schema
from plait.model.store_address import StoreAddress
from plait.read.change_scan import ADDED_COLUMNS, ChangeScan
from plait.read.scan import known_columns
from plait.spark.frame import check_types, in_spark_types
from plait.spark.shares import SHARE_BYTES, shares_to_spark
from plait.spark.transfer import packed, unpacked
from plait.spark.values import spark_schema
from plait.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ChangeShares:
    """Reads the changes in a share of a window's files; goes to executors as it is."""

    store: StoreAddress
    window: ChangeWindow
    """Without files: each share brings its own."""
    columns: tuple[str, ...]
    shown: tuple[str, ...]
    """The columns that are returned."""
    where: Where

    @classmethod
    def of(cls, scan: ChangeScan, shown: Sequence[str] | None = None) -> ChangeShares:
        """Read what a scan would, all of its columns or some."""
        window = replace(scan.window, files=CHANGED.empty_table())
        columns = tuple(scan.schema.names)
        return cls(scan.store.address, window, columns, tuple(shown or columns), scan.where)

    def read(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows in Spark's types."""
        window = replace(self.window, files=unpacked(share))
        scan = ChangeScan(open_store(self.store), window, columns=self.columns, where=self.where)
        return (batch.select(self.shown) for batch in in_spark_types(scan.to_reader()))


def changes_to_spark(scan: ChangeScan, spark: SparkSession) -> DataFrame:
    """Return a DataFrame of a change read; nothing is read yet, see ``shares_to_spark``."""
    shares = list(map(packed, scan.divided(SHARE_BYTES)))
    return shares_to_spark(ChangeShares.of(scan), shares, spark_schema(scan.schema), spark)


def check_asked(asked: StructType, known: Schema) -> None:
    """Refuse columns that are neither the table's nor added, or of another type.

    Raises:
        SchemaMismatchError: there is such a column.
    """
    fields = pa.schema([*known.arrow, *ADDED_COLUMNS])
    chosen = [fields.field(name) for name in known_columns(asked.fieldNames(), fields)]
    check_types(asked, spark_schema(pa.schema(chosen)))
