"""Scans as Spark DataFrames: plain Parquet for Spark, masked natively where rows were replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema

from plait.expr import to_sql
from plait.files.deletion import load_mask
from plait.files.live import LiveFile, live_files
from plait.read.scan import Scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME, _ROW = "__plait_file", "__plait_row"
_MASKS = pa.schema([(_NAME, pa.string()), (_ROW, pa.int64())])


def to_spark(scan: Scan, spark: SparkSession) -> DataFrame:
    """Give a DataFrame of a scan; the executors read the files.

    Files without masked rows are read by Spark's vectorised Parquet reader as they are. Of the
    others, masked positions are taken out by a broadcast join on file name and row index.
    """
    fields = scan.snapshot.spec.schema.arrow
    needed = set(scan.schema.names)
    condition = scan.plan.condition
    if condition is not None:
        needed |= set(condition.columns)
    schema = pa.schema([field.remove_metadata() for field in fields if field.name in needed])
    files = list(live_files(scan.plan.files))
    whole = [file for file in files if not file.masked]
    masked = [file for file in files if file.masked]
    frame = _read(spark, scan, schema, whole)
    if masked:
        rest = _unmasked(spark, scan, schema, masked)
        frame = rest if not whole else frame.unionByName(rest)
    if condition is not None:
        frame = frame.filter(F.expr(to_sql(condition.predicate)))
    return frame.select(*[F.col("`" + n.replace("`", "``") + "`") for n in scan.schema.names])


def _read(spark: SparkSession, scan: Scan, schema: pa.Schema, files: list[LiveFile]) -> DataFrame:
    struct = from_arrow_schema(schema)
    if not files:
        return spark.createDataFrame([], struct)
    paths = [scan.store.location(file.path) for file in files]
    return spark.read.schema(struct).parquet(*paths)


def _unmasked(
    spark: SparkSession, scan: Scan, schema: pa.Schema, files: list[LiveFile]
) -> DataFrame:
    names, rows = [], []
    for file in files:
        positions = load_mask(scan.store, file)
        if positions is not None:
            names.append(np.repeat(file.path.rsplit("/", 1)[-1], len(positions)))
            rows.append(positions.astype(np.int64))
    table = pa.table([np.concatenate(names), np.concatenate(rows)], schema=_MASKS)
    masks = F.broadcast(spark.createDataFrame(table))
    frame = _read(spark, scan, schema, files)
    frame = frame.withColumn(_NAME, F.col("_metadata.file_name"))
    frame = frame.withColumn(_ROW, F.col("_metadata.row_index"))
    return frame.join(masks, [_NAME, _ROW], "left_anti").drop(_NAME, _ROW)
