"""Spark DataFrames as input: told from their class, checked on the driver, sent to their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from plait.arrow.check import input_schema, prepare
from plait.errors import CapabilityMissingError, SchemaMismatchError
from plait.model.instant import Operation
from plait.model.plan import TableSpec
from plait.model.store_address import StoreAddress
from plait.spark.route import Route
from plait.spark.values import Values, quoted, spark_schema
from plait.storage import in_this_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def is_frame(data: object) -> TypeGuard[DataFrame]:
    """Tell whether this is a DataFrame of Spark, classic or Connect."""
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql")
        for kind in type(data).__mro__
    )


def is_session(data: object) -> TypeGuard[SparkSession]:
    """Tell whether this is a session of Spark, classic or Connect."""
    return any(
        kind.__name__ == "SparkSession" and kind.__module__.startswith("pyspark.sql")
        for kind in type(data).__mro__
    )


def require_reachable(store: StoreAddress) -> None:
    """Refuse a table that executors, which are other processes, cannot reach.

    Raises:
        CapabilityMissingError: the table is inside of this process.
    """
    if in_this_process(store):
        uri = store.uri
        message = f"Spark's executors cannot reach {uri}: it is in this process's memory"
        hint = "keep the table on a disk or in an object store, or use Arrow: to_arrow(), toArrow()"
        raise CapabilityMissingError(message, hint=hint, capability="shared", uri=uri)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return a Spark schema in Arrow's types.

    Raises:
        SchemaMismatchError: a column has a type that Arrow lacks, or that means more than its
            type in Arrow says.
    """
    fields = []
    for field in schema.fields:
        try:
            _require_plain(field.dataType)
            fields += list(to_arrow_schema(StructType([field]), timezone="UTC"))
        except (PySparkException, TypeError, ValueError) as error:
            found = field.dataType.simpleString()
            message = f"column {field.name!r} of type {found} cannot be stored"
            hint = "cast it to a type that Parquet has, or drop it"
            raise SchemaMismatchError(message, hint=hint, column=field.name, found=found) from error
    return pa.schema(fields)


_PLAIN: Final = frozenset(
    f"{name}Type"
    for name in (
        *("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "Decimal", "Binary"),
        *("Date", "Timestamp", "TimestampNTZ", "Null"),
    )
)


def _require_plain(kind: DataType) -> None:
    """Refuse a type of which Arrow keeps a part alone; raise TypeError.

    Such are a VARIANT, which would be a struct of bytes; a collation, which decides what is equal;
    and a type of the user's.
    """
    if isinstance(kind, StructType):
        for field in kind.fields:
            _require_plain(field.dataType)
    elif isinstance(kind, ArrayType):
        _require_plain(kind.elementType)
    elif isinstance(kind, MapType):
        _require_plain(kind.keyType)
        _require_plain(kind.valueType)
    elif not (
        kind == StringType() if isinstance(kind, StringType) else type(kind).__name__ in _PLAIN
    ):
        raise TypeError(kind)


def in_spark_types(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Return the batches with rows of a read in the types that Spark expects of them."""
    wanted = to_arrow_schema(spark_schema(rows.schema), timezone="UTC")
    return (batch.cast(wanted) for batch in rows if batch.num_rows)


def check_types(asked: StructType, known: StructType) -> None:
    """Refuse columns that were asked for with types that they do not have."""
    for wanted, found in zip(asked.fields, known.fields, strict=True):
        if wanted.dataType != found.dataType:
            expected, given = found.dataType.simpleString(), wanted.dataType.simpleString()
            message = f"column {wanted.name!r} is {expected}, not {given}"
            hint = "keep the type, and cast after reading"
            raise SchemaMismatchError(
                message, hint=hint, column=wanted.name, expected=expected, found=given
            )


def check_frame(
    schema: pa.Schema, spec: TableSpec, operation: Operation, where: pc.Expression | None = None
) -> None:
    """Refuse columns that do not fit the table, before a job is run.

    Raises:
        SchemaMismatchError: columns are missing, unknown, or of a type that does not fit.
    """
    for _ in prepare(schema.empty_table(), spec, operation, where=where):
        pass


def union(frames: Sequence[DataFrame], spec: TableSpec, operation: Operation) -> DataFrame:
    """Put the rows of several DataFrames together, with the columns that the operation takes.

    Raises:
        SchemaMismatchError: they do not have the same types.
    """
    schemas = [arrow_schema(frame.schema) for frame in frames]
    names = list(dict.fromkeys(name for schema in schemas for name in schema.names))
    wanted = input_schema(spec, operation, names)
    whole: DataFrame | None = None
    for frame, schema in zip(frames, schemas, strict=True):
        kept = [field.name for field in wanted if field.name in schema.names]
        chosen = frame.select(*map(quoted, kept))
        if whole is None:
            whole = chosen
        else:
            _check_same(schemas[0], schema, kept)
            whole = whole.unionByName(chosen, allowMissingColumns=True)
    if whole is None:
        raise SchemaMismatchError("no DataFrame was written", hint="write one first", column="")
    return whole


def _check_same(first: pa.Schema, other: pa.Schema, names: Sequence[str]) -> None:
    for name in names:
        if name not in first.names or first.field(name).type == other.field(name).type:
            continue
        expected, found = str(first.field(name).type), str(other.field(name).type)
        message = f"column {name!r} is {expected} in one DataFrame and {found} in another"
        hint = "cast it, or use one writer for each DataFrame"
        raise SchemaMismatchError(message, hint=hint, column=name, expected=expected, found=found)


def routed(frame: DataFrame, route: Route, only: frozenset[int] | None) -> DataFrame:
    """Send each row to its task; with ``only``, just the rows of these tasks."""
    task = route.task(Values.of(frame))
    if only is not None:
        frame = frame.where(task.isin(sorted(only)))
    return frame.repartitionById(route.tasks, task)


def position(number: int) -> str:
    """Name a column by its position: ``mapInArrow`` takes names with dots for something else."""
    return f"c{number}"


def numbered(frame: DataFrame) -> DataFrame:
    """Name the columns by their positions."""
    return frame.toDF(*map(position, range(len(frame.columns))))
