"""Reads of some rows of each file in Spark: a task reads only the row groups that have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.model.plan import LIVE, Snapshot
from plait.model.store_address import StoreAddress
from plait.read.stretches import StretchScan
from plait.spark.frame import in_spark_types
from plait.spark.shares import SHARE_BYTES, shares_to_spark
from plait.spark.transfer import packed, unpacked
from plait.spark.values import spark_schema
from plait.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FIRST, _STOP = "first", "stop"


@dataclass(frozen=True, slots=True)
class StretchShares:
    """Reads some stretches of a version's files; goes to executors as it is."""

    store: StoreAddress
    snapshot: Snapshot
    """Without files: each share brings its own."""
    columns: tuple[str, ...]

    def read(self, share: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows in Spark's types."""
        files = unpacked(share)
        spans = [*map(range, files[_FIRST].to_pylist(), files[_STOP].to_pylist())]
        snapshot = replace(self.snapshot, files=files.select(LIVE.names))
        scan = StretchScan(open_store(self.store), snapshot, spans, self.columns)
        return in_spark_types(scan.to_reader())


def stretches_to_spark(scan: StretchScan, spark: SparkSession) -> DataFrame:
    """Return a DataFrame of stretches of files; nothing is read yet, see ``shares_to_spark``."""
    snapshot = replace(scan.snapshot, files=LIVE.empty_table(), total=None)
    reader = StretchShares(scan.store.address, snapshot, tuple(scan.schema.names))
    shares = list(map(_share, scan.divided(SHARE_BYTES)))
    return shares_to_spark(reader, shares, spark_schema(scan.schema), spark)


def _share(scan: StretchScan) -> bytes:
    files = scan.snapshot.files.select(LIVE.names)
    for name, ends in (
        (_FIRST, [span.start for span in scan.spans]),
        (_STOP, [span.stop for span in scan.spans]),
    ):
        files = files.append_column(name, pa.array(ends, pa.int64()))
    return packed(files)
