"""Rows on their way out, as whatever the caller works with; see ``Scan`` and ``ChangeScan``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from plait.errors import MissingDependencyError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyspark.sql as ps

SCANNERS: Final = "plait.scanners"
"""Entry points: engine name -> ``callable(scan, session)``."""


class Frames(ABC):
    """Streams of record batches, and every form that can be made of one."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    @abstractmethod
    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows anew."""

    def keep(self, owner: object) -> None:
        """Keep something alive for as long as this, such as what holds its lease."""
        self._kept = owner

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows as record batches: ``for batch in scan``."""
        return self._batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream the rows as record batches in bounded memory."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_arrow(self) -> pa.Table:
        """Read the rows into an Arrow table.

        Raises:
            CorruptMetadataError: a file is not what the table's metadata says.
        """
        return pa.Table.from_batches(list(self._batches()), schema=self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Read the rows into a pandas frame, every value exact.

        The types follow from the table's columns alone, whether or not a row is null: numbers and
        booleans have pandas's nullable types (``Int64``, ``Float64``, ``boolean``), dates and
        nested columns those of Arrow. Written back, the frame has the rows that were read.
        """
        with needs("pandas", "pandas"):
            frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=_pandas_type)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Read the rows into a Polars frame."""
        with needs("polars", "polars"):
            import polars as pl  # noqa: PLC0415 - only when it is asked for

        return pl.DataFrame(self.to_arrow())

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation that streams the rows whenever it is executed."""
        with needs("duckdb", "duckdb"):
            import duckdb  # noqa: PLC0415 - only when it is asked for

        return (connection or duckdb).from_arrow(self)

    def to_spark(self, spark: ps.SparkSession) -> ps.DataFrame:
        """Return a Spark DataFrame; its rows are read by the executors."""
        with needs("pyspark", "plait[spark]"):
            scanner: Callable[[Frames, object], ps.DataFrame] = _scanner("pyspark").load()
        return scanner(self, spark)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream the rows through Arrow's C interface; each call reads anew."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


@cache
def _pandas_type(kind: pa.DataType) -> object:
    """Return the type of a pandas column that holds all values of a type; None: Arrow's choice.

    Arrow would make floating-point numbers of integers beside nulls, in lists too, and one thing
    of null and NaN.
    """
    import pandas as pd  # noqa: PLC0415 - only when it is asked for

    if pa.types.is_boolean(kind):
        return pd.BooleanDtype()
    if pa.types.is_integer(kind):
        return getattr(pd, f"Int{kind.bit_width}Dtype")()
    if pa.types.is_floating(kind):
        return pd.Float32Dtype() if pa.types.is_float32(kind) else pd.Float64Dtype()
    if pa.types.is_nested(kind) or pa.types.is_date(kind):
        return pd.ArrowDtype(kind)
    return None


@cache
def _scanner(engine: str) -> EntryPoint:
    for point in entry_points(group=SCANNERS, name=engine):
        return point
    raise ImportError(f"no scanner for {engine} is installed")


@contextmanager
def needs(library: str, install: str) -> Iterator[None]:
    """Name what to install when a library is not there."""
    try:
        yield
    except MissingDependencyError:
        raise
    except ImportError as error:
        raise _missing(library, install) from error


def _missing(library: str, install: str) -> MissingDependencyError:
    message = f"{library} is not installed"
    hint = f"pip install '{install}'"
    return MissingDependencyError(message, hint=hint, library=library, extra=install)
