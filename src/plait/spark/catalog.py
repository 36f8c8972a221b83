"""The data source as SQL's tables and views need it.

Spark 4.2 tells a Python data source the options of a catalog's table once, when the table is
created, mixed with the table's properties; never when it is read or written. What it hands over
at each read is the table's schema, with what stands beside its columns. So the options are kept
there, by the first column.

They are not taken from there for writes. ``CREATE TABLE ... AS SELECT`` gives a new table the
columns of the query, metadata and all, and its rows would go into the table that was queried.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructField, StructType

from plait.errors import OptionError
from plait.spark.options import STORAGE
from plait.spark.reader import PlaitStreamReader
from plait.spark.sink import PlaitWriter
from plait.spark.source import PlaitSource

_KEPT = "plait"
"""The key beside a column that the options stand under."""
_OPTION = "option."
_FOR_WRITES = frozenset({"operation", "on_conflict", "on_duplicate", "partitions"})
"""A view that rows are inserted into has these too; reading it, they say nothing."""


class CatalogSource(PlaitSource):
    """A table as Spark sees it, by its path or by a name in SQL."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Tell the options of a table that is being created from its properties."""
        self._created = "provider" in options
        super().__init__(_options_of_table(options) if self._created else dict(options))

    def schema(self) -> StructType:
        """Give the table's schema; with the options in it for one that a catalog will keep.

        Raises:
            OptionError: an option is not known, or is one that a catalog must not keep.
        """
        given = dict(self.options)
        if self._created:
            _check_kept(given)
        self.options = _for_reads(given)
        found = super().schema()
        return _keep(found, given) if self._created else found

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan to read; what the query says goes before what the table was created with."""
        self._recall(schema)
        return super().reader(schema)

    def streamReader(self, schema: StructType) -> PlaitStreamReader:  # noqa: N802 - Spark's
        """Plan to follow the table; what the query says goes before what it was created with."""
        self._recall(schema)
        return super().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> PlaitWriter:  # noqa: FBT001 - Spark's
        """Check the columns and begin a write.

        Raises:
            OptionError: Spark did not say where to.
        """
        if "path" not in {key.lower() for key in self.options}:
            path = _kept(schema).get("path", "/path/of/table")
            message = "Spark 4.2 tells no data source where the table of an INSERT is"
            hint = f"INSERT INTO name WITH (path = '{path}') ..., or insert into a temporary view"
            raise OptionError(message, hint=hint, key="path", value="")
        return super().writer(schema, overwrite)

    def _recall(self, schema: StructType) -> None:
        """Add the options of the table that stand beside its columns, as far as reads take them."""
        self.options = _for_reads({**_kept(schema), **self.options})


def _options_of_table(properties: Mapping[str, str]) -> dict[str, str]:
    """Take the options out of a table's properties: Spark repeats them with a prefix."""
    found = {
        key.removeprefix(_OPTION): value
        for key, value in properties.items()
        if key.startswith(_OPTION)
    }
    path = properties.get("path")
    if path:
        # Hadoop's spelling of a local file has one slash.
        local = path.startswith("file:/") and not path.startswith("file://")
        found["path"] = path.removeprefix("file:") if local else path
    return found


def _for_reads(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key.lower() not in _FOR_WRITES}


def _check_kept(options: Mapping[str, str]) -> None:
    for key in options:
        if key.lower().startswith(STORAGE):
            message = f"a catalog would keep the option {key!r}, which may be a secret, in the open"
            hint = "give it where the table is read: SELECT ... FROM name WITH (...), or a view"
            raise OptionError(message, hint=hint, key=key, value="")


def _keep(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Put the options beside the first column."""
    first, *rest = schema.fields
    kept = {**(first.metadata or {}), _KEPT: dict(options)}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *rest])


def _kept(schema: StructType) -> dict[str, str]:
    for field in schema.fields:
        found = (field.metadata or {}).get(_KEPT)
        if isinstance(found, dict):
            return {str(key): str(value) for key, value in found.items()}
    return {}
