"""Tables by name: the data source as SQL's tables and views need it, and names of our catalogs.

Spark 4.2 tells a Python data source the options of a catalog's table once, when the table is
created, mixed with the table's properties; never when it is read or written. What it hands over
at each read is the table's schema, with what stands beside its columns. So the options are kept
there, by the first column.

They are not taken from there for writes. ``CREATE TABLE ... AS SELECT`` gives a new table the
columns of the query, metadata and all, and its rows would go into the table that was queried.

Spark 4.2 has no catalogs that are written in Python. So a name of ``plait.Catalog`` is resolved by
the data source (RFC 0047), and SQL gets temporary views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructField, StructType

from plait.catalog.catalog import Catalog
from plait.catalog.names import TableName
from plait.errors import OptionError, SchemaMismatchError, TableNotFoundError
from plait.model.consent import absolute_path
from plait.spark.options import STORAGE, bare
from plait.spark.reader import PlaitStreamReader
from plait.spark.sink import PlaitWriter
from plait.spark.source import PlaitSource
from plait.storage.location import plain_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEPT = "plait"
"""The key beside a column that the options stand under."""
_COLUMNS = "plait.columns"
"""The key beside it of the columns that the table had then: Spark alters them and does not ask."""
_OPTION = "option."
_FOR_WRITES = frozenset(
    {"operation", "onconflict", "onduplicate", "missingcolumns", "readfrom", "partitions"}
    | {"partitionoverwritemode", "evolve", "mergeschema"}
)
"""A view that rows are inserted into has these too; reading it, they say nothing."""


class CatalogSource(PlaitSource):
    """A table as Spark sees it, by its path or by a name in SQL."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Tell the options of a table that is being created from its properties."""
        self._created = "provider" in options
        super().__init__(_options_of_table(options) if self._created else dict(options))

    def schema(self) -> StructType:
        """Return the table's schema; with the options in it for one that a catalog will keep.

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
            message = "Spark 4.2 does not tell a data source the location of an INSERT's table"
            hint = (
                f"INSERT INTO name WITH (path = '{path}') ..., or insert into a temporary view; "
                f"for a DataFrame use save('{path}') instead of saveAsTable and insertInto"
            )
            raise OptionError(message, hint=hint, key="path", value="")
        return super().writer(schema, overwrite)

    def _recall(self, schema: StructType) -> None:
        """Add the options of the table that stand beside its columns, as far as reads take them.

        Raises:
            SchemaMismatchError: ``ALTER TABLE`` changed the columns of the name.
            OptionError: nothing stands there: the name has columns of its own.
        """
        kept = _kept(schema)
        if "path" not in {key.lower() for key in (*kept, *self.options)}:
            raise _nowhere(schema)
        _check_columns(schema, kept.get("path", ""))
        self.options = _for_reads({**kept, **self.options})


def _options_of_table(properties: Mapping[str, str]) -> dict[str, str]:
    """Take the options out of a table's properties: Spark repeats them with a prefix."""
    found = {
        key.removeprefix(_OPTION): value
        for key, value in properties.items()
        if key.startswith(_OPTION)
    }
    path = properties.get("path")
    if path:
        found["path"] = plain_url(path) if path.startswith("file:") else path
    return found


def _for_reads(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if bare(key) not in _FOR_WRITES}


def _check_kept(options: Mapping[str, str]) -> None:
    for key in options:
        if key.lower().startswith(STORAGE):
            message = (
                f"the catalog would store the option {key!r}, which may be a secret, in plain text"
            )
            hint = "pass it when you read the table: SELECT ... FROM name WITH (...), or a view"
            raise OptionError(message, hint=hint, key=key, value="")


def _keep(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Put the options beside the first column."""
    first, *rest = schema.fields
    kept = {**(first.metadata or {}), _KEPT: dict(options), _COLUMNS: schema.fieldNames()}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *rest])


def _check_columns(schema: StructType, path: str) -> None:
    for field in schema.fields:
        before = (field.metadata or {}).get(_COLUMNS)
        if not isinstance(before, list):
            continue
        now = schema.fieldNames()
        changed = [f"+{name}" for name in now if name not in before]
        changed += [f"-{name}" for name in before if name not in now]
        if changed:
            message = (
                "ALTER TABLE changed the columns of this name in Spark's catalog "
                f"({', '.join(changed)}) but not those of the table"
            )
            hint = (
                "DROP TABLE removes only the name; then CREATE TABLE name USING plait "
                f"LOCATION '{path}'"
            )
            column = changed[0][1:]
            raise SchemaMismatchError(message, hint=hint, column=column, expected=before, found=now)


def _nowhere(schema: StructType) -> OptionError:
    columns = ", ".join(schema.fieldNames())
    message = (
        "no path is given: if this is a name in Spark's catalog, then it was created with columns "
        f"of its own ({columns}), or ALTER TABLE removed the column that kept the path"
    )
    hint = (
        "DROP TABLE removes only the name; then CREATE TABLE name USING plait LOCATION "
        "'/path/of/table', without columns; Table.create or tablectl create makes the table"
    )
    return OptionError(message, hint=hint, key="path", value="")


def _kept(schema: StructType) -> dict[str, str]:
    for field in schema.fields:
        found = (field.metadata or {}).get(_KEPT)
        if isinstance(found, dict):
            return {str(key): str(value) for key, value in found.items()}
    return {}


def table(spark: SparkSession, catalog: str, name: str, **options: object) -> DataFrame:
    """Return a table of a catalog as a DataFrame, at the version that is newest now.

    It is ``spark.read.format("plait")`` with a name. ``Catalog.table(name).scan().to_spark(spark)``
    is faster, since Spark reads the files itself then.

    Args:
        spark: a classic session, or one of Spark Connect.
        catalog: the root of the catalog.
        name: ``namespace.table``.
        options: those of the data source for reads, such as ``version``; ``storage.`` before those
            of the file system.

    Raises:
        TableNotFoundError, OptionError: there is no such table or option; Spark wraps them.
    """
    reader = spark.read.format("plait").options(**_named(catalog, options))
    return reader.load(str(TableName.parse(name)))


def save(
    frame: DataFrame, catalog: str, name: str, *, mode: str = "append", **options: object
) -> None:
    """Write a DataFrame into a table of a catalog, in one commit.

    It is ``frame.write.format("plait")`` with a name. ``Catalog.table(name).upsert(frame)`` and its
    kin are faster, and return what was committed.

    Args:
        frame: the rows.
        catalog: the root of the catalog.
        name: ``namespace.table``; the table exists.
        mode: ``append`` or ``overwrite``.
        options: those of the data source for writes, such as ``operation="upsert"``.

    Raises:
        TableNotFoundError, OptionError: there is no such table or option; Spark wraps them.
        ConflictError: another commit wrote the same rows; Spark wraps it.
    """
    writer = frame.write.format("plait").mode(mode).options(**_named(catalog, options))
    writer.save(str(TableName.parse(name)))


def create_views(
    spark: SparkSession, catalog: str, namespace: str, **options: object
) -> tuple[str, ...]:
    """Create or replace a temporary view for each table of a namespace; return their names.

    A view has the table's name without its namespace. It shows the version that is newest now, like
    a DataFrame: call this again to see later commits. ``INSERT INTO`` a view writes to the table
    whose name it is then.

    Args:
        spark: a classic session, or one of Spark Connect.
        catalog: the root of the catalog.
        namespace: whose tables.
        options: of the data source for all of them, such as ``operation="upsert"``.

    Raises:
        NamespaceNotFoundError: there is no such namespace.
    """
    given = _named(catalog, options)
    storage = {k.removeprefix(STORAGE): v for k, v in given.items() if k.startswith(STORAGE)}
    opened = Catalog(given["catalog"], storage_options=storage or None, allow=given.get("allow"))
    views = []
    for entry in opened.tables(namespace):
        try:
            opened.table(entry.name)
        except TableNotFoundError:  # dropped meanwhile
            continue
        view = TableName.parse(entry.name).table
        table(spark, catalog, entry.name, **options).createOrReplaceTempView(f"`{view}`")
        views.append(view)
    return tuple(views)


def _named(catalog: str, given: dict[str, object]) -> dict[str, str]:
    """Return the options of the data source, which runs in a directory of its own."""
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in given.items()
    }
    return {**texts, "catalog": catalog if "://" in catalog else absolute_path(catalog)}
